"""A server of a user who is not root. `as-user` makes that user, with control groups or without."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any

import pytest
from opensandbox import SandboxSync
from opensandbox.config import ConnectionConfigSync
from served import Server, serving


@pytest.fixture(scope="session")
def grouped() -> bool:
    """Whether the user has control groups of his own."""
    return os.environ["OSB_GROUPS"] == "--groups"


@pytest.fixture
def server() -> Iterator[Server]:
    assert os.geteuid() != 0, "this is to be run by as-user"
    # What is there belongs to ids that are lent to the user: as-user removes it.
    with serving(remove=lambda _: None) as server:
        yield server


@pytest.fixture
def create(server: Server) -> Callable[..., SandboxSync]:
    def create(**options: Any) -> SandboxSync:
        options.setdefault("timeout", timedelta(minutes=10))
        connection = ConnectionConfigSync(domain=server.domain, api_key=server.api_key)
        return SandboxSync.create("host", connection_config=connection, **options)

    return create
