"""What programs use up inside a sandbox, execd does without: it answers, then and afterwards."""

from __future__ import annotations

import threading
from datetime import timedelta

import pytest
from opensandbox import SandboxSync
from opensandbox.exceptions import SandboxException
from opensandbox.models.execd import RunCommandOpts
from served import wait_for

# Forks until it may not, and again as soon as it may.
FORK_BOMB = """
import os, time
while not os.path.exists("/tmp/stop"):
    try:
        os.fork()
    except OSError:
        time.sleep(0.05)
"""

# Leaves ten thousand processes to the first one, all of which have ended.
ORPHANS = """
import os
for _ in range(10000):
    child = os.fork()
    if child == 0:
        if os.fork() == 0:
            os._exit(0)
        os._exit(0)
    os.waitpid(child, 0)
"""

# Opens as many descriptors as one process may have, in several processes.
DESCRIPTORS = """
import os, signal
for _ in range(8):
    if os.fork() == 0:
        kept = []
        try:
            while True:
                kept.append(os.open("/dev/null", os.O_RDONLY))
        except OSError as error:
            os.write(1, f"{error.strerror}\\n".encode())
        signal.pause()
for _ in range(8):
    os.wait()
"""


def lines(sandbox: SandboxSync, command: str) -> list[str]:
    execution = sandbox.commands.run(command)
    return [line.text for line in execution.logs.stdout]


def answers(sandbox: SandboxSync) -> None:
    """All that needs no new process."""
    assert sandbox.is_healthy()
    sandbox.files.write_file("/tmp/answers", "yes")
    assert sandbox.files.read_file("/tmp/answers") == "yes"
    used = sandbox.get_metrics()
    assert 0 < used.memory_used_in_mib <= used.memory_total_in_mib


def run_beside(sandbox: SandboxSync, script: str, seconds: int) -> threading.Thread:
    """Runs a Python script in the sandbox, which ends it and all its processes after a while."""
    sandbox.files.write_file("/tmp/script.py", script)
    opts = RunCommandOpts(timeout=timedelta(seconds=seconds))
    thread = threading.Thread(
        target=lambda: sandbox.commands.run("exec python3 /tmp/script.py", opts=opts)
    )
    thread.start()
    return thread


@pytest.fixture
def sandbox(create) -> SandboxSync:
    return create(resource={"cpu": "1", "memory": "256Mi"})


def test_a_fork_bomb_leaves_execd_answering(create):
    # So much memory that it is the number of processes that ends it.
    sandbox = create(resource={"cpu": "1", "memory": "4Gi"})
    bomb = run_beside(sandbox, FORK_BOMB, seconds=120)

    def refused():
        return sandbox.commands.run("/bin/true").error

    error = wait_for("there is no room for another process", refused, seconds=60)
    assert "esource temporarily unavailable" in error.value + "".join(error.traceback), error
    for _ in range(5):
        answers(sandbox)
    sandbox.files.write_file("/tmp/stop", "")
    bomb.join()
    assert wait_for("commands run again", lambda: lines(sandbox, "echo alive")) == ["alive"]


def test_a_busy_sandbox_can_be_paused(sandbox, server):
    # More processes than it has processors: each can stop only when it is its turn.
    spin = "while :; do :; done > /dev/null 2>&1 &"
    assert lines(sandbox, f"for i in $(seq 32); do {spin} done; echo begun") == ["begun"]
    for verb, state in [("pause", "Paused"), ("resume", "Running")] * 2:
        answer = server.call("POST", f"/v1/sandboxes/{sandbox.id}/{verb}")
        assert answer.status == 202, answer
        assert sandbox.get_info().status.state == state


def test_a_program_that_takes_all_memory_is_killed_and_nothing_else(sandbox):
    for _ in range(3):
        execution = sandbox.commands.run("exec python3 -c 'bytearray(1 << 30)'")
        assert execution.exit_code not in (0, None)
        assert execution.error.traceback == ["signal: killed"], execution.error
        answers(sandbox)
    assert lines(sandbox, "echo alive") == ["alive"]
    status = sandbox.get_info().status
    assert status.state == "Running"
    assert "processes were ended for lack of memory" in status.message, status


def test_an_entrypoint_that_takes_all_memory_is_told_as_such(create):
    entrypoint = ["sh", "-c", "while [ ! -e /go ]; do sleep 0.05; done; exec tail /dev/zero"]
    sandbox = create(resource={"cpu": "1", "memory": "64Mi"}, entrypoint=entrypoint)
    sandbox.files.write_file("/go", "")
    wait_for("it has ended", lambda: sandbox.get_info().status.state == "Failed")
    assert sandbox.get_info().status.reason == "OUT_OF_MEMORY"


def test_lack_of_memory_ends_whatever_was_started_before_execd(sandbox):
    own = int(*lines(sandbox, "cat /proc/1/oom_score_adj"))
    # It is said a moment after the program has begun, sooner than anybody could use up memory.
    wait = "until [ $(cat /proc/$$/oom_score_adj) != $(cat /proc/1/oom_score_adj) ]; do sleep 0.1; done"
    opts = RunCommandOpts(timeout=timedelta(seconds=20))
    execution = sandbox.commands.run(f"{wait}; cat /proc/self/oom_score_adj", opts=opts)
    assert int(execution.logs.stdout[0].text) == own + 500


def test_a_full_place_is_told_and_others_go_on(sandbox):
    execution = sandbox.commands.run("head -c 1G /dev/zero > /dev/shm/full")
    assert execution.exit_code == 1
    with pytest.raises(SandboxException, match="(?i)space"):
        sandbox.files.write_file("/dev/shm/more", "x" * 100_000)
    answers(sandbox)
    assert lines(sandbox, "rm /dev/shm/full; echo alive") == ["alive"]
    sandbox.files.write_file("/dev/shm/more", "x" * 100_000)


def test_descriptors_that_others_have_are_not_execds(sandbox):
    hungry = run_beside(sandbox, DESCRIPTORS, seconds=5)
    while hungry.is_alive():
        answers(sandbox)
    assert lines(sandbox, "echo alive") == ["alive"]


def test_all_that_programs_leave_behind_is_reaped(sandbox):
    sandbox.files.write_file("/tmp/orphans.py", ORPHANS)
    assert sandbox.commands.run("python3 /tmp/orphans.py").exit_code == 0
    # A file name that does not match is no process: the shell looks at them all at one time.
    zombies = "cat /proc/[0-9]*/status 2>/dev/null | grep -c '^State:.Z'"
    wait_for("no process waits to be reaped", lambda: lines(sandbox, zombies) == ["0"])
    answers(sandbox)


def test_metrics_are_those_of_the_sandbox(sandbox, create):
    used = sandbox.get_metrics()
    assert (used.cpu_count, used.memory_total_in_mib) == (1, 256)
    assert used.memory_used_in_mib < 64
    other = create(resource={"cpu": "500m", "memory": "64Mi"})
    sandbox.commands.run("timeout 1 sh -c 'while :; do :; done'")
    busy, idle = sandbox.get_metrics(), other.get_metrics()
    assert (idle.cpu_count, idle.memory_total_in_mib) == (1, 64)
    assert 0 < busy.cpu_used_percentage <= 100, busy
    # Where processors are slow, its own start is all that the other has been busy with.
    wait_for(
        "the other is idle",
        lambda: other.get_metrics().cpu_used_percentage < busy.cpu_used_percentage,
    )
