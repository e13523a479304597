"""A real registry on loopback, Debian's `docker-registry`, and a line to it that can be slow."""

from __future__ import annotations

import contextlib
import pathlib
import socket
import subprocess
import threading
from collections.abc import Iterator

from pictures import Layout
from served import free_port, wait_for

PROGRAM = "/usr/bin/docker-registry"
# The user `me` with the password `secret`: the registry takes nothing but bcrypt.
USERS = "me:$2y$05$46OJC7bHr4BJvqRCNo9bN.HQdfeYUXp9mN6nm1ECw.E.mIde/ds1q\n"


class Registry:
    def __init__(self, place: pathlib.Path, *, login: bool) -> None:
        self.place = place
        self.login = login
        self.port = free_port()
        self.process: subprocess.Popen[bytes] | None = None

    @property
    def name(self) -> str:
        return f"127.0.0.1:{self.port}"

    def start(self) -> None:
        self.place.mkdir()
        auth = "auth:\n  htpasswd: {realm: test, path: users}\n" if self.login else ""
        (self.place / "users").write_text(USERS)
        (self.place / "config.yml").write_text(
            "version: 0.1\nlog: {level: error}\n"
            f"storage:\n  filesystem: {{rootdirectory: {self.place / 'data'}}}\n{auth}"
            f"http:\n  addr: {self.name}\n  secret: for tests\n"
        )
        with open(self.place / "log", "ab") as log:
            self.process = subprocess.Popen(
                [PROGRAM, "serve", "config.yml"], cwd=self.place, stdout=log, stderr=log
            )
        wait_for("the registry answers", lambda: answers(self.port))

    def stop(self) -> None:
        assert self.process is not None
        self.process.kill()
        self.process.wait()

    def push(self, layout: Layout, name: str) -> None:
        """Gives it an image of a layout, with a program that is not ours."""
        login = ["--dest-creds", "me:secret"] if self.login else []
        subprocess.run(
            ["skopeo", "copy", "-q", "--dest-tls-verify=false", *login]
            + [f"oci:{layout.place}:{name}", f"docker://{self.name}/{name}"],
            check=True,
        )

    def inspect(self, name: str) -> str:
        """What somebody else says of an image that it has."""
        login = ["--creds", "me:secret"] if self.login else []
        command = ["skopeo", "inspect", "--tls-verify=false", *login, f"docker://{self.name}/{name}"]
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def answers(port: int) -> bool:
    with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
        return True
    return False


class Line:
    """Passes connections on to a registry: at first only so many bytes of each, then all."""

    def __init__(self, registry: Registry, bytes: int) -> None:
        self.target = registry.port
        self.bytes = bytes
        self.opened = threading.Event()
        self.sockets: list[socket.socket] = []
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.name = f"127.0.0.1:{self.listener.getsockname()[1]}"
        threading.Thread(target=self.accept, daemon=True).start()

    def open(self) -> None:
        self.opened.set()

    def cut(self) -> None:
        """Ends all connections, and takes no others."""
        # Whoever waits for the next connection wakes up only for this.
        for each in [self.listener, *self.sockets]:
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
        self.listener.close()
        self.opened.set()

    def accept(self) -> None:
        while True:
            try:
                client, _ = self.listener.accept()
                server = socket.create_connection(("127.0.0.1", self.target))
            except OSError:
                return
            self.sockets += [client, server]
            threading.Thread(target=self.ask, args=(client, server), daemon=True).start()
            threading.Thread(target=self.answer, args=(server, client), daemon=True).start()

    def ask(self, source: socket.socket, target: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(1 << 16):
                target.sendall(data)
        with contextlib.suppress(OSError):
            target.shutdown(socket.SHUT_WR)

    def answer(self, source: socket.socket, target: socket.socket) -> None:
        left = self.bytes
        with contextlib.suppress(OSError):
            while data := source.recv(1 << 14):
                left -= len(data)
                if left < 0:
                    self.opened.wait()
                target.sendall(data)
        for each in (source, target):
            with contextlib.suppress(OSError):
                each.close()


@contextlib.contextmanager
def registry(place: pathlib.Path, *, login: bool = False) -> Iterator[Registry]:
    made = Registry(place, login=login)
    made.start()
    try:
        yield made
    finally:
        made.stop()
