"""A web server that real clients talk to: what it serves, it was given in a directory; what it is
asked, it remembers.

It speaks HTTP/1.1 as servers do who have seen much: with chunks and trailers, ranges and conditions,
events that come one by one, answers before the question has ended.
"""

from __future__ import annotations

import gzip
import hashlib
import http.server
import json
import os
import pathlib
import ssl
import subprocess
import threading
from collections.abc import Iterator
from typing import Any

PART = 1 << 16


class Origin(http.server.ThreadingHTTPServer):
    """One listening socket. `seen` has the method, the path and the headers of every request."""

    daemon_threads = True
    #: What clients have told that they have.
    told = threading.Semaphore(0)
    request_queue_size = 64

    def __init__(self, address: tuple[str, int], files: pathlib.Path, context: ssl.SSLContext | None):
        super().__init__(address, Handler)
        self.files = files
        self.seen: list[dict[str, Any]] = []
        if context is not None:
            self.socket = context.wrap_socket(
                self.socket, server_side=True, do_handshake_on_connect=False
            )

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Clients break off as they like."""


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Origin
    expected = False
    answered = False
    #: Buffered, so that a head leaves in one piece.
    wbufsize = PART

    def __getattr__(self, name: str) -> Any:
        if name.startswith("do_"):
            return self.answer
        raise AttributeError(name)

    def answer(self) -> None:
        headers = list(self.headers.items())
        self.server.seen.append({"method": self.command, "path": self.path, "headers": headers})
        first, _, rest = self.path.lstrip("/").partition("/")
        first = first.partition("?")[0]
        getattr(self, f"serve_{first.replace('-', '_')}", self.serve_file)(rest)

    def handle_expect_100(self) -> bool:
        # Whoever reads the body asks for it.
        self.expected = True
        return True

    def body(self) -> Iterator[bytes]:
        """The body in parts, as it comes."""
        if self.expected:
            self.expected = False
            self.send_response_only(100)
            self.end_headers()
            self.wfile.flush()
        if self.headers.get("Transfer-Encoding", "").lower() == "chunked":
            while size := int(self.rfile.readline().partition(b";")[0], 16):
                yield self.rfile.read(size)
                self.rfile.readline()
            while (line := self.rfile.readline().strip()):
                self.trailers.append(line.decode())
            return
        left = int(self.headers.get("Content-Length", 0))
        while left and (part := self.rfile.read1(min(left, PART))):
            left -= len(part)
            yield part

    @property
    def trailers(self) -> list[str]:
        return self.server.seen[-1].setdefault("trailers", [])

    def head(self, status: int, **headers: Any) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), str(value))
        self.end_headers()

    def whole(self, body: bytes, status: int = 200, **headers: Any) -> None:
        self.head(status, Content_Length=len(body), **headers)
        if self.command != "HEAD":
            self.wfile.write(body)

    def chunk(self, data: bytes) -> None:
        self.wfile.write(f"{len(data):x}\r\n".encode() + data + b"\r\n")
        self.wfile.flush()

    def serve_echo(self, _: str) -> None:
        digest, length = hashlib.sha256(), 0
        for part in self.body():
            digest.update(part)
            length += len(part)
        seen = self.server.seen[-1] | {"length": length, "sha256": digest.hexdigest()}
        self.whole(json.dumps(seen).encode(), Content_Type="application/json")

    def serve_bytes(self, count: str) -> None:
        left = int(count)
        self.head(200, Content_Length=left)
        while left > 0:
            self.wfile.write(b"x" * min(left, PART))
            left -= PART

    def serve_chunks(self, count: str) -> None:
        left = int(count)
        self.head(200, Transfer_Encoding="chunked")
        while left > 0:
            self.chunk(b"x" * min(left, PART))
            left -= PART
        self.chunk(b"")

    def serve_gzip(self, _: str) -> None:
        """Compressed, whatever the client has asked for."""
        body = gzip.compress(b"many words " * 1000)
        self.whole(body, Content_Encoding="gzip", Content_Type="text/plain")

    def serve_trailers(self, _: str) -> None:
        self.head(200, Transfer_Encoding="chunked", Trailer="X-Sum, X-Late")
        self.chunk(b"body")
        self.wfile.write(b"0\r\nX-Sum: 42\r\nX-Late: yes\r\n\r\n")

    def serve_headers(self, size: str) -> None:
        long = {f"X-Long-{number}": "v" * 1000 for number in range(int(size) // 1000)}
        self.whole(b"ok", **long)

    def serve_many(self, count: str) -> None:
        self.whole(b"ok", **{f"X-{number}": number for number in range(int(count))})

    def serve_status(self, status: str) -> None:
        self.head(int(status), ETag='"v1"', Set_Cookie="a=1")

    def serve_reason(self, _: str) -> None:
        self.send_response(299, "Quite Well")
        self.send_header("Content-Length", "0")
        self.end_headers()

    def serve_events(self, count: str) -> None:
        """Each event after the one before was told to have arrived."""
        self.head(200, Content_Type="text/event-stream", Cache_Control="no-cache")
        for number in range(int(count)):
            self.wfile.write(f"data: {number}\n\n".encode())
            self.wfile.flush()
            if not self.server.told.acquire(timeout=20):
                break
        self.close_connection = True

    def serve_told(self, _: str) -> None:
        self.server.told.release()
        self.head(204)

    def serve_duplex(self, _: str) -> None:
        """Answers every part of the body as it comes."""
        body = self.body()
        first = next(body)
        self.head(200, Transfer_Encoding="chunked", Content_Type="application/octet-stream")
        self.chunk(first.upper())
        for part in body:
            self.chunk(part.upper())
        self.chunk(b"")

    def serve_early(self, _: str) -> None:
        """Does not want the body, and does not read it."""
        self.whole(b"too much", 413, Connection="close")
        self.wfile.flush()
        self.close_connection = True
        # Whoever goes on sending must not be reset before he has read the answer.
        self.connection.settimeout(10)
        while self.rfile.read1(PART):
            pass

    def serve_hang_up(self, _: str) -> None:
        """Answers the first request of a connection, and hangs up on the second one."""
        if self.answered:
            self.close_connection = True
            return
        self.answered = True
        self.whole(b"kept alive")

    def serve_hints(self, _: str) -> None:
        self.wfile.write(b"HTTP/1.1 103 Early Hints\r\nLink: </style.css>; rel=preload\r\n\r\n")
        self.whole(b"ok")

    def serve_connection(self, _: str) -> None:
        self.whole(str(self.client_address[1]).encode())

    def serve_git(self, rest: str) -> None:
        path, _, query = rest.partition("?")
        environment = os.environ | {
            "GIT_PROJECT_ROOT": str(self.server.files / "git"),
            "GIT_HTTP_EXPORT_ALL": "1",
            "PATH_INFO": f"/{path}",
            "QUERY_STRING": query,
            "REQUEST_METHOD": self.command,
            "CONTENT_TYPE": self.headers.get("Content-Type", ""),
            "HTTP_CONTENT_ENCODING": self.headers.get("Content-Encoding", ""),
            "GIT_PROTOCOL": self.headers.get("Git-Protocol", ""),
            "REMOTE_USER": "somebody",
        }
        body = b"".join(self.body())
        environment["CONTENT_LENGTH"] = str(len(body))
        done = subprocess.run(
            ["git", "http-backend"], input=body, env=environment, capture_output=True, check=True
        )
        head, _, body = done.stdout.partition(b"\r\n\r\n")
        fields = dict(line.split(": ", 1) for line in head.decode().splitlines())
        status = int(fields.pop("Status", "200").split()[0])
        self.whole(body, status, **fields)

    def serve_file(self, _: str) -> None:
        """A file, or a part of it, or that it is the same as it was."""
        name = self.path.partition("?")[0].lstrip("/").replace("%2f", "/").replace("%2F", "/")
        path = self.server.files / name
        if path.is_dir():
            path = path / "index.html"
        if not path.is_file():
            return self.whole(b"not here", 404)
        data = path.read_bytes()
        tag = f'"{hashlib.sha256(data).hexdigest()[:16]}"'
        types = {".html": "text/html", ".json": "application/json", ".txt": "text/plain"}
        kind = types.get(path.suffix, "application/octet-stream")
        if self.headers.get("If-None-Match") == tag:
            return self.head(304, ETag=tag)
        wanted = self.headers.get("Range")
        if wanted is None:
            return self.whole(data, ETag=tag, Content_Type=kind, Accept_Ranges="bytes")
        start, _, end = wanted.removeprefix("bytes=").partition("-")
        first, last = int(start), int(end or len(data) - 1)
        span = f"bytes {first}-{last}/{len(data)}"
        self.whole(data[first : last + 1], 206, ETag=tag, Content_Type=kind, Content_Range=span)

    def log_message(self, *_: object) -> None:
        pass
