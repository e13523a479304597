"""The first thing that everybody does, with the published client as it is."""

import asyncio
from datetime import timedelta

from opensandbox import Sandbox, SandboxSync
from opensandbox.models.filesystem import WriteEntry


def test_create_run_write_read_kill(server, connection):
    sandbox = SandboxSync.create(
        "host", timeout=timedelta(minutes=10), connection_config=connection
    )
    with sandbox:
        execution = sandbox.commands.run("echo hello")
        assert [line.text for line in execution.logs.stdout] == ["hello"]
        assert execution.logs.stderr == []
        assert execution.exit_code == 0
        assert execution.error is None

        sandbox.files.write_files([WriteEntry(path="/tmp/note.txt", data="grüße\n", mode=644)])
        assert sandbox.files.read_file("/tmp/note.txt") == "grüße\n"

        assert sandbox.id in server.ids()
        sandbox.kill()
        assert sandbox.id not in server.ids()


def test_the_same_with_the_async_client(server, async_connection):
    async def story() -> None:
        sandbox = await Sandbox.create(
            "host", timeout=timedelta(minutes=10), connection_config=async_connection
        )
        async with sandbox:
            execution = await sandbox.commands.run("echo hello")
            assert [line.text for line in execution.logs.stdout] == ["hello"]
            assert execution.exit_code == 0
            await sandbox.files.write_files([WriteEntry(path="/tmp/note.txt", data="hello\n")])
            assert await sandbox.files.read_file("/tmp/note.txt") == "hello\n"
            await sandbox.kill()
            assert sandbox.id not in server.ids()

    asyncio.run(story())


def test_many_at_once_stay_apart(async_connection):
    async def one(number: int) -> None:
        sandbox = await Sandbox.create("host", connection_config=async_connection)
        async with sandbox:
            try:
                await sandbox.files.write_files([WriteEntry(path="/tmp/n", data=str(number))])
                execution = await sandbox.commands.run("cat /tmp/n; ls /tmp | wc -l")
                assert [line.text for line in execution.logs.stdout] == [f"{number}1"]
            finally:
                await sandbox.kill()

    async def story() -> None:
        await asyncio.gather(*(one(number) for number in range(8)))

    asyncio.run(story())
