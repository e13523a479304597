"""What the suites that look at the host share."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest
from fixtures import create
from served import Server, serving

__all__ = ["create", "server"]


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    assert os.geteuid() == 0, "the native runtime needs root here"
    with serving() as server:
        yield server
