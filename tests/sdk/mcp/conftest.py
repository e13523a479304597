"""One server and one MCP server for the whole suite, and a second client beside it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from doorman import registry, server
from fixtures import create
from opensandbox import SandboxSync
from published import PLAIN, Tools, tools
from served import Server

__all__ = ["create", "registry", "server"]


@pytest.fixture(scope="session")
def mcp(server: Server) -> Iterator[Tools]:
    with tools(server) as made:
        yield made


@pytest.fixture(scope="session")
def plain(server: Server) -> Iterator[Tools]:
    """One that can be refused something by the server, and goes on."""
    with tools(server, program=PLAIN) as made:
        yield made


@pytest.fixture
def box(create) -> SandboxSync:
    """A sandbox of the Python client, which sees what the tools do and the reverse."""
    return create()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """What asks whether everything was called comes after everything."""
    items.sort(key=lambda item: "test_completeness" in item.nodeid)
