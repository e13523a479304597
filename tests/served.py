"""A real `osb server` for tests: on a free loopback port, with its own data directory.

As a program, `python served.py COMMAND…` runs the command beside such a server, with the two
variables set that every client reads.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import pathlib
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from typing import Any

ROOT = pathlib.Path(__file__).resolve().parent.parent


def osb() -> str:
    """The binary under test."""
    path = os.environ.get("OSB", str(ROOT / "target" / "release" / "osb"))
    if not os.access(path, os.X_OK):
        raise FileNotFoundError(f"{path} is not there: run `make build`, or set OSB")
    return path


def wait_for(what: str, condition: Callable[[], Any], seconds: float = 20.0) -> Any:
    """The first true value of `condition`; fails loudly when it never comes."""
    deadline = time.monotonic() + seconds
    while True:
        value = condition()
        if value:
            return value
        if time.monotonic() > deadline:
            raise AssertionError(f"waited {seconds:.0f} s in vain: {what}")
        time.sleep(0.02)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


class Reply:
    """An HTTP answer as it came."""

    def __init__(self, status: int, headers: dict[str, str], body: bytes) -> None:
        self.status = status
        self.headers = headers
        self.body = body

    def json(self) -> Any:
        return json.loads(self.body)

    def __repr__(self) -> str:
        return f"Reply({self.status}, {self.body[:200]!r})"


class Server:
    """One server process and what it keeps. It may be killed and started again."""

    def __init__(self, data_dir: pathlib.Path, *options: str) -> None:
        self.data_dir = data_dir
        self.options = options
        self.port = free_port()
        self.process: subprocess.Popen[bytes] | None = None

    @property
    def domain(self) -> str:
        return f"127.0.0.1:{self.port}"

    @property
    def api_key(self) -> str:
        return (self.data_dir / "api-key").read_text().strip()

    @property
    def log(self) -> pathlib.Path:
        return self.data_dir.parent / f"{self.data_dir.name}.log"

    def start(self) -> None:
        command = [osb(), "server", "--listen", self.domain, "--data-dir", str(self.data_dir)]
        ours = ("OPEN_SANDBOX_", "OPENSANDBOX_", "SANDBOX_")
        environment = {k: v for k, v in os.environ.items() if not k.startswith(ours)}
        with open(self.log, "ab") as log:
            self.process = subprocess.Popen(
                [*command, *self.options],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=environment,
            )
        wait_for("the server answers", self.answers)

    def answers(self) -> bool:
        assert self.process is not None
        if self.process.poll() is not None:
            raise AssertionError(f"the server ended at once:\n{self.log.read_text()[-4000:]}")
        try:
            return self.call("GET", "/health", key=None).status == 200
        except OSError:
            return False

    def kill(self) -> None:
        """kill -9, with no chance to say goodbye."""
        assert self.process is not None
        self.process.kill()
        self.process.wait()

    def stop(self) -> None:
        assert self.process is not None
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
            try:
                self.process.wait(20)
            except subprocess.TimeoutExpired:
                self.kill()
                raise AssertionError("the server did not end within 20 s of SIGTERM") from None

    def connection(self, timeout: float) -> http.client.HTTPConnection:
        return http.client.HTTPConnection("127.0.0.1", self.port, timeout=timeout)

    def call(
        self,
        method: str,
        path: str,
        body: Any = None,
        *,
        key: str | None = "own",
        headers: dict[str, str] | None = None,
        timeout: float = 30,
    ) -> Reply:
        """One plain request. `body` is sent as it is if it is bytes, else as JSON."""
        sent = dict(headers or {})
        if key is not None:
            sent["OPEN-SANDBOX-API-KEY"] = self.api_key if key == "own" else key
        if body is not None and not isinstance(body, bytes):
            body = json.dumps(body).encode()
        if body is not None:
            sent.setdefault("Content-Type", "application/json")
        with contextlib.closing(self.connection(timeout)) as connection:
            connection.request(method, path, body=body, headers=sent)
            answer = connection.getresponse()
            names = {name.lower(): value for name, value in answer.getheaders()}
            return Reply(answer.status, names, answer.read())

    def ids(self) -> list[str]:
        """Every sandbox that the server lists."""
        found: list[str] = []
        page = 1
        while True:
            answer = self.call("GET", f"/v1/sandboxes?pageSize=200&page={page}")
            assert answer.status == 200, answer
            found += [item["id"] for item in answer.json()["items"]]
            if not answer.json()["pagination"]["hasNextPage"]:
                return sorted(found)
            page += 1


@contextlib.contextmanager
def serving(
    *options: str, remove: Callable[[pathlib.Path], Any] = shutil.rmtree
) -> Iterator[Server]:
    """A server in a new directory; afterwards every sandbox is removed and the server ended."""
    place = pathlib.Path(tempfile.mkdtemp(prefix="osb-test-"))
    server = Server(place / "data", *options)
    server.start()
    try:
        yield server
    finally:
        # Sandboxes outlive their server. A test that failed while it was down leaves them so.
        if server.process is None or server.process.poll() is not None:
            server.start()
        for sandbox in server.ids():
            server.call("DELETE", f"/v1/sandboxes/{sandbox}")
        wait_for("all sandboxes are gone", lambda: not server.ids())
        server.stop()
        remove(place)


def main(command: list[str]) -> int:
    with serving() as server:
        clients = {"OPEN_SANDBOX_DOMAIN": server.domain, "OPEN_SANDBOX_API_KEY": server.api_key}
        return subprocess.run(command, env=os.environ | clients, check=False).returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
