"""A server that is killed at any moment loses nothing and leaves nothing.

These tests look at the host: processes, mounts, cgroups, namespaces and directories. They need
root, as the native runtime does here.
"""

from __future__ import annotations

import contextlib
import os
import pathlib
import signal
import subprocess
import threading
import time
from collections.abc import Iterator
from datetime import timedelta

import pytest
from opensandbox import SandboxSync
from opensandbox.config import ConnectionConfigSync
from opensandbox.exceptions import SandboxApiException
from opensandbox.models.filesystem import WriteEntry
from served import Server, osb, serving, wait_for
from traces import Traces


@pytest.fixture
def server() -> Iterator[Server]:
    assert os.geteuid() == 0, "the native runtime needs root here"
    with serving() as server:
        yield server


@pytest.fixture
def traces(server: Server) -> Traces:
    return Traces(server)


def connect(server: Server, sandbox: str) -> SandboxSync:
    return SandboxSync.connect(sandbox, connection_config=connection(server))


def connection(server: Server) -> ConnectionConfigSync:
    return ConnectionConfigSync(domain=server.domain, api_key=server.api_key)


def create(server: Server, **options) -> SandboxSync:
    options.setdefault("timeout", timedelta(minutes=10))
    return SandboxSync.create("host", connection_config=connection(server), **options)


def test_sandboxes_outlive_a_killed_server_and_leave_nothing_when_deleted(server, traces):
    sandboxes = [create(server, metadata={"n": str(n)}) for n in range(3)]
    for number, sandbox in enumerate(sandboxes):
        sandbox.files.write_files([WriteEntry(path="/tmp/kept", data=f"file {number}")])
        sandbox.commands.run(f"sleep {7000 + number} & echo $! > /tmp/pid")

    server.kill()
    traces.all_there(len(sandboxes))
    server.start()

    assert server.ids() == sorted(sandbox.id for sandbox in sandboxes)
    traces.all_there(len(sandboxes))
    for number, old in enumerate(sandboxes):
        with connect(server, old.id) as sandbox:
            info = sandbox.get_info()
            assert info.status.state == "Running"
            assert info.metadata == {"n": str(number)}
            assert sandbox.files.read_file("/tmp/kept") == f"file {number}"
            execution = sandbox.commands.run("kill -0 $(cat /tmp/pid) && echo alive")
            assert [line.text for line in execution.logs.stdout] == ["alive"]
            sandbox.kill()

    assert server.ids() == []
    traces.all_gone()


def test_what_expired_while_the_server_was_away_is_gone(server, traces):
    mortal = create(server, timeout=timedelta(seconds=60))
    lasting = create(server)
    soon = mortal.renew(timedelta(seconds=2)).expires_at

    server.kill()
    traces.all_there(2)
    wait_for("the expiry has passed", lambda: time.time() > soon.timestamp())
    server.start()

    wait_for("the expired one is gone", lambda: server.ids() == [lasting.id])
    with pytest.raises(SandboxApiException) as raised:
        mortal.get_info()
    assert raised.value.status_code == 404
    execution = lasting.commands.run("echo here")
    assert [line.text for line in execution.logs.stdout] == ["here"]

    lasting.kill()
    traces.all_gone()


def test_a_sandbox_expires_on_time_and_leaves_nothing(server, traces):
    sandbox = create(server)
    traces.all_there(1)
    sandbox.renew(timedelta(seconds=1))
    wait_for("it is gone", lambda: server.ids() == [], 5)
    traces.all_gone()


def test_a_sandbox_whose_processes_were_killed_from_outside_leaves_nothing(server, traces):
    sandbox = create(server)
    server.kill()
    traces.all_there(1)
    for process in traces.processes():
        # With the first process all others of its namespace end.
        with contextlib.suppress(ProcessLookupError):
            os.kill(int(process), signal.SIGKILL)
    server.start()

    wait_for("it is known to have failed", lambda: state(server, sandbox.id) == "Failed")
    sandbox.kill()
    assert server.ids() == []
    traces.all_gone()


BODY = {
    "image": {"uri": "host"},
    "entrypoint": ["sleep", "infinity"],
    "resourceLimits": {"cpu": "1", "memory": "256Mi"},
    "timeout": 600,
}


# The same with a file system of its own.
LIMITED = BODY | {"resourceLimits": {"cpu": "1", "memory": "256Mi", "disk": "64Mi"}}


def spawners(server: Server) -> list[int]:
    """The helper processes of this server, and whatever they left behind."""
    assert server.process is not None
    found = []
    for process in filter(str.isdigit, os.listdir("/proc")):
        with contextlib.suppress(OSError):
            words = pathlib.Path(f"/proc/{process}/cmdline").read_bytes().split(b"\0")
            if b"__spawner" in words and os.readlink(f"/proc/{process}/exe") == osb():
                found.append(int(process))
    return found


def test_a_server_whose_helper_is_killed_again_and_again_goes_on(server, traces):
    ending = threading.Event()

    def ask_on_and_on() -> None:
        while not ending.is_set():
            made = server.call("POST", "/v1/sandboxes", LIMITED)
            if made.status == 202:
                server.call("DELETE", f"/v1/sandboxes/{made.json()['id']}")

    callers = [threading.Thread(target=ask_on_and_on) for _ in range(3)]
    for caller in callers:
        caller.start()
    for _ in range(25):
        helpers = wait_for("there is a helper", lambda: spawners(server))
        # Not a wait for something: the blow should fall at any moment of its work.
        time.sleep(0.02)
        for helper in helpers:
            with contextlib.suppress(ProcessLookupError):
                os.kill(helper, signal.SIGKILL)
    ending.set()
    for caller in callers:
        caller.join()

    sandbox = create(server)
    traces.all_there(1)
    assert sandbox.commands.run("true").exit_code == 0
    sandbox.kill()
    wait_for("nothing is listed", lambda: server.ids() == [])
    traces.all_gone()
    wait_for("one helper is left", lambda: len(spawners(server)) <= 1)


def test_killed_again_and_again_in_the_middle_of_work(server, traces):
    """Whatever was half made when the server died is whole or gone afterwards."""

    def ask_many() -> None:
        for number in range(12):
            try:
                body = LIMITED if number % 3 == 0 else BODY
                made = server.call("POST", "/v1/sandboxes", body, timeout=5)
                if number % 2:
                    server.call("DELETE", f"/v1/sandboxes/{made.json()['id']}", timeout=5)
            except (OSError, ValueError, KeyError):
                return  # the server was killed under this request, which is the point

    for delay in (0.0, 0.01, 0.03, 0.05, 0.1, 0.2):
        callers = [threading.Thread(target=ask_many) for _ in range(4)]
        for caller in callers:
            caller.start()
        # Not a wait for something, but the moment at which the blow falls.
        time.sleep(delay)
        server.kill()
        traces.record()
        for caller in callers:
            caller.join()
        server.start()
    assert traces.ids, "sandboxes were being made when the server was killed"

    wait_for("all are running", lambda: {state(server, id) for id in server.ids()} <= {"Running"})
    listed = set(server.ids())
    wait_for(
        "the directories are those of the sandboxes that are listed",
        lambda: {path.name for path in traces.directories()} == listed,
    )
    for id in listed:
        with connect(server, id) as sandbox:
            assert sandbox.commands.run("true").exit_code == 0
            sandbox.kill()
    traces.all_gone()


def state(server: Server, sandbox: str) -> str:
    answer = server.call("GET", f"/v1/sandboxes/{sandbox}")
    return "gone" if answer.status == 404 else answer.json()["status"]["state"]


def test_a_server_that_cannot_start_says_why_and_one_that_cannot_listen_leaves_nothing(server, tmp_path):
    def start(*options: str) -> str:
        command = [osb(), "server", "--data-dir", str(tmp_path / "data"), *options]
        ended = subprocess.run(command, capture_output=True, text=True, timeout=20, check=False)
        assert ended.returncode == 1, ended
        return ended.stderr

    assert "another program listens there" in start("--listen", server.domain)
    assert not (tmp_path / "data").exists()
    config = tmp_path / "osb.toml"
    config.write_text('[[pool]]\nimage = "No Such Image"\nsize = 1\n')
    said = start("--listen", "127.0.0.1:0", "--config", str(config))
    assert "pool" in said and "No Such Image" in said and "use host" in said, said
