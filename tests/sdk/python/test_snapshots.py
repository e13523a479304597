"""Snapshots, with every method that both published clients have for them."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any

import pytest
from clients import CALLED, KINDS, Blocking
from opensandbox import Sandbox, SandboxManager, SandboxManagerSync, SandboxSync
from opensandbox.config import ConnectionConfig, ConnectionConfigSync
from opensandbox.exceptions import SandboxApiException
from opensandbox.models.sandboxes import SnapshotFilter
from served import Server, wait_for


class Client:
    """A manager of either kind, and the sandboxes and snapshots that were made with it."""

    def __init__(self, server: Server, kind: str) -> None:
        self.server, self.kind = server, kind
        self.runner = asyncio.Runner() if kind == "async" else None
        config = ConnectionConfig if kind == "async" else ConnectionConfigSync
        self.config = config(domain=server.domain, api_key=server.api_key)
        manager_class = SandboxManager if kind == "async" else SandboxManagerSync
        manager = self.wait(manager_class.create(self.config))
        self.manager = Blocking(kind, "manager", manager, self.wait)
        self.sandboxes: list[str] = []

    def wait(self, result: Any) -> Any:
        return self.runner.run(result) if inspect.isawaitable(result) else result

    def create(self, image: str | None = "host", **options: Any) -> Any:
        sandbox_class = Sandbox if self.kind == "async" else SandboxSync
        options.setdefault("timeout", timedelta(minutes=10))
        sandbox = self.wait(sandbox_class.create(image, connection_config=self.config, **options))
        self.sandboxes.append(sandbox.id)
        return Blocking(self.kind, "sandbox", sandbox, self.wait)

    def restore(self, snapshot: str, **options: Any) -> Any:
        return self.create(None, snapshot_id=snapshot, **options)

    def run(self, sandbox: Any, command: str) -> list[str]:
        execution = self.wait(sandbox.service.commands.run(command))
        assert execution.exit_code == 0, execution
        return [line.text for line in execution.logs.stdout]

    def close(self) -> None:
        for sandbox in set(self.sandboxes) & set(self.server.ids()):
            self.server.call("DELETE", f"/v1/sandboxes/{sandbox}")
        for snapshot in self.manager.list_snapshots(SnapshotFilter()).snapshot_infos:
            self.manager.delete_snapshot(snapshot.id)
        self.wait(self.manager.service.close())
        if self.runner:
            self.runner.close()


@pytest.fixture(params=KINDS)
def client(server: Server, request: pytest.FixtureRequest) -> Iterator[Client]:
    client = Client(server, request.param)
    yield client
    client.close()


def refused(status: int, code: str, call: Callable[[], Any]) -> None:
    with pytest.raises(SandboxApiException) as refusal:
        call()
    assert refusal.value.status_code == status, refusal.value
    assert code in str(refusal.value) or refusal.value.error.code == code, refusal.value


def test_files_come_back_and_nothing_else(client: Client):
    source = client.create(env={"SECRET": "hush"}, metadata={"team": "a"})
    client.run(source, "mkdir -p /srv/data && echo then > /srv/data/file && rm -r /media")
    taken = source.create_snapshot("before")
    assert (taken.status.state, taken.name, taken.sandbox_id) == ("Ready", "before", source.id)
    client.run(source, "echo now > /srv/data/file")

    restored = client.restore(taken.id)
    assert client.run(restored, "cat /srv/data/file; ls -d /media || true") == ["then"]
    assert client.run(restored, "echo ${SECRET-unset}") == ["unset"]
    info = restored.get_info()
    assert info.snapshot_id == taken.id
    assert info.image is None
    assert not info.metadata
    assert info.entrypoint == ["tail", "-f", "/dev/null"]
    assert client.run(source, "cat /srv/data/file") == ["now"]


def test_a_manager_takes_finds_and_deletes_snapshots(client: Client):
    source, other = client.create(), client.create()
    first = client.manager.create_snapshot(source.id)
    second = client.manager.create_snapshot(source.id, name="named")
    third = client.manager.create_snapshot(other.id, name="named")

    def listed(**filters: Any) -> list[str]:
        page = client.manager.list_snapshots(SnapshotFilter(**filters))
        return [snapshot.id for snapshot in page.snapshot_infos]

    assert listed() == [third.id, second.id, first.id]
    assert listed(sandbox_id=source.id) == [second.id, first.id]
    assert listed(name="named", sandbox_id=source.id) == [second.id]
    assert listed(states=["Ready"], page=2, page_size=2) == [first.id]
    assert listed(states=["Failed"]) == []
    found = client.manager.get_snapshot(first.id)
    assert (found.id, found.sandbox_id, found.name) == (first.id, source.id, None)
    assert found.status.state == "Ready"
    assert found.status.last_transition_at is not None

    client.manager.delete_snapshot(first.id)
    assert listed() == [third.id, second.id]
    refused(404, "SNAPSHOT::NOT_FOUND", lambda: client.manager.get_snapshot(first.id))
    refused(404, "SNAPSHOT::NOT_FOUND", lambda: client.manager.delete_snapshot(first.id))
    refused(404, "SNAPSHOT::NOT_FOUND", lambda: client.restore(first.id))


def test_a_snapshot_outlives_its_sandbox_and_sandboxes_their_snapshot(client: Client):
    source = client.create()
    client.run(source, "head -c 3000000 /dev/urandom > /var/big; sha256sum < /var/big > /var/sum")
    snapshot = source.create_snapshot()
    source.kill()
    one, other = client.restore(snapshot.id), client.restore(snapshot.id)
    client.manager.delete_snapshot(snapshot.id)
    client.run(one, "rm /var/big")
    assert client.run(other, "sha256sum < /var/big | cmp - /var/sum && echo same") == ["same"]


def test_snapshots_stand_on_each_other(client: Client):
    sandbox = client.create()
    for step in range(4):
        client.run(sandbox, f"echo {step} >> /srv/steps; touch /srv/{step}; rm -f /srv/{step - 1}")
        snapshot = sandbox.create_snapshot(f"step {step}")
        sandbox.kill()
        sandbox = client.restore(snapshot.id)
    assert client.run(sandbox, "cat /srv/steps; ls /srv") == ["0", "1", "2", "3", "3", "steps"]


def test_a_paused_sandbox_is_kept_as_it_is(client: Client):
    source = client.create()
    client.run(source, "echo then > /srv/file")
    client.manager.pause_sandbox(source.id)
    snapshot = client.manager.create_snapshot(source.id)
    assert source.get_info().status.state == "Paused"
    assert client.run(client.restore(snapshot.id), "cat /srv/file") == ["then"]
    client.manager.resume_sandbox(source.id)
    assert client.run(source, "cat /srv/file") == ["then"]


def test_what_cannot_be_kept_is_refused(client: Client):
    gone = "00000000-0000-4000-8000-000000000000"
    refused(404, "DOCKER::SANDBOX_NOT_FOUND", lambda: client.manager.create_snapshot(gone))
    ended = client.create(entrypoint=["sleep", "0.5"], skip_health_check=True)
    wait_for("it has ended", lambda: ended.get_info().status.state == "Terminated")
    code = "SNAPSHOT::INVALID_SOURCE_STATE"
    refused(409, code, lambda: client.manager.create_snapshot(ended.id))


@pytest.mark.parametrize("kind", KINDS)
def test_no_method_for_snapshots_is_without_a_test(kind: str):
    for who, service in (("sandbox", Sandbox), ("manager", SandboxManager)):
        offered = {name for name in dir(service) if "snapshot" in name and name[0] != "_"}
        assert offered
        assert offered - {method for k, w, method in CALLED if (k, w) == (kind, who)} == set()
