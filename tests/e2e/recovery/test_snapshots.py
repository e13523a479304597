"""A server that is killed while it takes snapshots loses none that it spoke of, and leaves nothing."""

from __future__ import annotations

import pathlib
import random
import threading
from collections.abc import Iterator
from datetime import timedelta

import pytest
from opensandbox import SandboxSync
from opensandbox.config import ConnectionConfigSync
from served import Server, serving, wait_for
from traces import Traces

ROUNDS = 6


@pytest.fixture
def server() -> Iterator[Server]:
    with serving() as server:
        yield server


def connection(server: Server) -> ConnectionConfigSync:
    return ConnectionConfigSync(domain=server.domain, api_key=server.api_key)


def answers(server: Server, sandbox: str, word: str) -> bool:
    again = SandboxSync.connect(sandbox, connection_config=connection(server))
    return [line.text for line in again.commands.run(f"echo {word}").logs.stdout] == [word]


def snapshots(server: Server) -> dict[str, str]:
    items = server.call("GET", "/v1/snapshots?pageSize=200").json()["items"]
    return {item["id"]: item["status"]["state"] for item in items}


def test_a_server_killed_while_it_keeps_files_leaves_sandboxes_that_go_on(server):
    traces = Traces(server)
    sandbox = SandboxSync.create(
        "host", timeout=timedelta(minutes=10), connection_config=connection(server)
    )
    # Enough that the copy takes a while.
    sandbox.commands.run("for i in $(seq 3000); do head -c 9000 /dev/zero > /srv/$i; done")
    promised: set[str] = set()
    unfinished = server.data_dir / "native/unfinished"
    moved = server.data_dir / "native/sandboxes" / sandbox.id / "still"
    interrupted = 0
    for round in range(ROUNDS):

        def ask() -> None:
            try:
                reply = server.call("POST", f"/v1/sandboxes/{sandbox.id}/snapshots")
            except OSError:
                return
            if reply.status == 202 and reply.json()["status"]["state"] == "Ready":
                promised.add(reply.json()["id"])

        asking = threading.Thread(target=ask)
        asking.start()
        if round % 2:
            wait_for("it stands still", lambda: moved.exists() or not asking.is_alive())
        else:
            asking.join(random.uniform(0, 0.1))
        server.kill()
        interrupted += moved.exists()
        asking.join()
        server.start()
        assert answers(server, sandbox.id, f"word{round}")
        assert not moved.exists()
        states = snapshots(server)
        assert all(states.get(id) == "Ready" for id in promised), (promised, states)
        assert "Creating" not in states.values()
        wait_for("nothing is unfinished", lambda: not list(unfinished.iterdir()))
    assert interrupted > 0, "no kill came while the sandbox stood still"

    for id, state in snapshots(server).items():
        if state == "Ready":
            restored = SandboxSync.create(snapshot_id=id, connection_config=connection(server))
            counted = restored.commands.run("ls /srv | wc -l; cat /srv/* | wc -c").logs.stdout
            assert [line.text for line in counted] == ["3000", "27000000"]
            restored.kill()
        assert server.call("DELETE", f"/v1/snapshots/{id}").status == 204
    kept = server.data_dir / "native/snapshots"
    wait_for("the files are gone", lambda: not list(pathlib.Path(kept).iterdir()))
    traces.record()
    sandbox.kill()
    wait_for("nothing is left", lambda: not traces.left())
