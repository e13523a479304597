"""Rules about single requests: which methods and paths of a host a sandbox may ask for."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any

import pytest
from internet import PUBLIC, Internet, inside
from opensandbox import SandboxSync
from opensandbox.config import ConnectionConfigSync
from opensandbox.models.execd import RunCommandOpts
from opensandbox.models.sandboxes import CredentialProxyConfig, NetworkPolicy, NetworkRule
from served import Server, osb, serving, wait_for

HOST = "a.example.com"
TOKEN = "hunter2-and-more"
READ = {"action": "allow", "target": HOST, "methods": ["GET"], "paths": ["/repos/*", "/user"]}


@pytest.fixture(scope="module")
def trusting(world: Internet, authority: Any, echo: Any) -> Iterator[Server]:
    """A server that trusts the host."""
    os.environ["SSL_CERT_FILE"] = str(authority.certificate)
    try:
        with inside(world.home), serving("--config", str(world.config)) as server:
            del os.environ["SSL_CERT_FILE"]
            yield server
    finally:
        os.environ.pop("SSL_CERT_FILE", None)


@pytest.fixture
def make(trusting: Server) -> Iterator[Callable[..., SandboxSync]]:
    """Makes sandboxes by plain HTTP: the published clients do not know such rules."""
    made: list[str] = []

    def make(*rules: dict[str, Any], default: str = "deny", **more: Any) -> SandboxSync:
        policy = {"defaultAction": default, "egress": list(rules)}
        request = {
            "image": {"uri": "host"},
            "entrypoint": ["sleep", "infinity"],
            "resourceLimits": {},
            "timeout": 600,
            "networkPolicy": policy,
        }
        answer = trusting.call("POST", "/v1/sandboxes", request | more)
        assert answer.status == 202, answer
        made.append(answer.json()["id"])
        return SandboxSync.connect(made[-1], connection_config=connection(trusting))

    yield make
    for sandbox in made:
        trusting.call("DELETE", f"/v1/sandboxes/{sandbox}")


def connection(server: Server) -> ConnectionConfigSync:
    return ConnectionConfigSync(domain=server.domain, api_key=server.api_key)


def run(sandbox: SandboxSync, command: str) -> str:
    done = sandbox.commands.run(command)
    said = "\n".join(message.text for message in done.logs.stdout)
    assert done.exit_code == 0, (said, [message.text for message in done.logs.stderr])
    return said


def status(sandbox: SandboxSync, *arguments: str) -> list[str]:
    """The statuses that curl gets, all on one connection if it can."""
    words = " ".join(arguments)
    return run(sandbox, f"curl -sS -w '%{{http_code}}\\n' -o /dev/null {words}").split()


def policy(server: Server, sandbox: SandboxSync) -> list[dict[str, Any]]:
    answer = server.call("GET", f"/v1/sandboxes/{sandbox.id}/networkpolicy")
    return answer.json()["policy"]["egress"]


def change(server: Server, sandbox: SandboxSync, *rules: dict[str, Any]) -> Any:
    return server.call("PATCH", f"/v1/sandboxes/{sandbox.id}/networkpolicy", list(rules))


def requests(server: Server, sandbox: SandboxSync) -> list[tuple[str, str, str]]:
    decisions = server.call("GET", f"/v1/sandboxes/{sandbox.id}/egress/log").json()["decisions"]
    found = [it for it in decisions if it["protocol"] == "http"]
    return [(it["method"], it["path"], it["action"]) for it in found]


def osb_says(server: Server, *words: str) -> str:
    known = {"OPEN_SANDBOX_DOMAIN": server.domain, "OPEN_SANDBOX_API_KEY": server.api_key}
    done = subprocess.run(
        [osb(), "egress", *words], env=os.environ | known, check=True, capture_output=True, text=True
    )
    return done.stdout


def test_only_what_a_rule_names_may_be_asked(make: Any, trusting: Server, echo: Any) -> None:
    sandbox = make(READ)
    url = f"https://{HOST}"
    before = len(echo.seen)
    asked = status(
        sandbox, f"{url}/repos/a?token=1 --next -sS -w '%{{http_code}}\\n' -o /dev/null {url}/admin"
    )
    assert asked == ["200", "403"]
    assert status(sandbox, "-d x", f"{url}/user") == ["403"]
    assert status(sandbox, "--path-as-is", f"{url}/repos/../admin") == ["403"]
    assert status(sandbox, "--path-as-is", f"{url}/repos/%2e%2e/admin") == ["403"]
    assert status(sandbox, "-H 'X-HTTP-Method-Override: DELETE'", f"{url}/user") == ["403"]
    assert status(sandbox, "-H 'Host: b.example.com'", f"{url}/user") == ["421"]
    assert [seen["path"] for seen in echo.seen[before:]] == ["/repos/a?token=1"]
    refusal = json.loads(run(sandbox, f"curl -sS -X PUT {url}/repos/x"))
    assert refusal["rule"] is None and "PUT a.example.com/repos/x is refused" in refusal["message"]
    # What it says would allow it does so, at once.
    assert change(trusting, sandbox, refusal["allowedBy"], READ).status == 200
    assert status(sandbox, "-X POST", f"{url}/repos/x") == ["403"]
    seen = requests(trusting, sandbox)
    assert ("GET", "/repos/a", "allow") in seen and ("PUT", "/repos/x", "deny") in seen
    assert "token" not in json.dumps(seen)


def test_plain_http_and_other_ports_are_judged_too(make: Any) -> None:
    sandbox = make(READ, READ | {"ports": [8080], "paths": ["/open"]})
    for url, expected in [
        (f"http://{HOST}/user", "200"),
        (f"http://{HOST}/x", "403"),
        (f"http://{HOST}:8080/open", "200"),
        (f"http://{HOST}:8080/user", "403"),
    ]:
        assert status(sandbox, url) == [expected], url
    # A rule about requests opens no other port, and nothing else than requests.
    refused = "curl -sS -m 10 telnet://{} </dev/null >/dev/null 2>&1; echo $?"
    assert run(sandbox, refused.format(f"{HOST}:22")).strip() != "0"
    said = run(sandbox, f"(printf 'SSH-2.0-x\\r\\n'; sleep 1) | curl -s -m 10 telnet://{HOST}:80 || true")
    assert PUBLIC not in said


def test_clients_that_do_not_know_such_rules_keep_them(make: Any, trusting: Server) -> None:
    sandbox = make(READ)
    [rule] = sandbox.get_egress_policy().egress
    assert (rule.action, rule.target) == ("allow", HOST)
    sandbox.patch_egress_rules([NetworkRule(action="allow", target="b.example.com")])
    assert policy(trusting, sandbox) == [{"action": "allow", "target": "b.example.com"}, READ]
    sandbox.delete_egress_rules(["b.example.com"])
    assert policy(trusting, sandbox) == [READ]
    assert status(sandbox, f"https://{HOST}/admin") == ["403"]


def test_a_change_counts_for_connections_that_are_open(make: Any, trusting: Server) -> None:
    sandbox = make(READ)
    program = f"""
import http.client, sys
connection = http.client.HTTPSConnection("{HOST}")
for line in sys.stdin:
    connection.request("GET", line.strip())
    answer = connection.getresponse()
    answer.read()
    print(answer.status, flush=True)
"""
    sandbox.files.write_file("/tmp/ask.py", program)
    sandbox.files.write_file("/tmp/go", "")
    sandbox.commands.run(
        "tail -n +1 -f /tmp/go | timeout 60 python3 /tmp/ask.py > /tmp/out 2>&1",
        opts=RunCommandOpts(background=True),
    )

    def ask(path: str, count: int) -> str:
        run(sandbox, f"echo {path} >> /tmp/go")
        lines = lambda: run(sandbox, "cat /tmp/out").split()
        return wait_for("an answer", lambda: lines()[count - 1 : count])[0]

    assert ask("/user", 1) == "200"
    assert change(trusting, sandbox, READ | {"paths": ["/repos/*"]}).status == 200
    assert ask("/user", 2) == "403"
    assert ask("/repos/1", 3) == "200"


def test_a_rule_that_denies_some_requests_leaves_the_rest(make: Any) -> None:
    sandbox = make(
        {"action": "deny", "target": HOST, "paths": ["/admin*"]}, {"action": "allow", "target": HOST}
    )
    url = f"https://{HOST}"
    assert status(sandbox, "-X POST", f"{url}/user") == ["200"]
    for path in ["/admin", "/ADMIN/x", "//admin", "/%61dmin", "/x/../admin", "/admin;x"]:
        assert status(sandbox, "--path-as-is", f"'{url}{path}'") == ["403"], path


def test_rules_come_before_credentials(trusting: Server, echo: Any) -> None:
    with SandboxSync.create(
        "host",
        timeout=timedelta(minutes=10),
        network_policy=NetworkPolicy(egress=[NetworkRule(action="allow", target=HOST)]),
        credential_proxy=CredentialProxyConfig(enabled=True),
        connection_config=connection(trusting),
    ) as sandbox:
        binding = {"hosts": [HOST], "methods": ["GET", "POST"]}
        sandbox.credential_vault.create(
            credentials=[{"name": "t", "source": {"value": TOKEN}}],
            bindings=[
                {"name": "a", "match": binding, "auth": {"type": "bearer", "credential": "t"}}
            ],
        )
        # A sandbox with a vault trusts the server, so such a rule may come later.
        assert change(trusting, sandbox, READ).status == 200
        before = len(echo.seen)
        assert status(sandbox, f"https://{HOST}/user") == ["200"]
        assert status(sandbox, "-d x", f"https://{HOST}/user") == ["403"]
        [seen] = echo.seen[before:]
        headers = {name.lower(): value for name, value in seen["headers"].items()}
        assert headers["authorization"] == f"Bearer {TOKEN}"
        sandbox.kill()


def test_a_sandbox_that_does_not_trust_the_server_gets_no_such_rule(
    make: Any, trusting: Server
) -> None:
    sandbox = make({"action": "allow", "target": HOST})
    answer = change(trusting, sandbox, READ)
    assert answer.status == 400 and "do not trust the server" in answer.json()["message"]
    assert policy(trusting, sandbox) == [{"action": "allow", "target": HOST}]


def test_rules_that_cannot_be_meant_are_refused(make: Any, trusting: Server) -> None:
    sandbox = make(READ)
    for rule, why in [
        (READ | {"methods": []}, "methods"),
        (READ | {"methods": ["CONNECT"]}, "never passed on"),
        (READ | {"paths": ["repos"]}, "begins with /"),
        (READ | {"paths": ["/a/../b"]}, "dot segments"),
        (READ | {"target": "10.0.0.1"}, "asked of names"),
        (READ | {"query": ["a"]}, "unknown field"),
    ]:
        answer = change(trusting, sandbox, rule)
        assert answer.status == 400 and why in answer.json()["message"], (rule, answer)
    assert policy(trusting, sandbox) == [READ]


def test_the_command_line_writes_shows_and_learns_them(make: Any, trusting: Server) -> None:
    sandbox = make(READ)
    words = [sandbox.id, HOST, "--method", "GET", "--method", "POST", "--path", "/a/*"]
    osb_says(trusting, "allow", *words, "--replace")
    written = {"action": "allow", "target": HOST, "methods": ["GET", "POST"], "paths": ["/a/*"]}
    assert policy(trusting, sandbox) == [written]
    assert "GET,POST" in osb_says(trusting, "policy", sandbox.id)
    assert status(sandbox, "-X POST", f"https://{HOST}/a/1") == ["200"]
    assert status(sandbox, f"https://{HOST}/b?secret=1") == ["403"]
    log = osb_says(trusting, "log", sandbox.id)
    assert f"POST {HOST}:443/a/1" in log and f"GET {HOST}:443/b" in log and "secret" not in log
    learnt = json.loads(osb_says(trusting, "learn", sandbox.id))["egress"]
    rule = {"action": "allow", "target": HOST}
    assert learnt == [
        rule | {"methods": ["POST"], "paths": ["/a/1"]},
        rule | {"methods": ["GET"], "paths": ["/b"]},
    ]
