"""A server in the small Internet, whom nobody has told anything but what is here."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any

import pytest
from fixtures import create, log, policy, world
from internet import Internet, inside, ip
from opensandbox import SandboxSync
from opensandbox.config import ConnectionConfigSync
from opensandbox.models.sandboxes import NetworkPolicy, NetworkRule
from peers import Certificates, certificates, elsewhere, peer
from served import Server, serving
from ways import Inmate
from witness import Witness, witness

__all__ = ["certificates", "create", "elsewhere", "log", "peer", "policy", "world"]

#: What the sandbox that most tests share may reach.
ALLOWED = ("a.example.com", "*.wild.example.com")


@pytest.fixture(scope="session")
def server(world: Internet, certificates: Certificates) -> Iterator[Server]:
    # A network such as those of containers, and a host in it.
    ip("-n", world.home, "link", "add", "docker0", "type", "bridge")
    ip("-n", world.home, "addr", "add", "172.17.0.1/16", "dev", "docker0")
    ip("-n", world.home, "link", "set", "docker0", "up")
    os.environ["SSL_CERT_FILE"] = str(certificates.authority)
    try:
        with inside(world.home), serving("--config", str(world.config)) as server:
            yield server
    finally:
        del os.environ["SSL_CERT_FILE"]


@pytest.fixture(scope="session")
def seen(world: Internet) -> Iterator[Witness]:
    with witness(world.away) as seen:
        yield seen


@pytest.fixture
def inmate(create: Callable[..., SandboxSync], server: Server, seen: Witness) -> Callable[..., Inmate]:
    """Makes a sandbox of its own for a test, which reaches what it is given."""

    def make(*targets: str, deny: tuple[str, ...] = (), default: str = "deny", **options: Any) -> Inmate:
        rules = [NetworkRule(action="deny", target=target) for target in deny]
        rules += [NetworkRule(action="allow", target=target) for target in targets]
        made = create(network_policy=NetworkPolicy(defaultAction=default, egress=rules), **options)
        return Inmate(made, server, seen)

    return make


@pytest.fixture(scope="session")
def closed(server: Server, seen: Witness) -> Iterator[Inmate]:
    """A sandbox that reaches two names, and that tests share."""
    yield from shared(server, seen, policy_of(*ALLOWED))


@pytest.fixture(scope="session")
def opened(server: Server, seen: Witness) -> Iterator[Inmate]:
    """A sandbox without a policy, which reaches the public Internet, and that tests share."""
    yield from shared(server, seen, None)


def policy_of(*targets: str) -> NetworkPolicy:
    return NetworkPolicy(egress=[NetworkRule(action="allow", target=target) for target in targets])


def shared(server: Server, seen: Witness, policy: NetworkPolicy | None) -> Iterator[Inmate]:
    connection = ConnectionConfigSync(domain=server.domain, api_key=server.api_key)
    made = SandboxSync.create(
        "host", connection_config=connection, timeout=timedelta(hours=1), network_policy=policy
    )
    yield Inmate(made, server, seen)
    made.kill()
