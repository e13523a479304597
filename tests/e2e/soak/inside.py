"""What the daemon of one sandbox holds, seen from the host, and plain connections to it."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import pathlib
import socket
from collections.abc import Iterator
from typing import Any, NamedTuple

from opensandbox import SandboxSync
from served import Server, wait_for

MIB = 1 << 20
# The most idle connections to one daemon that the gateway keeps.
GATEWAY_KEEPS = 16


class Held(NamedTuple):
    """Everything that must not grow."""

    processes: int
    zombies: int
    descriptors: int
    files: int

    def __str__(self) -> str:
        return ", ".join(f"{value} {name}" for name, value in self._asdict().items())


class Daemon:
    """The first process of a sandbox."""

    def __init__(self, sandbox: SandboxSync, server: Server, *, through_gateway: bool = False) -> None:
        self.sandbox = sandbox
        # Its own socket, so that every connection that it counts is one of ours. The gateway keeps
        # some for the next request, as many as it happens to need.
        (self.socket,) = server.data_dir.glob(f"native/*/{sandbox.id}/execd.sock")
        self.through_gateway = through_gateway
        self.spare = GATEWAY_KEEPS if through_gateway else 0
        endpoint = sandbox.get_endpoint(44772)
        address, _, self.prefix = endpoint.endpoint.partition("/")
        self.prefix = f"/{self.prefix}" if self.prefix and through_gateway else ""
        host, _, port = address.partition(":")
        self.address = (host, int(port))
        self.headers = endpoint.headers
        self.pid = next(pid for pid in self.family() if "execd" in name_of(pid))
        self.root = pathlib.Path(f"/proc/{self.pid}/root")

    def family(self) -> list[int]:
        """Every process of the sandbox, as the host numbers them."""
        found = []
        for entry in os.listdir("/proc"):
            if entry.isdigit():
                with contextlib.suppress(OSError):
                    if self.sandbox.id in pathlib.Path(f"/proc/{entry}/cgroup").read_text():
                        found.append(int(entry))
        return found

    def held(self) -> Held:
        family = self.family()
        zombies = sum(state_of(pid) == "Z" for pid in family)
        descriptors = len(os.listdir(f"/proc/{self.pid}/fd"))
        places = [self.root / place for place in ("tmp", "run", "dev/shm", "opt/opensandbox")]
        files = sum(len(below) + len(names) for place in places for _, below, names in os.walk(place))
        return Held(len(family), zombies, descriptors, files)

    def comes_back_to(self, before: Held) -> None:
        """What ends, ends a moment after its answer; but it does end."""
        allowed = before._replace(descriptors=before.descriptors + self.spare)
        try:
            wait_for("nothing is left", lambda: at_most(self.held(), allowed))
        except AssertionError:
            raise AssertionError(f"before: {before}; now: {self.held()}") from None

    def private(self) -> int:
        """Bytes that this process alone has."""
        rollup = pathlib.Path(f"/proc/{self.pid}/smaps_rollup").read_text()
        lines = (line.split() for line in rollup.splitlines() if line.startswith("Private_"))
        return sum(int(fields[1]) * 1024 for fields in lines)

    def peak(self) -> int:
        """The most that was resident since `forget_peak`, in bytes."""
        status = pathlib.Path(f"/proc/{self.pid}/status").read_text()
        return next(int(l.split()[1]) * 1024 for l in status.splitlines() if l.startswith("VmHWM"))

    def forget_peak(self) -> int:
        """Begins a new record of the peak, and returns what is resident now."""
        pathlib.Path(f"/proc/{self.pid}/clear_refs").write_text("5")
        return self.peak()

    def connect(self) -> socket.socket:
        if self.through_gateway:
            return socket.create_connection(self.address, timeout=60)
        connection = socket.socket(socket.AF_UNIX)
        connection.settimeout(60)
        connection.connect(str(self.socket))
        return connection

    def client(self) -> Client:
        return Client(self)

    def request(self, method: str, path: str, body: bytes = b"", more: str = "") -> bytes:
        """The bytes of a request, for those who want to send it themselves."""
        head = [f"{method} {self.prefix}{path} HTTP/1.1", f"Host: {self.address[0]}"]
        head += [f"{name}: {value}" for name, value in self.headers.items()]
        head += [more] if more else [f"Content-Length: {len(body)}"]
        return "\r\n".join([*head, "", ""]).encode() + body


class Client:
    """One kept connection."""

    def __init__(self, daemon: Daemon) -> None:
        self.daemon = daemon
        self.connection = http.client.HTTPConnection(*daemon.address, timeout=60)
        self.connection.sock = daemon.connect()

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *_: object) -> None:
        self.connection.close()

    def call(self, method: str, path: str, body: Any = None, statuses: tuple[int, ...] = (200,)) -> bytes:
        content = None if body is None else json.dumps(body).encode()
        self.connection.request(
            method, self.daemon.prefix + path, body=content, headers=self.daemon.headers
        )
        answer = self.connection.getresponse()
        read = answer.read()
        assert answer.status in statuses, (method, path, answer.status, read[:500])
        return read

    def run(self, **command: Any) -> list[dict[str, Any]]:
        """The events of a command."""
        frames = self.call("POST", "/command", command).split(b"\n\n")
        assert frames.pop() == b""
        return [json.loads(frame) for frame in frames]


@contextlib.contextmanager
def streaming(daemon: Daemon, **command: Any) -> Iterator[socket.socket]:
    """A command whose stream is read, or not, by hand."""
    with daemon.connect() as connection:
        connection.sendall(daemon.request("POST", "/command", json.dumps(command).encode()))
        yield connection


def at_most(now: Held, before: Held) -> bool:
    return all(a <= b for a, b in zip(now, before, strict=True))


def name_of(pid: int) -> str:
    with contextlib.suppress(OSError):
        return pathlib.Path(f"/proc/{pid}/comm").read_text().strip()
    return ""


def state_of(pid: int) -> str:
    with contextlib.suppress(OSError):
        return pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    return ""
