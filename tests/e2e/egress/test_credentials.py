"""Credentials on their way: put in after a request has left, taken out of the answer."""

from __future__ import annotations

import http.server
import json
import os
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
from served import serving

TOKEN = "hunter2-and-more"
BODY = 'a "quoted" secret/42'


class Echo(http.server.BaseHTTPRequestHandler):
    """Answers with everything that it was sent."""

    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        seen = {"path": self.path, "headers": dict(self.headers.items()), "body": self.body()}
        self.server.seen.append(seen)
        text = json.dumps(seen).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(text)))
        self.send_header("X-Echo", self.headers.get("Authorization", "none"))
        self.end_headers()
        self.wfile.write(text)

    do_GET = do_POST

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


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    """A certificate of a.example.com that vouches for itself, with its key beside it."""
    place = tmp_path_factory.mktemp("authority")
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256"]
        + ["-nodes", "-keyout", place / "key.pem", "-out", place / "cert.pem", "-days", "2"]
        + ["-subj", "/CN=a.example.com", "-addext", "subjectAltName=DNS:a.example.com"]
        + ["-addext", "basicConstraints=critical,CA:FALSE"],
        check=True,
        capture_output=True,
    )
    return place


@pytest.fixture(scope="module")
def echo(world: Internet, authority: pathlib.Path) -> Iterator[Any]:
    with inside(world.away):
        server = http.server.ThreadingHTTPServer((PUBLIC, 443), Echo)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(authority / "cert.pem", authority / "key.pem")
    server.socket = context.wrap_socket(server.socket, server_side=True)
    server.seen = []
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield server
    server.shutdown()
    server.server_close()


@pytest.fixture(scope="module")
def sandbox(world: Internet, authority: pathlib.Path, echo: Any) -> Iterator[SandboxSync]:
    """A sandbox of a server that trusts the host, with credentials for it."""
    os.environ["SSL_CERT_FILE"] = str(authority / "cert.pem")
    try:
        with inside(world.home), serving("--config", str(world.config)) as server:
            del os.environ["SSL_CERT_FILE"]
            rules = [NetworkRule(action="allow", target="a.example.com")]
            with SandboxSync.create(
                "host",
                timeout=timedelta(minutes=10),
                network_policy=NetworkPolicy(egress=rules),
                credential_proxy=CredentialProxyConfig(enabled=True),
                connection_config=ConnectionConfigSync(
                    domain=server.domain, api_key=server.api_key
                ),
            ) as made:
                places = [{"credential": "b", "placeholder": "__B__", "in": ["query", "body"]}]
                auth = {"type": "bearer", "credential": "t", "substitutions": places}
                made.credential_vault.create(
                    credentials=[
                        {"name": "t", "source": {"value": TOKEN}},
                        {"name": "b", "source": {"value": BODY}},
                    ],
                    bindings=[
                        {"name": "a", "match": {"hosts": ["a.example.com"]}, "auth": auth}
                    ],
                )
                yield made
                made.kill()
    finally:
        os.environ.pop("SSL_CERT_FILE", None)


def run(sandbox: SandboxSync, command: str) -> str:
    done = sandbox.commands.run(command)
    said = "\n".join(message.text for message in done.logs.stdout)
    assert done.exit_code == 0, (said, [message.text for message in done.logs.stderr])
    return said


def test_a_request_gets_its_secrets_and_the_answer_loses_them(
    sandbox: SandboxSync, echo: Any
) -> None:
    said = run(
        sandbox,
        "curl -sSi 'https://a.example.com/x?q=__B__' -H 'Authorization: nothing'"
        """ -H 'Content-Type: application/json' -d '{"k": "__B__"}'""",
    )
    seen = echo.seen[-1]
    assert seen["headers"].get("Authorization") == f"Bearer {TOKEN}"
    assert seen["path"] == "/x?q=a%20%22quoted%22%20secret%2F42"
    assert json.loads(seen["body"]) == {"k": BODY}
    assert "[REDACTED]" in said
    assert TOKEN not in said
    assert "quoted" not in said


def test_a_large_body_is_rewritten_while_it_streams(sandbox: SandboxSync, echo: Any) -> None:
    run(
        sandbox,
        "(head -c 3000000 /dev/zero | tr '\\0' a; echo -n __B__) > /tmp/big;"
        " curl -sS https://a.example.com/big -o /dev/null"
        " -H 'Content-Type: text/plain' --data-binary @/tmp/big",
    )
    assert echo.seen[-1]["body"] == "a" * 3_000_000 + BODY


def test_programs_of_other_kinds_trust_what_the_server_vouches_for(
    sandbox: SandboxSync, echo: Any
) -> None:
    program = "import urllib.request as u; u.urlopen('https://a.example.com/py')"
    run(sandbox, f'python3 -c "{program}"')
    headers = {name.lower(): value for name, value in echo.seen[-1]["headers"].items()}
    assert headers["authorization"] == f"Bearer {TOKEN}"


def test_a_path_that_may_be_another_one_goes_nowhere(sandbox: SandboxSync, echo: Any) -> None:
    before = len(echo.seen)
    answer = "curl -sS -o /dev/null -w '%{http_code}' --path-as-is https://a.example.com/a/../b"
    assert run(sandbox, answer).strip() == "403"
    assert len(echo.seen) == before


def test_a_binding_that_is_deleted_gives_nothing_any_more(
    sandbox: SandboxSync, echo: Any
) -> None:
    sandbox.credential_vault.patch(bindings={"delete": ["a"]})
    # Nobody stands between any more, and the sandbox does not trust the host itself.
    run(sandbox, "curl -sSk https://a.example.com/after")
    names = {name.lower() for name in echo.seen[-1]["headers"]}
    assert "authorization" not in names
