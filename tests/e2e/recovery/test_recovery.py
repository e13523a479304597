"""A server that is killed at any moment loses nothing and leaves nothing.

These tests look at the host: processes, mounts, cgroups, namespaces and directories. They need
root, as the native runtime does here.
"""

from __future__ import annotations

import os
import pathlib
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import timedelta

import pytest
from opensandbox import SandboxSync
from opensandbox.config import ConnectionConfigSync
from opensandbox.exceptions import SandboxApiException
from opensandbox.models.filesystem import WriteEntry
from served import Server, serving, wait_for

CGROUPS = pathlib.Path("/sys/fs/cgroup")
NAMESPACES = ["cgroup", "ipc", "mnt", "net", "pid", "user", "uts"]


@dataclass
class Host:
    """What a sandbox can leave on a host."""

    processes: set[str] = field(default_factory=set)
    mounts: set[str] = field(default_factory=set)
    cgroups: set[str] = field(default_factory=set)
    namespaces: set[str] = field(default_factory=set)
    directories: set[str] = field(default_factory=set)

    def beyond(self, other: Host) -> dict[str, set[str]]:
        """What is here and was not in `other`."""
        kinds = ("processes", "mounts", "cgroups", "namespaces", "directories")
        more = {kind: getattr(self, kind) - getattr(other, kind) for kind in kinds}
        return {kind: found for kind, found in more.items() if found}


def look(server: Server) -> Host:
    """The host now, as far as this server's sandboxes are concerned."""
    host = Host()
    for process in pathlib.Path("/proc").iterdir():
        if not process.name.isdigit():
            continue
        try:
            spaces = {space: os.readlink(process / "ns" / space) for space in NAMESPACES}
            command = (process / "cmdline").read_bytes().replace(b"\0", b" ").decode().strip()
        except (FileNotFoundError, ProcessLookupError, PermissionError):
            continue
        mine = {space: os.readlink(f"/proc/self/ns/{space}") for space in NAMESPACES}
        foreign = {name for space, name in spaces.items() if name != mine[space]}
        if foreign:
            host.processes.add(f"{process.name} {command}")
            host.namespaces |= foreign
        elif "osb" in command.split(" ")[0] and str(server.data_dir) in command:
            host.processes.add(f"{process.name} {command}")
    for line in pathlib.Path("/proc/self/mountinfo").read_text().splitlines():
        if str(server.data_dir) in line:
            host.mounts.add(line.split(" ")[4])
        # A namespace that is kept by a file instead of a process.
        if " - nsfs " in line:
            host.namespaces.add(line.split(" ")[3])
    for hierarchy in (CGROUPS, *CGROUPS.iterdir()):
        ours = hierarchy / "opensandbox"
        if ours.is_dir():
            host.cgroups |= {str(path) for path in ours.rglob("*") if path.is_dir()}
    host.directories |= {str(path) for path in directories(server)}
    return host


def directories(server: Server) -> list[pathlib.Path]:
    """What the runtime keeps on disk for sandboxes, those half removed included."""
    native = server.data_dir / "native"
    found = [*native.glob("*"), *native.glob("*/*")]
    return [path for path in found if path.name[:36].count("-") == 4]


@pytest.fixture
def server() -> Iterator[Server]:
    assert os.geteuid() == 0, "the native runtime needs root here"
    with serving() as server:
        yield server


def connection(server: Server) -> ConnectionConfigSync:
    return ConnectionConfigSync(domain=server.domain, api_key=server.api_key)


def create(server: Server, **options) -> SandboxSync:
    options.setdefault("timeout", timedelta(minutes=10))
    return SandboxSync.create("host", connection_config=connection(server), **options)


def test_sandboxes_outlive_a_killed_server_and_leave_nothing_when_deleted(server: Server):
    before = look(server)
    before.processes = {p for p in before.processes if "__spawner" not in p and "server" not in p}

    sandboxes = [create(server, metadata={"n": str(n)}) for n in range(3)]
    for number, sandbox in enumerate(sandboxes):
        sandbox.files.write_files([WriteEntry(path="/tmp/kept", data=f"file {number}")])
        sandbox.commands.run(f"sleep {7000 + number} & echo $! > /tmp/pid")
    assert look(server).beyond(before).keys() >= {"processes", "namespaces", "directories"}

    server.kill()
    server.start()

    assert server.ids() == sorted(sandbox.id for sandbox in sandboxes)
    for number, old in enumerate(sandboxes):
        with SandboxSync.connect(old.id, connection_config=connection(server)) as sandbox:
            info = sandbox.get_info()
            assert info.status.state == "Running"
            assert info.metadata == {"n": str(number)}
            assert sandbox.files.read_file("/tmp/kept") == f"file {number}"
            execution = sandbox.commands.run("kill -0 $(cat /tmp/pid) && echo alive")
            assert [line.text for line in execution.logs.stdout] == ["alive"]
            sandbox.kill()

    assert server.ids() == []
    nothing_left(server, before)


def test_what_expired_while_the_server_was_away_is_gone(server: Server):
    before = look(server)
    mortal = create(server, timeout=timedelta(seconds=60))
    lasting = create(server)
    soon = mortal.renew(timedelta(seconds=2)).expires_at

    server.kill()
    wait_for("the expiry has passed", lambda: time.time() > soon.timestamp())
    server.start()

    wait_for("the expired one is gone", lambda: server.ids() == [lasting.id])
    with pytest.raises(SandboxApiException) as raised:
        mortal.get_info()
    assert raised.value.status_code == 404
    execution = lasting.commands.run("echo here")
    assert [line.text for line in execution.logs.stdout] == ["here"]

    lasting.kill()
    nothing_left(server, before)


def test_a_sandbox_expires_on_time(server: Server):
    before = look(server)
    sandbox = create(server)
    sandbox.renew(timedelta(seconds=1))
    wait_for("it is gone", lambda: server.ids() == [], 5)
    nothing_left(server, before)


def test_killed_again_and_again_in_the_middle_of_work(server: Server):
    """Whatever was half made when the server died is whole or gone afterwards."""
    import threading

    before = look(server)
    for round_ in range(5):
        body = {
            "image": {"uri": "host"},
            "entrypoint": ["sleep", "infinity"],
            "resourceLimits": {"cpu": "1", "memory": "256Mi"},
            "timeout": 600,
        }

        def ask() -> None:
            try:
                server.call("POST", "/v1/sandboxes", body, timeout=5)
            except (OSError, ValueError):
                return  # the server was killed under this request, which is the point

        def ask_many() -> None:
            for _ in range(20):
                ask()

        callers = [threading.Thread(target=ask_many) for _ in range(4)]
        for caller in callers:
            caller.start()
        wait_for("some exist", lambda: len(directories(server)) > 2 * round_)
        server.kill()
        for caller in callers:
            caller.join()
        server.start()

    def settled() -> bool:
        states = server.call("GET", "/v1/sandboxes?pageSize=200").json()["items"]
        return all(item["status"]["state"] == "Running" for item in states)

    wait_for("every sandbox that is listed runs", settled)
    listed = set(server.ids())
    known = {path.name for path in directories(server)}
    assert known == listed, "the directories are those of the sandboxes that are listed"
    for sandbox in listed:
        with SandboxSync.connect(sandbox, connection_config=connection(server)) as one:
            assert one.commands.run("true").exit_code == 0
            one.kill()
    nothing_left(server, before)


def nothing_left(server: Server, before: Host) -> None:
    """Everything that was made for sandboxes is gone from the host."""

    def left() -> dict[str, set[str]]:
        more = look(server).beyond(before)
        processes = {
            process
            for process in more.pop("processes", set())
            # The server and its helper are no sandboxes; they were started anew.
            if " server " not in process and "__spawner" not in process
        }
        return more | ({"processes": processes} if processes else {})

    try:
        wait_for("nothing is left", lambda: not left(), 10)
    except AssertionError:
        assert left() == {}
        raise
