"""One server for the whole suite, the published command, and a second client beside it."""

from __future__ import annotations

import pathlib

import pytest
from doorman import registry, server
from fixtures import create
from opensandbox import SandboxSync
from published import Published
from served import Server

__all__ = ["create", "registry", "server"]


@pytest.fixture
def osb(server: Server, tmp_path: pathlib.Path) -> Published:
    return Published(server, tmp_path)


@pytest.fixture
def box(create) -> SandboxSync:
    """A sandbox of the Python client, which sees what the command does and the reverse."""
    return create()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """What asks whether everything was called comes after everything."""
    items.sort(key=lambda item: "test_completeness" in item.nodeid)
