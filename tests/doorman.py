"""A registry that lets nobody in, and remembers who asked."""

from __future__ import annotations

import base64
import contextlib
import http.server
import threading
from collections.abc import Iterator

import pytest
from served import Server, serving


class Doorman:
    """Where it is, and with which names and passwords it was asked."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), self.handler())

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.server.server_port}"

    @property
    def config(self) -> str:
        """What a server must be told, so that it asks here."""
        return f'[images.registries."{self.address}"]\ninsecure = true\n'

    def handler(self) -> type[http.server.BaseHTTPRequestHandler]:
        asked = self.asked

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                scheme, _, login = self.headers.get("Authorization", "").partition(" ")
                if scheme == "Basic":
                    asked.append(base64.b64decode(login).decode())
                self.send_response(401)
                self.send_header("WWW-Authenticate", 'Basic realm="the door"')
                self.send_header("Content-Length", "0")
                self.end_headers()

            do_HEAD = do_GET

            def log_message(self, *_: object) -> None:
                pass

        return Handler


@contextlib.contextmanager
def doorman() -> Iterator[Doorman]:
    made = Doorman()
    thread = threading.Thread(target=made.server.serve_forever)
    thread.start()
    try:
        yield made
    finally:
        made.server.shutdown()
        thread.join()
        made.server.server_close()


@pytest.fixture(scope="session")
def registry() -> Iterator[Doorman]:
    with doorman() as made:
        yield made


@pytest.fixture(scope="session")
def server(registry: Doorman, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """One that asks the registry."""
    config = tmp_path_factory.mktemp("server") / "config.toml"
    config.write_text(registry.config)
    with serving("--config", str(config)) as server:
        yield server
