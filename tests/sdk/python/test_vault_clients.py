"""The vault and the policy through both published Python clients, with every method that they have."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from clients import Box
from opensandbox.exceptions import SandboxApiException
from opensandbox.models.sandboxes import CredentialProxyConfig, NetworkPolicy, NetworkRule

SECRET = "hunter2-of-the-python-clients"


@pytest.fixture(params=["direct", "through-the-server"])
def way(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture
def box(make_box: Callable[..., Box]) -> Box:
    rules = [NetworkRule(action="allow", target="api.example.com")]
    return make_box(
        network_policy=NetworkPolicy(egress=rules),
        credential_proxy=CredentialProxyConfig(enabled=True),
    )


def credential(name: str) -> dict[str, Any]:
    return {"name": name, "source": {"value": SECRET}}


def binding(name: str, auth: dict[str, Any], **match: Any) -> dict[str, Any]:
    return {"name": name, "match": {"hosts": ["api.example.com"], **match}, "auth": auth}


def refused(status: int, code: str, call: Callable[[], Any]) -> None:
    with pytest.raises(SandboxApiException) as caught:
        call()
    assert (caught.value.status_code, caught.value.error.code) == (status, code)


def test_a_vault_is_made_read_changed_and_deleted(box: Box) -> None:
    refused(404, "VAULT::NOT_FOUND", lambda: box.vault.get())
    made = box.vault.create(
        credentials=[credential("a"), credential("b")],
        bindings=[binding("one", {"type": "bearer", "credential": "a"})],
    )
    assert made.revision == 1
    assert box.vault.get() == made
    assert box.vault.list_credentials() == made.credentials
    assert box.vault.list_bindings() == made.bindings
    assert box.vault.get_credential("b") == made.credentials[1]
    assert box.vault.get_binding("one") == made.bindings[0]
    assert SECRET not in made.model_dump_json()
    refused(
        409, "VAULT::ALREADY_EXISTS", lambda: box.vault.create(credentials=[], bindings=[])
    )

    auth = {"type": "apiKey", "name": "X-KEY", "credential": "git/hub ü"}
    changed = box.vault.patch(
        expected_revision=1,
        credentials={"add": [credential("git/hub ü")], "delete": ["b"]},
        bindings={"add": [binding("two", auth, methods=["HEAD"])]},
    )
    assert changed.revision == 2
    assert box.vault.get_binding("two").auth.name == "X-Key"
    assert box.vault.get_credential("git/hub ü").revision == 2
    refused(409, "VAULT::REVISION_MISMATCH", lambda: box.vault.patch(expected_revision=1))
    refused(
        400, "VAULT::INVALID", lambda: box.vault.patch(credentials={"delete": ["a"]})
    )
    box.vault.delete()
    refused(404, "VAULT::NOT_FOUND", lambda: box.vault.delete())


def test_the_policy_is_read_and_changed(box: Box) -> None:
    box.whole.patch_egress_rules([NetworkRule(action="allow", target="*.example.org")])

    def targets() -> list[str]:
        return [rule.target for rule in box.whole.get_egress_policy().egress]

    assert targets() == ["*.example.org", "api.example.com"]
    box.whole.delete_egress_rules(["*.example.org"])
    assert targets() == ["api.example.com"]
