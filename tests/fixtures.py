"""Fixtures that several suites import: sandboxes, and a server whose whole world is a small Internet."""

from __future__ import annotations

import os
import pathlib
import tempfile
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any

import pytest
from internet import Internet, inside, internet
from opensandbox import SandboxSync
from opensandbox.config import ConnectionConfigSync
from opensandbox.models.sandboxes import NetworkPolicy, NetworkRule
from served import Server, serving


@pytest.fixture
def create(server: Server) -> Iterator[Callable[..., SandboxSync]]:
    """Makes sandboxes, and removes those that the test left."""
    made: list[str] = []

    def create(**options: Any) -> SandboxSync:
        options.setdefault("timeout", timedelta(minutes=10))
        connection = ConnectionConfigSync(domain=server.domain, api_key=server.api_key)
        image = None if "snapshot_id" in options else "host"
        sandbox = SandboxSync.create(image, connection_config=connection, **options)
        made.append(sandbox.id)
        return sandbox

    yield create
    for sandbox in set(made) & set(server.ids()):
        server.call("DELETE", f"/v1/sandboxes/{sandbox}")


@pytest.fixture(scope="session")
def world() -> Iterator[Internet]:
    assert os.geteuid() == 0, "network namespaces need root"
    with tempfile.TemporaryDirectory() as place, internet(pathlib.Path(place)) as made:
        yield made


@pytest.fixture(scope="session", name="server")
def server_at_home(world: Internet) -> Iterator[Server]:
    """A server in the small Internet."""
    with inside(world.home), serving("--config", str(world.config)) as server:
        yield server


@pytest.fixture
def policy(create: Callable[..., SandboxSync]) -> Callable[..., SandboxSync]:
    """Makes sandboxes that reach what they are given, and nothing else."""

    def make(*targets: str, default: str = "deny", deny: tuple[str, ...] = ()) -> SandboxSync:
        rules = [NetworkRule(action="deny", target=target) for target in deny]
        rules += [NetworkRule(action="allow", target=target) for target in targets]
        return create(network_policy=NetworkPolicy(defaultAction=default, egress=rules))

    return make


@pytest.fixture
def log(server: Server) -> Callable[[SandboxSync], list[dict[str, Any]]]:
    """What was decided about a sandbox of late."""

    def log(sandbox: SandboxSync) -> list[dict[str, Any]]:
        answer = server.call("GET", f"/v1/sandboxes/{sandbox.id}/egress/log")
        assert answer.status == 200, answer
        return answer.json()["decisions"]

    return log
