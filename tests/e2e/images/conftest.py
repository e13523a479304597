"""Registries with images, and a server that is told of them."""

from __future__ import annotations

import contextlib
import os
import pathlib
from collections.abc import Callable, Iterator

import pytest
from opensandbox.config import ConnectionConfigSync
from pictures import Layout, archive, noise, root
from registry import Line, Registry, registry
from served import Server, serving

CONFIG = {
    "Entrypoint": ["/bin/sh", "-c"],
    "Cmd": ["echo begun > /tmp/begun; exec tail -f /dev/null"],
    "Env": ["PATH=/bin", "FROM_IMAGE=yes", "BOTH=image"],
    "User": "app",
    "WorkingDir": "/srv",
}


@pytest.fixture(scope="session")
def layout(tmp_path_factory: pytest.TempPathFactory) -> Layout:
    """`app:1`, which says how it runs; and `large:1`, of which the upper layer has 8 MB."""
    layout = Layout(tmp_path_factory.mktemp("layout"))
    base = root()
    layout.add("app:1", [base, archive({"srv/hello": b"hello\n"})], CONFIG)
    layout.add("large:1", [base, archive({"large": noise(8_000_000)})], CONFIG)
    return layout


@pytest.fixture(scope="session")
def public(tmp_path_factory: pytest.TempPathFactory, layout: Layout) -> Iterator[Registry]:
    """A registry that is open to all."""
    with registry(tmp_path_factory.mktemp("public") / "registry") as made:
        for name in ["app:1", "large:1"]:
            made.push(layout, name)
        yield made


@pytest.fixture(scope="session")
def private(tmp_path_factory: pytest.TempPathFactory, layout: Layout) -> Iterator[Registry]:
    """A registry that asks who one is."""
    with registry(tmp_path_factory.mktemp("private") / "registry", login=True) as made:
        made.push(layout, "app:1")
        yield made


@pytest.fixture
def slow(public: Registry) -> Iterator[Line]:
    """The open registry behind a line that stops within the large layer until it is opened."""
    line = Line(public, 6_000_000)
    yield line
    line.cut()


@pytest.fixture
def torn(public: Registry) -> Iterator[Line]:
    """Another such line, for those who cut it."""
    line = Line(public, 6_000_000)
    yield line
    line.cut()


Serve = Callable[..., contextlib.AbstractContextManager[Server]]


@pytest.fixture
def serve(tmp_path: pathlib.Path) -> Serve:
    """Starts servers that know these registries, all without TLS."""

    def serve(*registries: str, more: str = "") -> contextlib.AbstractContextManager[Server]:
        assert os.geteuid() == 0, "the native runtime needs root here"
        tables = [f'[images.registries."{name}"]\ninsecure = true\n' for name in registries]
        config = tmp_path / "osb.toml"
        config.write_text(more + "".join(tables))
        return serving("--config", str(config))

    return serve


@pytest.fixture
def server(
    serve: Serve, public: Registry, private: Registry, slow: Line, torn: Line
) -> Iterator[Server]:
    aliases = f'[images.aliases]\n"opensandbox/code-interpreter:v1.0.1" = "{public.name}/app:1"\n'
    names = [each.name for each in (public, private, slow, torn)]
    with serve(*names, more=aliases) as server:
        yield server


@pytest.fixture
def connection(server: Server) -> ConnectionConfigSync:
    return ConnectionConfigSync(domain=server.domain, api_key=server.api_key)
