"""What a sandbox may reach, read and changed with every method that the published clients have."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any

import pytest
from clients import KINDS, Blocking
from opensandbox import Sandbox, SandboxSync
from opensandbox.config import ConnectionConfig, ConnectionConfigSync
from opensandbox.exceptions import SandboxApiException
from opensandbox.models.sandboxes import NetworkPolicy, NetworkRule
from served import Server, serving

TOKEN = "OPENSANDBOX-EGRESS-AUTH"


class Client:
    """A client of either kind, and the sandboxes that were made with it."""

    def __init__(self, server: Server, kind: str, through_server: bool) -> None:
        self.server, self.kind = server, kind
        self.runner = asyncio.Runner() if kind == "async" else None
        config = ConnectionConfig if kind == "async" else ConnectionConfigSync
        self.config = config(
            domain=server.domain, api_key=server.api_key, use_server_proxy=through_server
        )
        self.sandboxes: list[Any] = []

    def wait(self, result: Any) -> Any:
        return self.runner.run(result) if inspect.isawaitable(result) else result

    def create(self, **options: Any) -> Any:
        options.setdefault("timeout", timedelta(minutes=10))
        sandbox_class = Sandbox if self.kind == "async" else SandboxSync
        sandbox = self.wait(sandbox_class.create("host", connection_config=self.config, **options))
        self.sandboxes.append(sandbox)
        return Blocking(self.kind, "sandbox", sandbox, self.wait)

    def close(self) -> None:
        for sandbox in self.sandboxes:
            self.server.call("DELETE", f"/v1/sandboxes/{sandbox.id}")
            self.wait(sandbox.close())
        if self.runner:
            self.runner.close()


@pytest.fixture(params=KINDS)
def client(
    server: Server, use_server_proxy: bool, request: pytest.FixtureRequest
) -> Iterator[Client]:
    client = Client(server, request.param, use_server_proxy)
    yield client
    client.close()


def rule(action: str, target: str) -> NetworkRule:
    return NetworkRule(action=action, target=target)


def rules(policy: NetworkPolicy) -> list[tuple[str, str]]:
    assert policy.egress is not None
    return [(rule.action, rule.target) for rule in policy.egress]


def refused(status: int, call: Callable[[], Any]) -> str:
    with pytest.raises(SandboxApiException) as refusal:
        call()
    assert refusal.value.status_code == status, refusal.value
    return str(refusal.value)


def port(server: Server, sandbox: str) -> tuple[str, dict[str, str]]:
    """Where the policy of a sandbox is found, and what must be sent along."""
    endpoint = server.call("GET", f"/v1/sandboxes/{sandbox}/endpoints/18080").json()
    assert f"/sandboxes/{sandbox}/proxy/18080" in endpoint["endpoint"]
    path = endpoint["endpoint"].split("/", 1)[1]
    return f"/{path}/policy", endpoint["headers"]


def test_a_sandbox_without_a_policy_has_one_to_read_and_change(client: Client):
    sandbox = client.create()
    policy = sandbox.get_egress_policy()
    assert (policy.default_action, rules(policy)) == ("allow", [])
    sandbox.patch_egress_rules([rule("deny", "a.example")])
    assert rules(sandbox.get_egress_policy()) == [("deny", "a.example")]


def test_rules_are_merged_and_deleted(client: Client):
    given = NetworkPolicy(
        defaultAction="deny",
        egress=[rule("allow", "pypi.org"), rule("deny", "*.Example.com"), rule("allow", "10.0.0.0/8")],
    )
    sandbox = client.create(network_policy=given)
    policy = sandbox.get_egress_policy()
    assert policy.default_action == "deny"
    assert rules(policy) == rules(given)

    sandbox.patch_egress_rules(
        [rule("allow", "*.example.com"), rule("allow", "new.example"), rule("deny", "NEW.example")]
    )
    assert rules(sandbox.get_egress_policy()) == [
        ("allow", "*.example.com"),
        ("allow", "new.example"),
        ("allow", "pypi.org"),
        ("allow", "10.0.0.0/8"),
    ]
    sandbox.delete_egress_rules(["PyPI.org", "10.0.0.0/8", "nobody.example"])
    sandbox.delete_egress_rules(["nobody.example"])
    assert rules(sandbox.get_egress_policy()) == [
        ("allow", "*.example.com"),
        ("allow", "new.example"),
    ]


def test_a_deletion_of_nothing_says_so(client: Client):
    sandbox = client.create(network_policy=NetworkPolicy(egress=[rule("allow", "a.example")]))
    path, headers = port(client.server, sandbox.id)
    answer = client.server.call("DELETE", path, ["b.example"], key=None, headers=headers)
    assert answer.status == 200
    assert answer.json()["reason"] == "no matching targets found"


def test_a_reset_shows_an_empty_list(client: Client):
    sandbox = client.create(network_policy=NetworkPolicy(egress=[rule("allow", "a.example")]))
    path, headers = port(client.server, sandbox.id)
    answer = client.server.call("POST", path, key=None, headers=headers)
    assert (answer.status, answer.json()["mode"]) == (200, "deny_all")
    policy = sandbox.get_egress_policy()
    assert (policy.default_action, rules(policy)) == ("deny", [])


def test_there_is_room_for_4096_rules(client: Client):
    many = [rule("allow", f"h{n}.example") for n in range(4096)]
    sandbox = client.create(network_policy=NetworkPolicy(egress=many))
    assert "4096" in refused(413, lambda: sandbox.patch_egress_rules([rule("allow", "b.example")]))
    sandbox.patch_egress_rules([rule("deny", "h0.example")])
    assert len(rules(sandbox.get_egress_policy())) == 4096


@pytest.mark.parametrize(
    "target",
    ["https://a.example", "a.example:443", "*foo.example", "*", "bücher.example", "10.0.0.0/40",
     "127.0.0.1", "a.example/path", "127.1"],
)
def test_what_would_never_match_is_refused(client: Client, target: str):
    sandbox = client.create()
    answer = refused(400, lambda: sandbox.patch_egress_rules([rule("allow", target)]))
    assert "rule 1" in answer
    policy = NetworkPolicy(egress=[rule("allow", target)])
    refused(400, lambda: client.create(network_policy=policy))
    assert rules(sandbox.get_egress_policy()) == []


def test_only_the_token_opens_the_port(client: Client):
    sandbox, other = client.create(), client.create()
    server = client.server
    path, headers = port(server, sandbox.id)
    foreign = port(server, other.id)[1]
    for wrong in [{}, {TOKEN: ""}, {TOKEN: headers[TOKEN][:-1]}, {TOKEN: foreign[TOKEN]}]:
        for method in ["GET", "POST", "PUT", "PATCH", "DELETE"]:
            answer = server.call(method, path, key=None, headers=wrong)
            assert (answer.status, answer.json()["code"]) == (401, "EGRESS::UNAUTHORIZED")
    assert server.call("GET", path, key=None, headers=headers).status == 200
    answer = server.call("OPTIONS", path, key=None, headers=headers)
    assert (answer.status, answer.headers["allow"]) == (405, "GET, POST, PUT, PATCH, DELETE")
    healthy = server.call("GET", path.replace("/policy", "/healthz"), key=None)
    assert (healthy.status, healthy.body) == (200, b"ok")


def test_the_sandbox_does_not_see_its_own_port(client: Client):
    sandbox = client.create()
    probe = "python3 -c 'import socket; socket.create_connection((\"127.0.0.1\", 18080), 5)'"
    run = client.wait(sandbox.service.commands.run(probe))
    assert run.exit_code != 0


def test_the_lifecycle_route_does_the_same_with_the_key(client: Client):
    sandbox = client.create()
    path = f"/v1/sandboxes/{sandbox.id}/networkpolicy"
    with_ports = {"action": "allow", "target": "db.example", "ports": [5432]}
    answer = client.server.call("PUT", path, {"egress": [with_ports]})
    assert answer.status == 200
    assert answer.json() == {
        "status": "ok",
        "mode": "enforcing",
        "enforcementMode": "dns+nft",
        "policy": {"defaultAction": "deny", "egress": [with_ports]},
    }
    assert rules(sandbox.get_egress_policy()) == [("allow", "db.example")]
    assert client.server.call("GET", path, key=None).status == 401
    assert client.server.call("DELETE", path, ["db.example"]).json()["policy"]["egress"] == []


def test_a_paused_sandbox_takes_a_policy(client: Client):
    sandbox = client.create()
    sandbox.pause()
    sandbox.patch_egress_rules([rule("deny", "a.example")])
    assert rules(sandbox.get_egress_policy()) == [("deny", "a.example")]


def test_settings_for_other_servers_are_refused_if_they_would_do_nothing(client: Client):
    client.create(env={"OPENSANDBOX_EGRESS_LOG_LEVEL": "debug"})
    for key in ["OPENSANDBOX_EGRESS_RULES", "OPENSANDBOX_EGRESS_DENY_WEBHOOK"]:
        assert key in refused(400, lambda key=key: client.create(env={key: "x"}))


def test_a_policy_survives_the_server(tmp_path):
    settings = tmp_path / "osb.toml"
    settings.write_text("[egress]\ndefault = 'deny'\n")
    with serving("--config", str(settings)) as server:
        config = ConnectionConfigSync(domain=server.domain, api_key=server.api_key)
        policy = NetworkPolicy(defaultAction="allow", egress=[rule("deny", "a.example")])
        with (
            SandboxSync.create("host", connection_config=config, network_policy=policy) as first,
            SandboxSync.create("host", connection_config=config) as second,
        ):
            first.patch_egress_rules([rule("allow", "b.example")])
            before = rules(first.get_egress_policy())
            assert second.get_egress_policy().default_action == "deny"
            server.kill()
            server.start()
            assert rules(first.get_egress_policy()) == before
            assert first.get_egress_policy().default_action == "allow"
            assert rules(second.get_egress_policy()) == []
