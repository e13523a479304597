"""What a sandbox writes stays within its limit, and all else in it goes on when it is full."""

from __future__ import annotations

import os
import pathlib
import re

import pytest
from opensandbox import SandboxSync
from opensandbox.exceptions import SandboxException
from served import Server, wait_for

MIB = 1 << 20
LIMIT = 64 * MIB
# What a file system of its own has beside the files: tables, and what it sets aside.
OVERHEAD = 8 * MIB

FULL = "(?i)no space left|quota exceeded"

# Makes empty files until it may not, and says why.
MANY_FILES = """
import os
os.mkdir("/many")
try:
    for number in range(10**9):
        os.mknod(f"/many/{number}")
except OSError as error:
    print(number, error.strerror)
"""


def lines(sandbox: SandboxSync, command: str) -> list[str]:
    execution = sandbox.commands.run(command)
    return [line.text for line in execution.logs.stdout]


def error_of(sandbox: SandboxSync, command: str) -> str:
    execution = sandbox.commands.run(command)
    assert execution.exit_code not in (0, None), execution
    return "\n".join(line.text for line in execution.logs.stderr)


def room(sandbox: SandboxSync) -> int:
    return int(lines(sandbox, "df -B1 --output=avail /")[1])


def answers(sandbox: SandboxSync) -> None:
    """All that writes nothing but to memory."""
    assert sandbox.is_healthy()
    assert lines(sandbox, "echo alive") == ["alive"]
    sandbox.files.write_file("/dev/shm/answers", "yes")
    assert sandbox.files.read_file("/dev/shm/answers") == "yes"


def directory(server: Server, sandbox: SandboxSync) -> pathlib.Path:
    return server.data_dir / "native" / "sandboxes" / sandbox.id


def taken(server: Server, sandbox: SandboxSync) -> int:
    """What the sandbox takes of the host's disk."""
    names = [path for path in directory(server, sandbox).rglob("*")]
    return sum(path.lstat().st_blocks * 512 for path in names)


def has_device(sandbox: SandboxSync) -> bool:
    """Whether a file of this sandbox is a block device."""
    for path in pathlib.Path("/sys/block").glob("loop*/loop/backing_file"):
        try:
            if sandbox.id in path.read_text():
                return True
        except OSError:
            continue
    return False


@pytest.fixture
def sandbox(create) -> SandboxSync:
    return create(resource={"cpu": "1", "memory": "256Mi", "disk": "64Mi"})


def test_a_sandbox_sees_its_limit_and_may_use_all_of_it(sandbox):
    assert LIMIT <= room(sandbox) <= LIMIT + OVERHEAD
    assert sandbox.commands.run("head -c 62M /dev/zero > /large").exit_code == 0


@pytest.mark.parametrize("key", ["storage", "ephemeral-storage"])
def test_a_limit_has_other_names(create, key):
    sandbox = create(resource={"cpu": "1", "memory": "256Mi", key: "32Mi"})
    assert room(sandbox) <= 32 * MIB + OVERHEAD


def test_a_limit_that_cannot_be_kept_is_refused(server):
    for text in ["17Ti", "much", "0"]:
        body = {"image": {"uri": "host"}, "resourceLimits": {"disk": text}, "entrypoint": ["true"]}
        answer = server.call("POST", "/v1/sandboxes", body)
        assert answer.status == 400 and "disk" in answer.json()["message"], answer


def test_a_full_disk_is_told_and_everything_else_goes_on(sandbox, server):
    assert re.search(FULL, error_of(sandbox, "head -c 1G /dev/zero > /full"))
    with pytest.raises(SandboxException, match="(?i)space|quota"):
        sandbox.files.write_file("/more", "x" * 8 * MIB)
    answers(sandbox)
    assert sandbox.get_info().status.state == "Running"
    os.sync()
    assert taken(server, sandbox) <= LIMIT + OVERHEAD
    sandbox.commands.run("rm /full; sync")
    sandbox.files.write_file("/more", "x" * 8 * MIB)
    # What is deleted inside is free again outside.
    wait_for("blocks are given back", lambda: taken(server, sandbox) <= LIMIT / 2)


def test_what_is_written_is_told(sandbox, server):
    def used():
        answer = server.call("GET", f"/v1/sandboxes/{sandbox.id}/usage")
        assert answer.status == 200, answer
        return answer.json()

    before = used()
    assert before["memoryBytes"] > 0 and before["processes"] >= 2, before
    sandbox.commands.run("head -c 20M /dev/zero > /large")
    after = used()
    assert 20 * MIB <= after["diskBytes"] - before["diskBytes"] <= 21 * MIB, (before, after)
    assert after["cpuTimeMs"] >= before["cpuTimeMs"]
    assert after["memoryPeakBytes"] >= after["memoryBytes"]
    sandbox.pause()
    assert used()["diskBytes"] == after["diskBytes"]


def test_a_sandbox_has_so_many_files_and_no_more(sandbox):
    sandbox.files.write_file("/dev/shm/many.py", MANY_FILES)
    count, reason = lines(sandbox, "python3 /dev/shm/many.py")[0].split(" ", 1)
    assert 1000 < int(count) < 10_000 and reason, reason
    answers(sandbox)
    lines(sandbox, "rm -r /many")
    sandbox.files.write_file("/more", "x")


def test_a_limit_and_its_files_survive_the_server_and_a_pause(sandbox, server):
    sandbox.files.write_file("/kept", "before")
    server.kill()
    server.start()
    assert sandbox.files.read_file("/kept") == "before"
    sandbox.pause()
    sandbox = sandbox.resume(sandbox.id, connection_config=sandbox.connection_config)
    assert sandbox.files.read_file("/kept") == "before"
    assert room(sandbox) <= LIMIT + OVERHEAD
    assert error_of(sandbox, "head -c 1G /dev/zero > /full")
    answers(sandbox)


def test_nothing_is_left_of_a_limited_sandbox(sandbox, server):
    sandbox.commands.run("head -c 1G /dev/zero > /full")
    place = directory(server, sandbox)
    assert place.exists()
    # Its file system has no place in the host.
    assert sandbox.id not in pathlib.Path("/proc/self/mountinfo").read_text()
    if (place / "disk.img").exists():
        assert has_device(sandbox)
    sandbox.kill()
    removed = server.data_dir / "native" / "removed" / sandbox.id
    wait_for("its files are deleted", lambda: not place.exists() and not removed.exists())
    wait_for("its device is gone", lambda: not has_device(sandbox))


def test_an_ended_sandbox_keeps_its_files_and_no_device(create, server):
    sandbox = create(
        resource={"cpu": "1", "memory": "256Mi", "disk": "32Mi"},
        entrypoint=["sh", "-c", "while [ ! -e /end ]; do sleep 0.05; done; exit 3"],
    )
    sandbox.files.write_file("/end", "")
    wait_for("it has ended", lambda: sandbox.get_info().status.state == "Failed")
    wait_for("its device is gone", lambda: not has_device(sandbox))
    server.kill()
    server.start()
    assert sandbox.get_info().status.state == "Failed"
    assert directory(server, sandbox).exists()
