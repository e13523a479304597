"""One server for the whole suite, and sandboxes that are removed when their test ends."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any

import pytest
from clients import KINDS, WAYS, Box
from opensandbox import SandboxSync
from opensandbox.config import ConnectionConfig, ConnectionConfigSync
from served import Server, serving


@pytest.fixture(scope="session")
def server() -> Iterator[Server]:
    with serving() as server:
        yield server


@pytest.fixture(params=[False, True], ids=["direct", "through-the-server"])
def use_server_proxy(request: pytest.FixtureRequest) -> bool:
    return request.param


@pytest.fixture
def connection(server: Server, use_server_proxy: bool) -> ConnectionConfigSync:
    return ConnectionConfigSync(
        domain=server.domain, api_key=server.api_key, use_server_proxy=use_server_proxy
    )


@pytest.fixture
def async_connection(server: Server, use_server_proxy: bool) -> ConnectionConfig:
    return ConnectionConfig(
        domain=server.domain, api_key=server.api_key, use_server_proxy=use_server_proxy
    )


@pytest.fixture
def create(connection: ConnectionConfigSync) -> Iterator[Callable[..., SandboxSync]]:
    """Makes sandboxes with the published client and removes those that the test left."""
    made: list[SandboxSync] = []

    def create(**options: Any) -> SandboxSync:
        options.setdefault("image", "host")
        options.setdefault("timeout", timedelta(minutes=10))
        sandbox = SandboxSync.create(connection_config=connection, **options)
        made.append(sandbox)
        return sandbox

    yield create
    for sandbox in made:
        with sandbox:
            answer = sandbox_exists(sandbox)
            if answer:
                sandbox.kill()


def sandbox_exists(sandbox: SandboxSync) -> bool:
    from opensandbox.exceptions import SandboxApiException

    try:
        sandbox.get_info()
    except SandboxApiException as error:
        assert error.status_code == 404, error
        return False
    return True


@pytest.fixture(params=KINDS)
def kind(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture(params=WAYS)
def way(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture
def make_box(server: Server, kind: str, way: str) -> Iterator[Callable[..., Box]]:
    """Makes sandboxes for both clients and every way to the daemon."""
    made: list[Box] = []

    def make(**options: Any) -> Box:
        made.append(Box(server, kind, way, **options))
        return made[-1]

    yield make
    for box in made:
        box.close()


@pytest.fixture
def box(make_box: Callable[..., Box]) -> Box:
    return make_box()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """What asks whether everything was called comes after everything."""
    items.sort(key=lambda item: "test_completeness" in item.nodeid)


@pytest.fixture
def sandbox(create: Callable[..., SandboxSync]) -> SandboxSync:
    return create()
