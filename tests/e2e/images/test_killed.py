"""A server that is killed in the middle of work on images loses nothing and leaves nothing."""

from __future__ import annotations

import contextlib
import random
import threading
import time

import pytest
from opensandbox import SandboxSync
from pictures import archive, noise
from registry import Line
from served import Server, wait_for
from store import Store


def begin(server: Server, image: str) -> threading.Thread:
    """Asks for a sandbox, and does not care for the answer."""
    body = {"image": {"uri": image}, "resourceLimits": {}, "timeout": 600}

    def ask() -> None:
        with contextlib.suppress(Exception):
            server.call("POST", "/v1/sandboxes", body, timeout=60)

    asking = threading.Thread(target=ask, daemon=True)
    asking.start()
    return asking


def test_a_pull_that_is_killed_goes_on_where_it_was(server: Server, slow: Line, connection):
    store = Store(server)
    begin(server, f"{slow.name}/large:1")
    wait_for("a part of the large layer", lambda: store.arrived() > 1_000_000, 60)
    server.kill()
    arrived = store.arrived()
    server.start()
    # Nobody was told of the sandbox, so there is none; and what has arrived is still there.
    assert server.ids() == []
    assert store.images() == []
    assert store.arrived() == arrived
    assert store.count("unfinished") == 0

    slow.open()
    with SandboxSync.create(f"{slow.name}/large:1", connection_config=connection) as sandbox:
        execution = sandbox.commands.run("ls /large")
        assert [line.text for line in execution.logs.stdout] == ["/large"]
        sandbox.kill()
    answer = server.call("DELETE", f"/v1/images?name={slow.name}/large:1")
    assert answer.status == 204, answer
    wait_for("an empty store", store.is_empty, 120)


def test_a_collection_that_is_killed_is_finished_by_the_next(server: Server, connection):
    store = Store(server)
    random.seed(7)
    kept = archive({f"kept/{n}": noise(1000) for n in range(50)})
    answer = server.call("POST", "/v1/images/import?name=kept:1", kept)
    assert answer.status == 200, answer
    for round in range(4):
        for number in range(4):
            files = {f"d{n}/f": noise(200) for n in range(600)}
            answer = server.call(
                "POST", f"/v1/images/import?name=gone:{number}", archive(files), timeout=60
            )
            assert answer.status == 200, answer
        # The last one that loses its name is collected while the server is killed.
        for number in range(4):
            server.call("DELETE", f"/v1/images?name=gone:{number}")
        time.sleep(random.random() * 0.2)
        server.kill()
        server.start()
        assert store.names() == ["kept:1"], f"round {round}"
    store.collect()
    assert [image["names"] for image in store.images()] == [["kept:1"]]
    assert (store.count("layers"), len(store.blobs())) == (1, 3)
    assert (store.count("ingest"), store.count("unfinished")) == (0, 0)
    assert server.call("GET", "/v1/images/export?name=kept:1").status == 200


@pytest.mark.parametrize("moment", [0.0, 0.05, 0.2])
def test_an_import_that_is_killed_leaves_nothing(server: Server, moment: float):
    store = Store(server)
    content = archive({f"d{n}/f": noise(2000) for n in range(2000)})

    def send() -> None:
        with contextlib.suppress(Exception):
            server.call("POST", "/v1/images/import?name=mine:1", content, timeout=60)

    sending = threading.Thread(target=send, daemon=True)
    sending.start()
    wait_for("a draft", lambda: store.count("unfinished") > 0)
    time.sleep(moment)
    server.kill()
    sending.join(30)
    server.start()
    whole = store.names()
    assert whole in ([], ["mine:1"])
    assert store.count("unfinished") == 0
    store.collect()
    assert store.is_empty() or whole
