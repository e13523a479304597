"""Credentials on their way: put in after a request has left, taken out of the answer."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from company import header, made, run, trusting_server, uses
from opensandbox import SandboxSync
from served import Server

__all__ = ["trusting_server"]

TOKEN = "hunter2-and-more"
BODY = 'a "quoted" secret/42'


@pytest.fixture(scope="module")
def sandbox(server: Server) -> Iterator[SandboxSync]:
    """A sandbox with credentials for the host."""
    with made(server, "a.example.com") as sandbox:
        places = [{"credential": "b", "placeholder": "__B__", "in": ["query", "body"]}]
        auth = {"type": "bearer", "credential": "t", "substitutions": places}
        sandbox.credential_vault.create(
            credentials=[
                {"name": "t", "source": {"value": TOKEN}},
                {"name": "b", "source": {"value": BODY}},
            ],
            bindings=[{"name": "a", "match": {"hosts": ["a.example.com"]}, "auth": auth}],
        )
        yield sandbox
        sandbox.kill()


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
    assert header(echo.seen[-1], "authorization") == f"Bearer {TOKEN}"


def test_a_path_that_may_be_another_one_goes_nowhere(sandbox: SandboxSync, echo: Any) -> None:
    before = len(echo.seen)
    answer = "curl -sS -o /dev/null -w '%{http_code}' --path-as-is https://a.example.com/a/../b"
    assert run(sandbox, answer).strip() == "403"
    assert len(echo.seen) == before


def test_what_lies_across_the_borders_of_pieces_is_found(sandbox: SandboxSync, echo: Any) -> None:
    program = """
import http.client, ssl
line = http.client.HTTPSConnection("a.example.com", context=ssl.create_default_context())
text = "before __B__ between __B__ after"
line.request("POST", "/in-pieces", (letter.encode() for letter in text), {"Content-Type": "text/plain"})
print(line.getresponse().read().decode())
"""
    sandbox.files.write_file("/tmp/pieces.py", program)
    said = run(sandbox, "python3 /tmp/pieces.py")
    assert echo.seen[-1]["body"] == f"before {BODY} between {BODY} after"
    assert "before [REDACTED] between [REDACTED] after" in said
    assert "quoted" not in said and TOKEN not in said


def test_the_handshake_of_a_websocket_gets_its_secret(sandbox: SandboxSync, echo: Any) -> None:
    program = """
import socket, ssl
line = ssl.create_default_context().wrap_socket(
    socket.create_connection(("a.example.com", 443)), server_hostname="a.example.com")
line.sendall(b"GET /ws HTTP/1.1\\r\\nHost: a.example.com\\r\\nConnection: Upgrade\\r\\n"
    b"Upgrade: websocket\\r\\nSec-WebSocket-Version: 13\\r\\n"
    b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\\r\\n\\r\\n")
answer = line.makefile("rb")
assert b" 101 " in answer.readline()
while answer.readline().strip():
    pass
line.sendall(b"\\x81\\x85\\x00\\x00\\x00\\x00hello")
print(answer.read(7)[2:].decode())
"""
    sandbox.files.write_file("/tmp/ws.py", program)
    assert run(sandbox, "python3 /tmp/ws.py").strip() == "hello"
    assert header(echo.seen[-1], "authorization") == f"Bearer {TOKEN}"


SECRETS = {"k": "s3cret-k", "u": "dXNlcjpwYXNz", "s": 'p/ss "w"'}
EVERYWHERE = {place: f"__{place}__" for place in ["path", "query", "header", "body"]}


@pytest.mark.parametrize(
    ("auth", "sent"),
    [
        ({"type": "bearer", "credential": "k"}, {"Authorization": "Bearer s3cret-k"}),
        ({"type": "basic", "credential": "u"}, {"Authorization": "Basic dXNlcjpwYXNz"}),
        ({"type": "apiKey", "name": "PRIVATE-TOKEN", "credential": "k"}, {"Private-Token": "s3cret-k"}),
        (
            {
                "type": "customHeaders",
                "headers": [{"name": "X-A", "credential": "k"}, {"name": "X-B", "credential": "u"}],
            },
            {"X-A": "s3cret-k", "X-B": "dXNlcjpwYXNz"},
        ),
        ({"type": "passthrough"}, {"Authorization": "of the program"}),
    ],
    ids=lambda value: value.get("type", ""),
)
def test_every_kind_sends_its_headers_and_substitutes_everywhere(
    server: Server, echo: Any, auth: dict[str, Any], sent: dict[str, str]
) -> None:
    # A slash would make another path of it.
    secrets = {**SECRETS, "path": "tenant 42"}
    substitutions = [
        {"credential": "path" if place == "path" else "s", "placeholder": text, "in": [place]}
        for place, text in EVERYWHERE.items()
    ]
    with made(server, "a.example.com") as sandbox:
        sandbox.credential_vault.create(
            credentials=[{"name": n, "source": {"value": v}} for n, v in secrets.items()],
            bindings=[
                {
                    "name": "b",
                    "match": {"hosts": ["a.example.com"]},
                    "auth": {**auth, "substitutions": substitutions},
                }
            ],
        )
        said = run(
            sandbox,
            "curl -sS 'https://a.example.com/__path__/x?q=__query__&p=__path__' -H 'X-S: a __header__'"
            " -H 'Authorization: of the program' -H 'Content-Type: application/json'"
            """ -d '{"k": "__body__ __query__"}'""",
        )
        seen = echo.seen[-1]
        assert seen["path"] == "/tenant%2042/x?q=p%2Fss%20%22w%22&p=__path__"
        assert header(seen, "x-s") == 'a p/ss "w"'
        assert json.loads(seen["body"]) == {"k": 'p/ss "w" __query__'}
        assert {name: header(seen, name) for name in sent} == sent
        for secret in ["s3cret", "dXNlcjpwYXNz", "user:pass", 'ss \\"w', "tenant%2042"]:
            assert secret not in said, said

        form = "-H 'Content-Type: application/x-www-form-urlencoded' -d 'a=__body__&b=c'"
        run(sandbox, f"curl -sS https://a.example.com/form {form}")
        assert echo.seen[-1]["body"] == "a=p%2Fss+%22w%22&b=c"
        plain = "-H 'Content-Type: text/plain' -d 'a __body__'"
        run(sandbox, f"curl -sS https://a.example.com/plain {plain}")
        assert echo.seen[-1]["body"] == 'a p/ss "w"'
        sandbox.kill()


def test_every_use_is_written_down_without_secrets(server: Server, sandbox: SandboxSync) -> None:
    run(sandbox, "curl -sS -o /dev/null 'https://a.example.com/used?q=__B__'")
    run(sandbox, "curl -sS -o /dev/null --path-as-is 'https://a.example.com/used/../x'")
    entries = {entry["path"]: entry for entry in uses(server, sandbox)}
    given, withheld = entries["/used"], entries["/used/../x"]
    for entry in (given, withheld):
        assert (entry["name"], entry["port"], entry["method"]) == ("a.example.com", 443, "GET")
        assert (entry["reason"], entry["binding"]) == ("binding", "a")
        assert entry["credentials"] == ["t", "b"]
    assert (given["action"], given["status"]) == ("allow", 200)
    assert withheld["action"] == "deny" and "path" in withheld["withheld"]
    assert TOKEN not in json.dumps(entries) and "quoted" not in json.dumps(entries)


def test_a_binding_that_is_deleted_gives_nothing_any_more(
    sandbox: SandboxSync, echo: Any
) -> None:
    sandbox.credential_vault.patch(bindings={"delete": ["a"]})
    run(sandbox, "curl -sS https://a.example.com/after")
    assert header(echo.seen[-1], "authorization") is None
