"""The credential vault through the published client: what it keeps, shows and refuses."""

from __future__ import annotations

import json
import re
import urllib.error
import urllib.request
from collections.abc import Callable
from typing import Any

import pytest
from opensandbox import SandboxSync
from opensandbox.config import ConnectionConfigSync
from opensandbox.exceptions import SandboxApiException
from opensandbox.models.sandboxes import CredentialProxyConfig, NetworkPolicy, NetworkRule

ALLOWED = ["api.example.com", "*.example.org"]


@pytest.fixture
def sandbox(create: Callable[..., SandboxSync]) -> SandboxSync:
    rules = [NetworkRule(action="allow", target=target) for target in ALLOWED]
    return create(
        network_policy=NetworkPolicy(egress=rules),
        credential_proxy=CredentialProxyConfig(enabled=True),
    )


def credential(name: str, value: str = "hunter2") -> dict[str, Any]:
    return {"name": name, "source": {"value": value}}


def binding(name: str, auth: dict[str, Any], **match: Any) -> dict[str, Any]:
    return {"name": name, "match": {"hosts": ["api.example.com"], **match}, "auth": auth}


def refused(status: int, code: str, call: Callable[[], Any]) -> str:
    with pytest.raises(SandboxApiException) as caught:
        call()
    assert (caught.value.status_code, caught.value.error.code) == (status, code)
    return caught.value.error.message


def raw(sandbox: SandboxSync, method: str, path: str, body: Any = None, **headers: str) -> Any:
    """A request as no client sends it: the status and the body."""
    endpoint = sandbox.get_endpoint(18080)
    request = urllib.request.Request(
        f"http://{endpoint.endpoint}{path}",
        method=method,
        data=None if body is None else json.dumps(body).encode(),
        headers={"Content-Type": "application/json", **endpoint.headers, **headers},
    )
    try:
        with urllib.request.urlopen(request) as answer:
            return answer.status, json.loads(answer.read() or b"null")
    except urllib.error.HTTPError as error:
        return error.code, json.loads(error.read())


def test_a_vault_is_made_read_changed_and_deleted(sandbox: SandboxSync) -> None:
    vault = sandbox.credential_vault
    refused(404, "VAULT::NOT_FOUND", vault.get)
    made = vault.create(
        credentials=[credential("z"), credential("a")],
        bindings=[binding("b", {"type": "bearer", "credential": "a"})],
    )
    assert made.revision == 1
    assert [(c.name, c.source_type, c.revision) for c in made.credentials] == [
        ("a", "inline", 1),
        ("z", "inline", 1),
    ]
    assert made.bindings[0].match.model_dump(exclude_none=True) == {
        "schemes": ["https"],
        "hosts": ["api.example.com"],
        "methods": ["GET", "POST", "PUT", "PATCH", "DELETE"],
        "paths": ["/*"],
    }
    assert vault.get() == made
    assert vault.list_credentials() == made.credentials
    assert vault.list_bindings() == made.bindings
    assert vault.get_credential("a") == made.credentials[0]
    assert vault.get_binding("b") == made.bindings[0]
    refused(409, "VAULT::ALREADY_EXISTS", lambda: vault.create(credentials=[], bindings=[]))

    changed = vault.patch(
        expected_revision=1,
        credentials={"add": [credential("n")], "replace": [credential("a")], "delete": ["z"]},
        bindings={"replace": [binding("b", {"type": "basic", "credential": "n"})]},
    )
    assert (changed.revision, changed.bindings[0].revision) == (2, 2)
    assert [(c.name, c.revision) for c in changed.credentials] == [("a", 2), ("n", 2)]
    assert changed.bindings[0].auth.type == "basic"
    stale = lambda: vault.patch(expected_revision=1)  # noqa: E731
    refused(409, "VAULT::REVISION_MISMATCH", stale)
    assert vault.patch().revision == 3

    vault.delete()
    refused(404, "VAULT::NOT_FOUND", vault.get)
    refused(404, "VAULT::NOT_FOUND", vault.delete)
    again = vault.create(credentials=[], bindings=[])
    assert (again.revision, again.credentials, again.bindings) == (4, [], [])


def test_every_kind_of_auth_and_substitution_is_kept_and_shows_no_secret(
    sandbox: SandboxSync,
) -> None:
    everywhere = [
        {"credential": "c", "placeholder": f"__{place}__", "in": [place]}
        for place in ["path", "query", "header", "body"]
    ]
    kinds = {
        "bearer": {"type": "bearer", "credential": "c"},
        "basic": {"type": "basic", "credential": "c"},
        "key": {"type": "apiKey", "name": "PRIVATE-TOKEN", "credential": "c"},
        "custom": {
            "type": "customHeaders",
            "headers": [{"name": "X-A", "credential": "c"}, {"name": "X-B", "credential": "d"}],
        },
        "none": {"type": "passthrough"},
    }
    bindings = [
        binding(name, {**auth, "substitutions": everywhere}, paths=[f"/{name}/*"])
        for name, auth in kinds.items()
    ]
    state = sandbox.credential_vault.create(
        credentials=[credential("c", "p4ss-c"), credential("d", "p4ss-d")], bindings=bindings
    )
    shown = {b.name: (b.auth.type, b.auth.name) for b in state.bindings}
    assert shown == {
        "bearer": ("bearer", None),
        "basic": ("basic", None),
        "key": ("apiKey", "Private-Token"),
        "custom": ("customHeaders", None),
        "none": ("passthrough", None),
    }
    for path in ["", "/credentials", "/bindings", "/credentials/c", "/bindings/custom"]:
        status, body = raw(sandbox, "GET", f"/credential-vault{path}")
        assert status == 200
        assert not re.search("p4ss|placeholder|__path__|null", json.dumps(body)), body


def test_names_may_have_any_character(sandbox: SandboxSync) -> None:
    name = "git/hub %41 ü?#"
    vault = sandbox.credential_vault
    vault.create(credentials=[credential(name)], bindings=[])
    assert vault.get_credential(name).name == name
    refused(404, "VAULT::NOT_FOUND", lambda: vault.get_credential("git"))
    refused(404, "VAULT::NOT_FOUND", lambda: vault.get_binding(name))


@pytest.mark.parametrize(
    ("credentials", "bindings", "reason"),
    [
        ([credential("a"), credential(" a ")], [], "already"),
        ([], [binding("b", {"type": "bearer", "credential": "x"})], '"x"'),
        ([], [binding("b", {"type": "passthrough"}, hosts=["other.example.net"])], "policy"),
        ([], [binding("b", {"type": "passthrough"}, hosts=["example.org"])], "policy"),
        ([], [binding("b", {"type": "passthrough"}, hosts=["10.0.0.1"])], "address"),
        ([], [binding("b", {"type": "passthrough"}, hosts=["a.example.com:443"])], "':'"),
        ([], [binding("b", {"type": "passthrough"}, ports=[8443])], "8443"),
        ([], [binding("b", {"type": "passthrough"}, paths=["x"])], "begins with /"),
        (
            [credential("a")],
            [binding("b", {"type": "apiKey", "name": "Host", "credential": "a"})],
            "host",
        ),
        (
            [credential("a")],
            [binding(name, {"type": "bearer", "credential": "a"}) for name in "bc"],
            "same requests",
        ),
        (
            [credential("a", "x\ny")],
            [binding("b", {"type": "bearer", "credential": "a"})],
            "line breaks",
        ),
    ],
)
def test_what_cannot_work_is_refused_with_its_reason(
    sandbox: SandboxSync, credentials: list[Any], bindings: list[Any], reason: str
) -> None:
    vault = sandbox.credential_vault
    create = lambda: vault.create(credentials=credentials, bindings=bindings)  # noqa: E731
    assert reason in refused(400, "VAULT::INVALID", create)
    refused(404, "VAULT::NOT_FOUND", vault.get)


def test_a_refused_change_changes_nothing(sandbox: SandboxSync) -> None:
    vault = sandbox.credential_vault
    auth = {"type": "bearer", "credential": "a"}
    before = vault.create(credentials=[credential("a")], bindings=[binding("b", auth)])
    for changes in [
        {"credentials": {"delete": ["a"]}},
        {"credentials": {"delete": ["x"]}},
        {"credentials": {"replace": [credential("x")]}},
        {"credentials": {"add": [credential("n")], "delete": ["n"]}},
        {"bindings": {"add": [binding("c", auth)]}},
        {"bindings": {"delete": ["b", "x"]}},
    ]:
        refused(400, "VAULT::INVALID", lambda changes=changes: vault.patch(**changes))
        assert vault.get() == before


def test_a_policy_that_takes_a_bound_host_away_is_refused(sandbox: SandboxSync) -> None:
    vault = sandbox.credential_vault
    vault.create(credentials=[], bindings=[binding("b", {"type": "passthrough"})])
    with pytest.raises(SandboxApiException) as caught:
        sandbox.delete_egress_rules(["api.example.com"])
    assert caught.value.status_code == 400
    assert len(sandbox.get_egress_policy().egress) == len(ALLOWED)
    vault.delete()
    sandbox.delete_egress_rules(["api.example.com"])


def test_what_is_wrong_is_said_in_one_order(
    create: Callable[..., SandboxSync], sandbox: SandboxSync
) -> None:
    wrong = {"OPENSANDBOX-EGRESS-AUTH": "wrong"}
    for method, path in [("GET", ""), ("POST", ""), ("GET", "/credentials"), ("GET", "/nothing")]:
        status, _ = raw(sandbox, method, f"/credential-vault{path}", **wrong)
        assert status == 401, (method, path)
    # Nobody gets to see this, and nobody has to show a token to learn that.
    assert raw(sandbox, "GET", "/credential-vault/_active", **wrong)[0] == 403
    assert raw(sandbox, "POST", "/credential-vault/_active", {}, **wrong)[0] == 405
    assert raw(sandbox, "GET", "/credential-vault/nothing")[0] == 404
    assert raw(sandbox, "PUT", "/credential-vault", {})[0] == 405

    without = create(network_policy=NetworkPolicy(egress=[]))
    nonsense = {"credentials": 5}
    for method in ["POST", "PATCH", "DELETE"]:
        status, body = raw(without, method, "/credential-vault", nonsense)
        assert (status, body["code"]) == (412, "VAULT::NOT_READY")
    assert raw(without, "GET", "/credential-vault")[0] == 404

    status, body = raw(sandbox, "POST", "/credential-vault", {"credentials": "hunter2"})
    assert (status, body["code"]) == (400, "VAULT::INVALID")
    assert "hunter2" not in body["message"]
    assert raw(sandbox, "POST", "/credential-vault", {"credential": []})[0] == 400
    assert raw(sandbox, "POST", "/credential-vault", {})[0] == 201
    unknown = {"credentials": [{"name": "", "source": {"value": ""}}]}
    assert raw(sandbox, "POST", "/credential-vault", unknown)[0] == 409


def test_sources_are_closed_until_the_operator_opens_them(sandbox: SandboxSync) -> None:
    for source in [
        {"type": "env", "name": "PATH"},
        {"type": "file", "path": "passwd"},
        {"type": "vault", "path": "secret/data/x", "field": "y"},
    ]:
        body = {"credentials": [{"name": "a", "source": source}]}
        status, answer = raw(sandbox, "POST", "/credential-vault", body)
        assert (status, answer["code"]) == (400, "VAULT::INVALID")
        assert "operator" in answer["message"]


def test_a_credential_proxy_needs_a_network_policy(create: Callable[..., SandboxSync]) -> None:
    with pytest.raises(SandboxApiException) as caught:
        create(credential_proxy=CredentialProxyConfig(enabled=True))
    assert caught.value.status_code == 422


def test_pausing_keeps_the_vault(
    sandbox: SandboxSync, connection: ConnectionConfigSync
) -> None:
    before = sandbox.credential_vault.create(credentials=[credential("a")], bindings=[])
    sandbox.pause()
    assert sandbox.credential_vault.get() == before
    with SandboxSync.resume(sandbox.id, connection_config=connection) as resumed:
        assert resumed.credential_vault.get() == before
