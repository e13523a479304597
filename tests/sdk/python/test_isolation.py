"""Isolated sessions: a sandbox within the sandbox, with every method of both published clients."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Iterator

import pytest
from opensandbox import Sandbox, SandboxSync
from opensandbox.exceptions import SandboxApiException
from opensandbox.models.filesystem import (
    ContentReplaceEntry,
    DirectoryListEntry,
    MoveEntry,
    SearchEntry,
    SetPermissionEntry,
    WriteEntry,
)
from opensandbox.models.isolated import (
    BindMount,
    CreateIsolatedSessionRequest,
    EnvPassthroughSpec,
    IsolatedOverlaySpec,
    IsolatedRunOpts,
    IsolatedWorkspaceSpec,
)
from served import wait_for

WORK = "/work"


def wish(mode: str | None = "overlay", **more) -> CreateIsolatedSessionRequest:
    return CreateIsolatedSessionRequest(
        workspace=IsolatedWorkspaceSpec(path=WORK, mode=mode), **more
    )


def texts(execution) -> list[str]:
    return [line.text for line in execution.logs.stdout]


@pytest.fixture
def sandbox(create) -> Iterator[SandboxSync]:
    sandbox = create(env={"DEPLOY_TOKEN": "secret", "EDITOR": "ed"})
    sandbox.files.write_file(f"{WORK}/old", "old\n")
    yield sandbox


def test_the_sandbox_says_that_it_can(sandbox):
    told = sandbox.isolation.capabilities()
    assert told.available and told.setpriv_available and told.message is None
    assert told.hardening.init_mode == "pid1" and told.hardening.signal_shield
    assert told.hardening.seccomp.state == "active"


def test_a_session_from_its_creation_to_its_end(sandbox):
    session = sandbox.isolation.create(wish(idle_timeout_seconds=600))
    assert str(uuid.UUID(session.session_id)) == session.session_id
    assert session.info.workspace.path == WORK
    assert session.info.created_at is not None

    execution = session.run("cat old; echo new > old; pwd; exit 3")
    assert texts(execution)[:1] == ["old"] and WORK in texts(execution)
    assert execution.exit_code == 3
    assert texts(session.run("cat old")) == ["new"]
    assert sandbox.files.read_file(f"{WORK}/old") == "old\n"

    state = session.get()
    assert state.status == "active" and 0 < state.idle_remaining_seconds <= 600
    assert state.last_run_at >= state.created_at
    (listed,) = sandbox.isolation.list()
    assert (listed.session_id, listed.status) == (session.session_id, "active")

    again = sandbox.isolation.attach(session.session_id)
    assert again.info.workspace.mode == "overlay" and again.info.idle_timeout_seconds == 600
    assert texts(again.run("cat old")) == ["new"]
    session.delete()
    assert sandbox.isolation.list() == []
    with pytest.raises(SandboxApiException) as refusal:
        again.get()
    assert refusal.value.status_code == 404


def test_the_shell_of_a_session_remembers(sandbox):
    with sandbox.isolation.session(wish()) as session:
        session.run("cd /usr; export A=1; f() { echo f:$1; }")
        assert texts(session.run("pwd; echo $A; f x")) == ["/usr", "1", "f:x"]
        once = session.run("echo $B", opts=IsolatedRunOpts(envs={"B": "it's"}))
        assert texts(once) == ["it's"]
        assert texts(session.run("echo [$B]")) == ["[]"]
        late = session.run("sleep 1000", opts=IsolatedRunOpts(timeout_seconds=1))
        assert late.exit_code != 0
        assert texts(session.run("echo alive")) == ["alive"]


def test_code_that_is_run_once_leaves_no_session(sandbox):
    execution = sandbox.isolation.run_once("cat old; id -u", workspace=WORK, workspace_mode="ro")
    assert (texts(execution), execution.exit_code) == (["old", "0"], 0)
    assert sandbox.isolation.list() == []


def test_a_run_in_the_background(sandbox):
    with sandbox.isolation.session(wish("rw")) as session:
        started = session.run_background(
            "echo $A; while ! test -e go; do sleep 0.02; done; echo done; exit 4",
            opts=IsolatedRunOpts(envs={"A": "first"}),
        )
        assert started.session_id == session.session_id
        status = session.run_status(started.run_id)
        assert status.running and status.exit_code is None
        first = wait_for("it prints", lambda: (logs := session.run_logs(started.run_id)).text and logs)
        assert first.text == "first\n"
        sandbox.files.write_file(f"{WORK}/go", "")
        wait_for("it ends", lambda: not session.run_status(started.run_id).running)
        assert session.run_status(started.run_id).exit_code == 4
        rest = session.run_logs(started.run_id, cursor=first.cursor)
        assert (rest.text, rest.cursor) == ("done\n", len("first\ndone\n"))


def test_what_a_session_is_made_of(sandbox):
    sandbox.files.write_file("/data/file", "shared")
    request = CreateIsolatedSessionRequest(
        overlays=[
            IsolatedOverlaySpec(path=WORK, mode="overlay"),
            IsolatedOverlaySpec(path="/data", mode="ro"),
        ],
        profile="balanced",
        binds=[BindMount(source="/data/file", dest="/tmp/bound", readonly=True)],
        extra_writable=["/srv"],
        share_net=False,
        env_passthrough=EnvPassthroughSpec(mode="deny", keys=["EDITOR"]),
        uid=0,
        gid=0,
        uid_mode="setpriv",
    )
    sandbox.commands.run("touch /tmp/bound")
    with sandbox.isolation.session(request) as session:
        assert texts(session.run("cat /tmp/bound; echo; echo $DEPLOY_TOKEN[$EDITOR]")) == [
            "shared",
            "secret[]",
        ]
        assert session.run("touch /data/x").exit_code != 0
        assert session.run("touch /tmp/bound/x /tmp/bound").exit_code != 0
        assert session.run("touch /srv/x && touch x").exit_code == 0
        assert session.info.uid_mode == "setpriv" and session.info.share_net is False
    assert sandbox.files.get_file_info(["/srv/x"])
    with sandbox.isolation.session(wish(profile="strict", uid=1000, gid=1000)) as session:
        assert texts(session.run("id -u; id -g; echo [$DEPLOY_TOKEN]")) == ["1000", "1000", "[]"]


def test_a_kept_layer_is_found_again(sandbox):
    kept = CreateIsolatedSessionRequest(
        overlays=[IsolatedOverlaySpec(path=WORK, mode="overlay", persist=True)]
    )
    with sandbox.isolation.session(kept) as session:
        session.run("echo kept > kept")
    with sandbox.isolation.session(kept) as session:
        assert texts(session.run("ls")) == ["kept", "old"]
    with sandbox.isolation.session(wish()) as session:
        assert texts(session.run("ls")) == ["old"]


def test_the_files_of_a_session_are_those_that_it_sees(sandbox):
    with sandbox.isolation.session(wish()) as session:
        files = session.files
        files.write_file(f"{WORK}/a.txt", "one two one")
        files.write_files([WriteEntry(path=f"{WORK}/d/b.txt", data=b"bytes", mode=600)])
        assert files.read_file(f"{WORK}/a.txt") == "one two one"
        assert files.read_bytes(f"{WORK}/d/b.txt") == b"bytes"
        assert b"".join(files.read_bytes_stream(f"{WORK}/d/b.txt")) == b"bytes"
        assert texts(session.run("cat a.txt; echo")) == ["one two one"]
        info = files.get_file_info([f"{WORK}/d/b.txt"])[f"{WORK}/d/b.txt"]
        assert (info.size, info.mode) == (5, 600)
        replace = ContentReplaceEntry(path=f"{WORK}/a.txt", old_content="one", new_content="1")
        files.replace_contents([replace])
        assert files.read_file(f"{WORK}/a.txt") == "1 two 1"
        back = ContentReplaceEntry(path=f"{WORK}/a.txt", old_content="1", new_content="one")
        (counted,) = files.replace_contents_detailed([back])
        assert counted.replaced_count == 2
        found = {entry.path for entry in files.search(SearchEntry(path=WORK, pattern="*.txt"))}
        assert found == {f"{WORK}/a.txt", f"{WORK}/d/b.txt"}
        names = {entry.path for entry in files.list_directory(DirectoryListEntry(path=WORK))}
        assert names == {f"{WORK}/a.txt", f"{WORK}/d", f"{WORK}/old"}
        files.move_files([MoveEntry(src=f"{WORK}/a.txt", dest=f"{WORK}/c.txt")])
        files.set_permissions([SetPermissionEntry(path=f"{WORK}/c.txt", mode=640)])
        assert texts(session.run("stat -c %a c.txt")) == ["640"]
        files.create_directories([WriteEntry(path=f"{WORK}/e/f", mode=755)])
        files.delete_directories([f"{WORK}/e"])
        files.delete_files([f"{WORK}/c.txt"])
        assert texts(session.run("ls")) == ["d", "old"]
    assert texts(sandbox.commands.run(f"ls {WORK}")) == ["old"]


@pytest.mark.parametrize(
    "request_body",
    [
        CreateIsolatedSessionRequest(),
        CreateIsolatedSessionRequest(workspace=IsolatedWorkspaceSpec(path="relative")),
        CreateIsolatedSessionRequest(workspace=IsolatedWorkspaceSpec(path="/none")),
        CreateIsolatedSessionRequest(workspace=IsolatedWorkspaceSpec(path="/usr", mode="best")),
        CreateIsolatedSessionRequest(
            overlays=[IsolatedOverlaySpec(path="/usr", mode="ro", persist=True)]
        ),
    ],
)
def test_what_cannot_be_is_refused(sandbox, request_body):
    with pytest.raises(SandboxApiException) as refusal:
        sandbox.isolation.create(request_body)
    assert refusal.value.status_code == 400


def test_the_asynchronous_client_does_the_same(create, async_connection):
    made = create()
    made.files.write_file(f"{WORK}/old", "old\n")

    async def story() -> None:
        sandbox = await Sandbox.connect(made.id, connection_config=async_connection)
        isolation = sandbox.isolation
        assert (await isolation.capabilities()).available
        async with isolation.session(wish()) as session:
            assert texts(await session.run("cat old; echo new > old")) == ["old"]
            assert await session.files.read_file(f"{WORK}/old") == "new\n"
            await session.files.write_file(f"{WORK}/x", "x")
            assert texts(await session.run("ls")) == ["old", "x"]
            assert (await session.get()).status == "active"
            assert [one.session_id for one in await isolation.list()] == [session.session_id]
            again = await isolation.attach(session.session_id)
            started = await again.run_background("echo background")
            while (await again.run_status(started.run_id)).running:
                await asyncio.sleep(0.02)
            assert (await again.run_logs(started.run_id)).text == "background\n"
        once = await isolation.run_once("cat old", workspace=WORK, workspace_mode="ro")
        assert texts(once) == ["old"]
        await sandbox.close()

    asyncio.run(story())
