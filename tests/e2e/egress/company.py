"""An authority that only some trust, and hosts that it vouches for."""

from __future__ import annotations

import base64
import contextlib
import hashlib
import http.server
import json
import pathlib
import ssl
import subprocess
import threading
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest
from internet import PUBLIC, Internet, inside
from opensandbox import SandboxSync
from opensandbox.config import ConnectionConfigSync
from opensandbox.models.sandboxes import CredentialProxyConfig, NetworkPolicy, NetworkRule
from served import Server, serving

KEY = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes"]


def openssl(*arguments: str | pathlib.Path) -> None:
    subprocess.run(["openssl", *arguments], check=True, capture_output=True)


class Authority:
    """A private authority, in a directory."""

    def __init__(self, place: pathlib.Path) -> None:
        self.place = place
        self.certificate = place / "ca.pem"
        self.key = place / "ca.key"
        subject = ["-subj", "/CN=Company", "-addext", "basicConstraints=critical,CA:TRUE"]
        files = ["-keyout", self.key, "-out", self.certificate]
        openssl("req", "-x509", *KEY, *files, "-days", "2", *subject)

    def vouch(self, name: str) -> ssl.SSLContext:
        """What a host of this name, or at this address, presents itself with."""
        certificate, key = self.place / f"{name}.pem", self.place / f"{name}.key"
        signed = ["-CA", self.certificate, "-CAkey", self.key, "-days", "2"]
        kind = "IP" if name.replace(".", "").isdigit() else "DNS"
        names = ["-addext", f"subjectAltName={kind}:{name}"]
        end = ["-addext", "basicConstraints=critical,CA:FALSE"]
        subject = ["-subj", f"/CN={name}"]
        openssl(
            "req", "-x509", *KEY, *signed, *subject, *names, *end, "-keyout", key, "-out", certificate
        )
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificate, key)
        return context


class Echo(http.server.BaseHTTPRequestHandler):
    """Answers with everything that it was sent."""

    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        seen = {"path": self.path, "headers": dict(self.headers.items()), "body": self.body()}
        self.server.seen.append(seen)
        text = json.dumps(seen).encode()
        self.send_response(200)
        self.send_header("X-Echo", self.headers.get("Authorization", "none"))
        if not self.path.startswith("/in-pieces"):
            self.send_header("Content-Length", str(len(text)))
            self.end_headers()
            self.wfile.write(text)
            return
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        # However a secret is cut, it lies across a border.
        for at in range(0, len(text), 3):
            piece = text[at : at + 3]
            self.wfile.write(b"%x\r\n%s\r\n" % (len(piece), piece))
            self.wfile.flush()
        self.wfile.write(b"0\r\n\r\n")

    def do_GET(self) -> None:
        if self.headers.get("Upgrade", "").lower() != "websocket":
            return self.do_POST()
        self.server.seen.append({"path": self.path, "headers": dict(self.headers.items())})
        key = self.headers["Sec-WebSocket-Key"] + "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
        accept = base64.b64encode(hashlib.sha1(key.encode()).digest()).decode()
        self.send_response(101)
        self.send_header("Upgrade", "websocket")
        self.send_header("Connection", "Upgrade")
        self.send_header("Sec-WebSocket-Accept", accept)
        self.end_headers()
        self.wfile.flush()
        # A short masked text, which goes back without its mask.
        length = self.rfile.read(2)[1] & 0x7F
        mask, text = self.rfile.read(4), self.rfile.read(length)
        plain = bytes(byte ^ mask[at % 4] for at, byte in enumerate(text))
        self.wfile.write(bytes([0x81, length]) + plain)
        self.wfile.flush()
        self.close_connection = True

    def body(self) -> str:
        if self.headers.get("Transfer-Encoding") != "chunked":
            return self.rfile.read(int(self.headers.get("Content-Length", 0))).decode()
        whole = b""
        while size := int(self.rfile.readline(), 16):
            whole += self.rfile.read(size)
            self.rfile.readline()
        self.rfile.readline()
        return whole.decode()

    def log_message(self, *_: object) -> None:
        pass


@contextlib.contextmanager
def echoing(world: Internet, address: str, port: int, context: ssl.SSLContext | None) -> Iterator[Any]:
    """A host of the small Internet that answers with what it was sent, and keeps it as `seen`."""
    with inside(world.away):
        server = http.server.ThreadingHTTPServer((address, port), Echo)
    if context is not None:
        server.socket = context.wrap_socket(
            server.socket, server_side=True, do_handshake_on_connect=False
        )
    server.seen = []
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield server
    finally:
        server.shutdown()
        server.server_close()


def connection(server: Server) -> ConnectionConfigSync:
    return ConnectionConfigSync(domain=server.domain, api_key=server.api_key)


def made(server: Server, *targets: str, image: str | None = "host", **options: Any) -> SandboxSync:
    """A sandbox that may have a vault and reaches these."""
    rules = [NetworkRule(action="allow", target=target) for target in targets]
    return SandboxSync.create(
        image,
        timeout=timedelta(minutes=10),
        network_policy=NetworkPolicy(egress=rules),
        credential_proxy=CredentialProxyConfig(enabled=True),
        connection_config=connection(server),
        **options,
    )


def run(sandbox: SandboxSync, command: str) -> str:
    done = sandbox.commands.run(command)
    said = "\n".join(message.text for message in done.logs.stdout)
    assert done.exit_code == 0, (said, [message.text for message in done.logs.stderr])
    return said


def uses(server: Server, sandbox: SandboxSync) -> list[dict[str, Any]]:
    """What was written down of credentials."""
    answer = server.call("GET", f"/v1/sandboxes/{sandbox.id}/egress/log")
    assert answer.status == 200, answer
    return [entry for entry in answer.json()["decisions"] if entry["protocol"] == "credential"]


def header(seen: dict[str, Any], name: str) -> str | None:
    """A header as the host saw it: clients write names as they like."""
    return {key.lower(): value for key, value in seen["headers"].items()}.get(name.lower())


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"))


@pytest.fixture(scope="module")
def echo(world: Internet, authority: Authority) -> Iterator[Any]:
    with echoing(world, PUBLIC, 443, authority.vouch("a.example.com")) as host:
        yield host


@pytest.fixture(scope="module", name="server")
def trusting_server(world: Internet, authority: Authority, echo: Any) -> Iterator[Server]:
    """A server that trusts the host."""
    config = authority.place / "server.toml"
    config.write_text(f'{world.config.read_text()}extra-ca = "{authority.certificate}"\n')
    with inside(world.home), serving("--config", str(config)) as server:
        yield server
