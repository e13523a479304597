"""What a vault survives, where its secrets come from, and where they must never be."""

from __future__ import annotations

import contextlib
import http.server
import json
import os
import pathlib
import resource
import signal
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator
from typing import Any

import pytest
from company import Authority, connection, header, made, run, uses
from internet import PRIVATE, Internet, inside
from leaks import holds
from opensandbox import SandboxSync
from opensandbox.exceptions import SandboxApiException
from served import Server, serving

SECRET = "n3ver-s33n-again"
URL = "https://a.example.com"


@contextlib.contextmanager
def served(world: Internet, authority: Authority, vault: str, **variables: str) -> Iterator[Server]:
    """A server that trusts the host, with these settings for vaults and this environment."""
    config = authority.place / f"{abs(hash(vault))}.toml"
    trust = f'extra-ca = "{authority.certificate}"\n'
    config.write_text(f"{world.config.read_text()}{trust}[egress.vault]\n{vault}\n")
    before = dict(os.environ)
    os.environ.update(variables)
    try:
        with inside(world.home), serving("--config", str(config)) as server:
            yield server
    finally:
        os.environ.clear()
        os.environ.update(before)


def binding(**match: Any) -> dict[str, Any]:
    match.setdefault("hosts", ["a.example.com"])
    return {"name": "b", "match": match, "auth": {"type": "bearer", "credential": "t"}}


def fill(sandbox: SandboxSync, **match: Any) -> Any:
    return sandbox.credential_vault.create(
        credentials=[{"name": "t", "source": {"value": SECRET}}], bindings=[binding(**match)]
    )


def post(sandbox: SandboxSync, body: Any, **headers: str) -> tuple[int, Any]:
    """A vault as no published client writes it."""
    endpoint = sandbox.get_endpoint(18080)
    request = urllib.request.Request(
        f"http://{endpoint.endpoint}/credential-vault",
        method="POST",
        data=json.dumps(body).encode(),
        headers={"Content-Type": "application/json", **endpoint.headers, **headers},
    )
    try:
        with urllib.request.urlopen(request) as answer:
            return answer.status, json.loads(answer.read())
    except urllib.error.HTTPError as error:
        return error.code, json.loads(error.read())


def sent(sandbox: SandboxSync, echo: Any, path: str = "/") -> str | None:
    """What the host is sent as authorization."""
    run(sandbox, f"curl -sSf {URL}{path} -o /dev/null")
    return header(echo.seen[-1], "authorization")


@pytest.mark.parametrize("persist", [True, False])
def test_a_vault_outlives_the_server_only_if_the_operator_wants_it(
    world: Internet, authority: Authority, echo: Any, persist: bool
) -> None:
    with served(world, authority, f"persist = {str(persist).lower()}") as server:
        with made(server, "a.example.com") as sandbox:
            state = fill(sandbox)
            assert sent(sandbox, echo) == f"Bearer {SECRET}"
            server.kill()
            server.start()
            if persist:
                assert sandbox.credential_vault.get() == state
                assert sent(sandbox, echo) == f"Bearer {SECRET}"
            else:
                with pytest.raises(SandboxApiException) as caught:
                    sandbox.credential_vault.get()
                assert caught.value.status_code == 404
                assert sent(sandbox, echo) is None
                # It is made again, and the sandbox trusts the new server as it did the old one.
                fill(sandbox)
                assert sent(sandbox, echo) == f"Bearer {SECRET}"
            sandbox.kill()


def test_a_vault_is_there_after_a_pause_and_not_after_a_snapshot(
    world: Internet, authority: Authority, echo: Any
) -> None:
    with served(world, authority, "") as server, made(server, "a.example.com") as sandbox:
        state = fill(sandbox)
        sandbox.pause()
        with SandboxSync.resume(sandbox.id, connection_config=connection(server)) as resumed:
            assert resumed.credential_vault.get() == state
            assert sent(resumed, echo) == f"Bearer {SECRET}"
            snapshot = resumed.create_snapshot()
            with made(server, "a.example.com", image=None, snapshot_id=snapshot.id) as restored:
                with pytest.raises(SandboxApiException) as caught:
                    restored.credential_vault.get()
                assert caught.value.status_code == 404
                assert sent(restored, echo) is None
                fill(restored)
                assert sent(restored, echo) == f"Bearer {SECRET}"
                restored.kill()
            resumed.kill()


def test_plain_http_gets_credentials_only_if_the_operator_says_so(
    world: Internet, authority: Authority
) -> None:
    for vault, is_open in [("", False), ("plain-http = true\npersist = true", True)]:
        with served(world, authority, vault) as server, made(server, "a.example.com") as sandbox:
            if not is_open:
                with pytest.raises(SandboxApiException) as caught:
                    fill(sandbox, schemes=["http"])
                assert caught.value.status_code == 400
                assert "plain-http" in caught.value.error.message
                continue
            fill(sandbox, schemes=["http"])
            said = run(sandbox, "curl -sS http://a.example.com/authorization")
            assert said.strip() == "Bearer [REDACTED]"
            # Over TLS it was not bound.
            config = pathlib.Path(server.options[1])
            config.write_text(config.read_text().replace("plain-http = true", ""))
            server.kill()
            server.start()
            said = run(sandbox, "curl -sS -w '%{http_code}' http://a.example.com/authorization")
            assert "plain HTTP" in said and said.endswith("403"), said
            assert "plain HTTP" in uses(server, sandbox)[-1]["withheld"]
            sandbox.kill()


def test_who_makes_a_sandbox_may_ask_more_of_its_vault(world: Internet, authority: Authority) -> None:
    prefix = "OPENSANDBOX_EGRESS_CREDENTIAL_VAULT_"
    env = {f"{prefix}REQUIRE_SCOPED_MATCH": "true"}
    with served(world, authority, "") as server:
        with made(server, "a.example.com", env=env) as sandbox:
            for _ in range(2):
                with pytest.raises(SandboxApiException) as caught:
                    fill(sandbox)
                assert "scoped" in caught.value.error.message
                # It is not forgotten.
                server.kill()
                server.start()
            fill(sandbox, methods=["GET"], paths=["/x/*"])
            assert prefix not in run(sandbox, "env")
            sandbox.kill()
        env = {f"{prefix}REQUIRE_TLS": "1", f"{prefix}TRUSTED_PROXY_CIDRS": "192.0.2.0/24"}
        with made(server, "a.example.com", env=env) as sandbox:
            # From this host, which nobody listens to.
            fill(sandbox)
            sandbox.kill()
        with pytest.raises(SandboxApiException) as caught:
            made(server, "a.example.com", env={f"{prefix}TRUSTED_PROXY_CIDRS": "proxy"})
        assert caught.value.status_code == 400


class Store(http.server.BaseHTTPRequestHandler):
    """Speaks like the store that the sources are named after."""

    secrets = {
        "/v1/kv/gh": {"data": {"token": SECRET}, "lease_duration": 2764800},
        "/v1/secret/data/gh": {"data": {"data": {"token": SECRET}, "metadata": {"version": 1}}},
    }

    def do_GET(self) -> None:
        self.server.asked.append(self.path)
        is_ours = self.headers.get("X-Vault-Token") == "operator-token"
        is_ours = is_ours and self.headers.get("X-Vault-Namespace") == "team-a"
        known = self.secrets.get(self.path) if is_ours else None
        text = json.dumps(known or {"errors": []}).encode()
        self.send_response(200 if known else 403)
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture(scope="module")
def store(world: Internet, authority: Authority) -> Iterator[Any]:
    with inside(world.away):
        server = http.server.ThreadingHTTPServer((PRIVATE, 8200), Store)
    context = authority.vouch(PRIVATE)
    server.socket = context.wrap_socket(server.socket, server_side=True)
    server.asked = []
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield server
    server.shutdown()
    server.server_close()


SOURCES = f"""
env = ["AGENT_*"]
files = "DIRECTORY"

[egress.vault.store]
address = "https://{PRIVATE}:8200"
token-env = "STORE_TOKEN"
namespace = "team-a"
paths = ["kv", "secret/data"]
"""


def test_secrets_come_from_where_the_operator_keeps_them(
    world: Internet, authority: Authority, echo: Any, store: Any, tmp_path: pathlib.Path
) -> None:
    (tmp_path / "gh").write_text(f"{SECRET}\n")
    variables = {"AGENT_GH": SECRET, "STORE_TOKEN": "operator-token"}
    vault = SOURCES.replace("DIRECTORY", str(tmp_path))
    with served(world, authority, vault, **variables) as server:
        for source in [
            {"type": "env", "name": "AGENT_GH"},
            {"type": "file", "path": "gh"},
            {"type": "vault", "path": "kv/gh", "field": "token"},
            {"type": "vault", "path": "secret/data/gh", "field": "token"},
        ]:
            with made(server, "a.example.com") as sandbox:
                body = {"credentials": [{"name": "t", "source": source}], "bindings": [binding()]}
                assert post(sandbox, body)[0] == 201
                assert sent(sandbox, echo) == f"Bearer {SECRET}", source
                sandbox.kill()
        # What cannot be had stops the request, and says nothing of why to the sandbox.
        before = len(echo.seen)
        with made(server, "a.example.com") as sandbox:
            source = {"type": "vault", "path": "kv/other", "field": "token"}
            body = {"credentials": [{"name": "t", "source": source}], "bindings": [binding()]}
            assert post(sandbox, body)[0] == 201
            said = run(sandbox, f"curl -sS -w '%{{http_code}}' {URL}/")
            assert said.endswith("502") and "operator-token" not in said
            (entry,) = uses(server, sandbox)
            assert (entry["action"], entry["withheld"]) == ("deny", "it cannot be had")
            sandbox.kill()
        assert len(echo.seen) == before
        assert "operator-token" not in server.log.read_text()
    assert {"/v1/kv/gh", "/v1/secret/data/gh", "/v1/kv/other"} == set(store.asked)


def test_a_secret_is_in_no_log_no_file_and_no_core_dump(
    world: Internet,
    authority: Authority,
    echo: Any,
    tmp_path: pathlib.Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # Whatever the kernel writes down when the server crashes, it writes here.
    monkeypatch.chdir(tmp_path)
    limit = resource.getrlimit(resource.RLIMIT_CORE)
    resource.setrlimit(resource.RLIMIT_CORE, (limit[1], limit[1]))
    try:
        with served(world, authority, "persist = true", OSB_LOG="trace") as server:
            with made(server, "a.example.com") as sandbox:
                state = fill(sandbox)
                shown = [state.model_dump_json(), sandbox.credential_vault.get().model_dump_json()]
                assert sent(sandbox, echo) == f"Bearer {SECRET}"
                shown.append(run(sandbox, f"curl -sSi {URL}/echoed"))
                run(sandbox, f"curl -sS --path-as-is {URL}/a/../b")
                wrong = {"name": "u", "source": {"value": SECRET, "type": SECRET}}
                shown.append(str(post(sandbox, {"credentials": [wrong]})))
                shown.append(str(post(sandbox, {"credentials": SECRET})))
                sandbox.credential_vault.patch(
                    credentials={"replace": [{"name": "t", "source": {"value": SECRET}}]}
                )
                for path in ["egress/log", "networkpolicy", ""]:
                    answer = server.call("GET", f"/v1/sandboxes/{sandbox.id}/{path}".rstrip("/"))
                    shown.append(answer.body.decode())
                shown.append(server.call("GET", "/metrics").body.decode())
                assert not [text for text in shown if SECRET in text]
                assert SECRET not in run(sandbox, "cat /proc/*/environ /proc/*/cmdline | tr '\\0' ' '")
                assert holds(server.data_dir.parent, SECRET) == []

                assert server.process is not None
                filter = pathlib.Path(f"/proc/{server.process.pid}/coredump_filter").read_text()
                assert int(filter, 16) == 0
                server.process.send_signal(signal.SIGABRT)
                server.process.wait()
                assert holds(tmp_path, SECRET) == []
                server.start()
                assert sent(sandbox, echo) == f"Bearer {SECRET}"
                sandbox.kill()
            assert "egress" in server.log.read_text(), "it was asked to say everything"
            assert holds(server.data_dir.parent, SECRET) == []
    finally:
        resource.setrlimit(resource.RLIMIT_CORE, limit)
