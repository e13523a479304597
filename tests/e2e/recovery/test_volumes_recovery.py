"""Volumes when the server is killed: nothing in them is lost, and what was to go goes."""

from __future__ import annotations

import contextlib
import http.client
import os
import pathlib
import threading
import time
from collections.abc import Iterator
from datetime import timedelta

import pytest
from opensandbox import SandboxSync
from opensandbox.config import ConnectionConfigSync
from opensandbox.models.sandboxes import PVC, Volume
from served import Server, serving, wait_for


@pytest.fixture
def server() -> Iterator[Server]:
    assert os.geteuid() == 0, "the native runtime needs root here"
    with serving() as server:
        yield server


def connection(server: Server) -> ConnectionConfigSync:
    return ConnectionConfigSync(domain=server.domain, api_key=server.api_key)


def create(server: Server, claim: str, *, last: bool = False) -> SandboxSync:
    pvc = PVC(claim_name=claim, delete_on_sandbox_termination=last)
    volume = Volume(name="data", pvc=pvc, mount_path="/data")
    return SandboxSync.create(
        "host", connection_config=connection(server), timeout=timedelta(minutes=10), volumes=[volume]
    )


def volumes(server: Server) -> pathlib.Path:
    return server.data_dir / "native" / "volumes"


def test_a_sandbox_keeps_its_volumes_through_a_killed_server_and_a_pause(server):
    sandbox = create(server, "lasting")
    sandbox.commands.run("echo before > /data/file")
    server.kill()
    server.start()
    again = SandboxSync.connect(sandbox.id, connection_config=connection(server))
    again.pause()
    again = again.resume(sandbox.id, connection_config=connection(server))
    again.commands.run("echo after >> /data/file")
    again.kill()
    assert (volumes(server) / "lasting/data/file").read_text() == "before\nafter\n"


def test_a_volume_that_was_to_go_goes_also_after_a_crash(server):
    first, second = create(server, "brief", last=True), create(server, "brief")
    server.kill()
    server.start()
    first = SandboxSync.connect(first.id, connection_config=connection(server))
    first.kill()
    assert (volumes(server) / "brief").exists(), "another sandbox uses it"
    SandboxSync.connect(second.id, connection_config=connection(server)).kill()
    assert not (volumes(server) / "brief").exists()


def test_what_a_crash_left_of_volumes_is_cleared_and_the_rest_is_kept(server):
    create(server, "kept").kill()
    server.kill()
    unfinished = volumes(server) / ".new-1"
    (unfinished / "data").mkdir(parents=True)
    orphan = volumes(server) / "orphan"
    (orphan / "data").mkdir(parents=True)
    (orphan / "volume.json").write_text('{"ephemeral": true}')
    server.start()
    assert sorted(os.listdir(volumes(server))) == ["kept"]


def test_a_volume_that_is_deleted_while_the_server_is_killed_is_whole_or_gone(server):
    create(server, "large").kill()
    files, removed = volumes(server) / "large" / "data", server.data_dir / "native" / "removed"
    outcomes = set()
    for round in range(12):
        for directory in range(20):
            (files / str(directory)).mkdir(parents=True, exist_ok=True)
            for name in range(50):
                (files / str(directory) / str(name)).touch()
        deleting = threading.Thread(target=delete_quietly, args=(server, "large"))
        deleting.start()
        # From before the request is read to after it is answered.
        time.sleep(round * 0.001)
        server.kill()
        deleting.join()
        server.start()
        wait_for("what was deleted is gone", lambda: not os.listdir(removed))
        listed = [volume["name"] for volume in server.call("GET", "/v1/volumes").json()["items"]]
        outcomes.add(tuple(listed))
        if listed:
            assert listed == ["large"]
            assert sum(len(names) for _, _, names in os.walk(files)) == 1000
        else:
            assert os.listdir(volumes(server)) == []
            create(server, "large").kill()
            assert os.listdir(files) == [], "a new volume has files of an old one"
    assert () in outcomes, "not one delete came to anything"


def delete_quietly(server: Server, name: str) -> None:
    with contextlib.suppress(OSError, http.client.HTTPException):
        server.call("DELETE", f"/v1/volumes/{name}")
