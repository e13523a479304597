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


class Web(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        count = int(self.path.removeprefix("/bytes/")) if self.path.startswith("/bytes/") else None
        host = self.headers.get("Host", "")
        address = self.connection.getsockname()[0].removeprefix("::ffff:")
        text = f"{address} {host} {self.path}\n".encode()
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
    addresses = names.get(".".join(labels).lower())
    records = []
    for address in addresses or []:
        family = socket.AF_INET6 if ":" in address else socket.AF_INET
        if kind == (28 if ":" in address else 1):
            records.append((kind, socket.inet_pton(family, address)))
    if kind == 16 and addresses is not None:
        records.append((16, b"\x05hello"))
    code = 0 if addresses is not None else 3
    head = question[:2] + struct.pack("!HHHHH", 0x8180 | code, 1, len(records), 0, 0)
    body = b"".join(
        b"\xc0\x0c" + struct.pack("!HHIH", kind, 1, 30, len(data)) + data for kind, data in records
    )
    return head + asked + body


def main() -> None:
    names = json.loads(sys.argv[1])
    services = [Server(("::", 80), Web), Server(("::", 8080), Web), Server(("::", 22), Banner)]
    for service in services:
        threading.Thread(target=service.serve_forever, daemon=True).start()
    threading.Thread(target=datagrams, daemon=True).start()
    threading.Thread(target=resolver, args=(names,), daemon=True).start()
    print("ready", flush=True)
    sys.stdin.read()


if __name__ == "__main__":
    main()
