"""What the suites that look at the host share."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any

import pytest
from opensandbox import SandboxSync
from opensandbox.config import ConnectionConfigSync
from served import Server, serving


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    assert os.geteuid() == 0, "the native runtime needs root here"
    with serving() as server:
        yield server


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
