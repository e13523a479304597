"""Environments as clients get them: built from their recipes, and known to a server of their own."""

from __future__ import annotations

import pathlib
from collections.abc import Iterator

import pytest
from inside import Environment
from recipes import archives, import_archive
from served import Server, serving

#: The names that clients ask for, and what the operator lets them have.
ALIASES = """\
[images.aliases]
"opensandbox/code-interpreter:v1.0.2" = "opensandbox/code-interpreter"
"""


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server with all environments. It knows nothing of how they were built."""
    built: dict[str, pathlib.Path] = archives()
    config = tmp_path_factory.mktemp("environments") / "osb.toml"
    config.write_text(ALIASES)
    with serving("--config", str(config)) as server:
        for name, archive in built.items():
            import_archive(server, archive, f"opensandbox/{name}:latest")
        yield server


@pytest.fixture(scope="session")
def base(server: Server) -> Environment:
    return Environment(server, "opensandbox/base")


@pytest.fixture(scope="session")
def code_interpreter(server: Server) -> Environment:
    return Environment(server, "opensandbox/code-interpreter:v1.0.2")
