"""Hosts that speak TLS: one as it should be, and impostors."""

from __future__ import annotations

import http.server
import pathlib
import ssl
import subprocess
import threading
import urllib.parse
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pytest
from internet import OTHER, Internet, inside

#: Their names; the resolver leads all of them to the same address.
GOOD, IMPOSTOR, EXPIRED, NAMESAKE = (
    f"{name}.example.com" for name in ("peer", "impostor", "expired", "namesake")
)
#: Another port of theirs.
ELSEWHERE = 8443

#: More than any host may say for nothing, and than waits on the way.
MUCH = 64 << 20


@dataclass
class Certificates:
    authority: pathlib.Path
    place: pathlib.Path

    def context(self, name: str) -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(self.place / f"{name}.pem", self.place / f"{name}.key")
        return context


@pytest.fixture(scope="session")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    place = tmp_path_factory.mktemp("certificates")

    def openssl(*words: str) -> None:
        subprocess.run(["openssl", *words], check=True, capture_output=True, cwd=place)

    def request(name: str, subject: str, *more: str) -> None:
        curve = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes"]
        names = ["-subj", f"/CN={subject}", "-addext", f"subjectAltName=DNS:{subject}"]
        openssl("req", *curve, "-keyout", f"{name}.key", *names, *more)

    def sign(name: str, subject: str, *validity: str) -> None:
        request(name, subject, "-out", f"{name}.csr")
        signer = ["-CA", "authority.pem", "-CAkey", "authority.key", "-copy_extensions", "copy"]
        openssl("x509", "-req", "-in", f"{name}.csr", *signer, *validity, "-out", f"{name}.pem")

    openssl(
        *("req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes"),
        *("-keyout", "authority.key", "-out", "authority.pem", "-days", "2", "-subj", "/CN=authority"),
    )
    sign(GOOD, GOOD, "-days", "2")
    # It ended before it began: no clock in the world takes it for valid.
    sign(EXPIRED, EXPIRED, "-days", "-1")
    sign(NAMESAKE, GOOD, "-days", "2")
    request(IMPOSTOR, IMPOSTOR, "-x509", "-days", "2", "-out", f"{IMPOSTOR}.pem")
    return Certificates(place / "authority.pem", place)


class Echo(http.server.BaseHTTPRequestHandler):
    """Repeats what it was sent, in all the places where an answer can say something."""

    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        secret = self.headers.get("Authorization", "none").removeprefix("Bearer ")
        self.server.seen.append((self.path, dict(self.headers.items()), body))
        kind = self.path.rpartition("/")[2].partition("?")[0]
        if kind == "endless":
            return self.hint()
        if kind == "redirect":
            self.send_response(302)
            self.send_header("Location", f"http://a.example.com/{secret}")
            self.send_header("Content-Length", "0")
            self.end_headers()
            return
        self.send_response(200)
        if kind == "headers":
            self.send_header("X-First", secret)
            self.send_header("Set-Cookie", f"one={secret}")
            self.send_header("Set-Cookie", f"two={secret}; Path=/")
        parts = {
            "whole": [secret],
            "split": [secret[:5], secret[5:9], secret[9:]],
            "encoded": [urllib.parse.quote(secret, safe="")],
            "quoted": [urllib.parse.quote(secret)],
            "twice": [urllib.parse.quote(urllib.parse.quote(secret, safe=""), safe="")],
            "escaped": ["".join(f"\\u{ord(letter):04x}" for letter in secret)],
            "page": [secret.replace("/", "&#x2F;").replace("+", "&#43;").replace("=", "&equals;")],
        }
        parts = parts.get(kind, [f"{self.path} {body.decode()}"])
        self.send_header("Transfer-Encoding", "chunked")
        self.send_header("Trailer", "X-Last")
        self.end_headers()
        for part in parts:
            self.wfile.write(f"{len(part):x}\r\n{part}\r\n".encode())
            self.wfile.flush()
        trailer = f"X-Last: {secret}\r\n" if kind == "trailers" else ""
        self.wfile.write(f"0\r\n{trailer}\r\n".encode())

    do_GET = do_POST

    def do_HEAD(self) -> None:
        self.server.seen.append((self.path, dict(self.headers.items()), b""))
        self.send_response(200)
        self.end_headers()

    def hint(self) -> None:
        """Says what is no answer until nobody listens, or often enough."""
        hints, said = b"HTTP/1.1 100 Continue\r\n\r\n" * 20_000, 0
        self.close_connection = True
        try:
            while said < MUCH:
                self.wfile.write(hints)
                said += len(hints)
        except OSError:
            pass
        self.server.hinted.append(said)

    def log_message(self, *_: object) -> None:
        pass


class Pieces(Echo):
    """Repeats what it is sent, each piece when it comes."""

    def do_POST(self) -> None:
        self.send_response(200)
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        while size := int(self.rfile.readline(), 16):
            piece = self.rfile.read(size)
            self.rfile.readline()
            self.wfile.write(f"{size:x}\r\n".encode() + piece + b"\r\n")
        self.rfile.readline()
        self.wfile.write(b"0\r\n\r\n")


class Peer(http.server.ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, certificates: Certificates, port: int = 443) -> None:
        super().__init__((OTHER, port), Echo)
        self.seen: list[tuple[str, dict[str, str], bytes]] = []
        #: How much it was heard of what is no answer.
        self.hinted: list[int] = []
        #: The names in the handshakes that came.
        self.asked: list[str | None] = []
        contexts = {name: certificates.context(name) for name in (GOOD, IMPOSTOR, EXPIRED, NAMESAKE)}
        self.context = contexts[GOOD]

        def choose(stream: ssl.SSLObject, name: str | None, _: ssl.SSLContext) -> None:
            self.asked.append(name)
            stream.context = contexts.get(name or GOOD, self.context)

        self.context.sni_callback = choose

    def finish_request(self, request: Any, address: Any) -> None:
        # In the thread of the connection: whoever hesitates holds up nobody.
        with self.context.wrap_socket(request, server_side=True) as stream:
            super().finish_request(stream, address)

    def handle_error(self, *_: object) -> None:
        pass


def serving(world: Internet, server: Callable[[], Peer]) -> Iterator[Peer]:
    with inside(world.away):
        made = server()
    threading.Thread(target=made.serve_forever, daemon=True).start()
    yield made
    made.shutdown()
    made.server_close()


@pytest.fixture(scope="session")
def peer(world: Internet, certificates: Certificates) -> Iterator[Peer]:
    yield from serving(world, lambda: Peer(certificates))


@pytest.fixture
def elsewhere(world: Internet, certificates: Certificates) -> Iterator[Peer]:
    """The same host at another port."""
    yield from serving(world, lambda: Peer(certificates, ELSEWHERE))
