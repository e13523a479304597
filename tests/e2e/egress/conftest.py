"""A server whose whole world is a small Internet in namespaces of its own."""

from __future__ import annotations

import contextlib
import ctypes
import os
import pathlib
import tempfile
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from internet import Internet, internet
from opensandbox import SandboxSync
from served import Server, serving

#: CLONE_NEWNET.
NEW_NETWORK = 0x40000000


@pytest.fixture(scope="session")
def world() -> Iterator[Internet]:
    assert os.geteuid() == 0, "network namespaces need root"
    with tempfile.TemporaryDirectory() as place, internet(pathlib.Path(place)) as made:
        yield made


@pytest.fixture(scope="session")
def server(world: Internet) -> Iterator[Server]:
    with inside(world.home), serving("--config", str(world.config)) as server:
        yield server


@contextlib.contextmanager
def inside(namespace: str) -> Iterator[None]:
    """This thread, and what it starts, in a network namespace. The server listens on its loopback,
    so whoever talks to it must be there too."""
    with open("/proc/thread-self/ns/net") as here, open(f"/run/netns/{namespace}") as there:
        enter(there.fileno())
        try:
            yield
        finally:
            enter(here.fileno())


def enter(namespace: int) -> None:
    # os.setns exists from Python 3.12 on.
    if ctypes.CDLL(None, use_errno=True).setns(namespace, NEW_NETWORK) != 0:
        raise OSError(ctypes.get_errno(), "setns")


@pytest.fixture
def policy(create: Callable[..., SandboxSync]) -> Callable[..., SandboxSync]:
    """Makes sandboxes that reach what they are given, and nothing else."""

    def make(*targets: str, default: str = "deny", deny: tuple[str, ...] = ()) -> SandboxSync:
        from opensandbox.models.sandboxes import NetworkPolicy, NetworkRule

        rules = [NetworkRule(action="deny", target=target) for target in deny]
        rules += [NetworkRule(action="allow", target=target) for target in targets]
        return create(network_policy=NetworkPolicy(defaultAction=default, egress=rules))

    return make


@pytest.fixture
def log(server: Server) -> Callable[[SandboxSync], list[dict[str, Any]]]:
    def log(sandbox: SandboxSync) -> list[dict[str, Any]]:
        answer = server.call("GET", f"/v1/sandboxes/{sandbox.id}/egress/log")
        assert answer.status == 200, answer
        return answer.json()["decisions"]

    return log
