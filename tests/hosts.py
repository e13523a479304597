"""The hosts of the small Internet: web servers, a banner, an echo of datagrams, a resolver.

Runs inside their namespace until its standard input is closed. Takes the names that the resolver
knows as JSON.
"""

from __future__ import annotations

import http.server
import json
import socket
import socketserver
import struct
import sys
import threading
from collections.abc import Iterator


class Web(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        if self.path.startswith("/to/"):
            return self.redirect(self.path.removeprefix("/to/"))
        count = int(self.path.removeprefix("/bytes/")) if self.path.startswith("/bytes/") else None
        host = self.headers.get("Host", "")
        address = self.connection.getsockname()[0].removeprefix("::ffff:")
        text = f"{address} {host} {self.path}\n".encode()
        if self.path == "/authorization":
            text = self.headers.get("Authorization", "none").encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(text) if count is None else count))
        self.end_headers()
        if count is None:
            self.wfile.write(text)
            return
        while count > 0:
            part = min(count, 1 << 16)
            self.wfile.write(b"x" * part)
            count -= part

    def redirect(self, to: str) -> None:
        self.send_response(302)
        self.send_header("Location", to)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def do_POST(self) -> None:
        left = int(self.headers["Content-Length"])
        read = 0
        while read < left:
            read += len(self.rfile.read(min(1 << 16, left - read)))
        text = f"{read}\n".encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    def log_message(self, *_: object) -> None:
        pass


class Server(socketserver.ThreadingTCPServer):
    allow_reuse_address = True
    daemon_threads = True
    address_family = socket.AF_INET6
    request_queue_size = 512


class Banner(socketserver.BaseRequestHandler):
    """Speaks first, then repeats what it hears."""

    def handle(self) -> None:
        self.request.sendall(b"SSH-2.0-banner\r\n")
        while data := self.request.recv(65536):
            self.request.sendall(data)


def datagrams() -> None:
    with socket.socket(socket.AF_INET6, socket.SOCK_DGRAM) as echo:
        echo.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_RECVPKTINFO, 1)
        echo.bind(("::", 7000))
        while True:
            data, control, _, peer = echo.recvmsg(65536, 256)
            echo.sendmsg([b"echo:" + data], control, 0, peer)


def resolver(names: dict[str, list[str]]) -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as service:
        service.bind(("45.77.0.53", 53))
        while True:
            question, peer = service.recvfrom(4096)
            service.sendto(answer(question, names), peer)


def answer(question: bytes, names: dict[str, list[str]]) -> bytes:
    labels, at = [], 12
    while question[at]:
        labels.append(question[at + 1 : at + 1 + question[at]].decode())
        at += 1 + question[at]
    asked = question[12 : at + 5]
    kind = struct.unpack("!H", question[at + 1 : at + 3])[0]
    name = ".".join(labels).lower()
    found = names.get(name, names.get("*." + name.partition(".")[2]))
    records = [] if found is None else list(known(name, found, kind, names))
    if kind == 16 and found is not None:
        records.append((name, 16, b"\x05hello"))
    code = 0 if found is not None else 3
    head = question[:2] + struct.pack("!HHHHH", 0x8180 | code, 1, len(records), 0, 0)
    body = b"".join(
        spelt(owner) + struct.pack("!HHIH", kind, 1, 0 if "then" in found else 30, len(data)) + data
        for owner, kind, data in records
    )
    return head + asked + body


def known(
    name: str, found: list[str], kind: int, names: dict[str, list[str]]
) -> Iterator[tuple[str, int, bytes]]:
    """The records of a name: their owner, kind and content."""
    if "then" in found:
        # What is before the word is answered once, and from then on what is behind it.
        first = found[: found.index("then")]
        if kind == 1 and first:
            del found[: len(first)]
        found = [it for it in first or found if it != "then"]
    for it in found:
        if it.startswith("="):
            yield name, 5, spelt(it[1:])
            yield from known(it[1:], names[it[1:]], kind, names)
        elif it.startswith("of "):
            # An answer that is about another name.
            _, owner, address = it.split()
            if kind == 1:
                yield owner, 1, socket.inet_aton(address)
        elif kind == (28 if ":" in it else 1):
            family = socket.AF_INET6 if ":" in it else socket.AF_INET
            yield name, kind, socket.inet_pton(family, it)


def spelt(name: str) -> bytes:
    return b"".join(bytes([len(it)]) + it.encode() for it in name.split(".")) + b"\0"


def silence() -> list[socket.socket]:
    """A port that answers nobody: its queue is full, and nobody empties it."""
    listener = socket.create_server(("45.77.0.10", 81), backlog=0)
    return [listener, socket.create_connection(("45.77.0.10", 81))]


def main() -> None:
    names = json.loads(sys.argv[1])
    services = [Server(("::", 80), Web), Server(("::", 8080), Web), Server(("::", 22), Banner)]
    for service in services:
        threading.Thread(target=service.serve_forever, daemon=True).start()
    threading.Thread(target=datagrams, daemon=True).start()
    threading.Thread(target=resolver, args=(names,), daemon=True).start()
    _silent = silence()
    print("ready", flush=True)
    sys.stdin.read()


if __name__ == "__main__":
    main()
