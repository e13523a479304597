"""What a sandbox may reach, and what is given to it on the way, with the published command."""

from __future__ import annotations

import json
import pathlib

import pytest
import yaml
from opensandbox import SandboxSync
from opensandbox.models.sandboxes import CredentialProxyConfig, NetworkPolicy, NetworkRule
from published import Published

SECRET = "hunter2-of-the-command"


@pytest.fixture
def box(create) -> SandboxSync:
    rule = NetworkRule(action="allow", target="api.example.com")
    return create(
        network_policy=NetworkPolicy(egress=[rule]),
        credential_proxy=CredentialProxyConfig(enabled=True),
    )


def test_rules_are_added_before_the_others(osb: Published, box: SandboxSync):
    told = osb.json("egress patch", box.id, "--rule", "allow=b.example", "--rule", "deny=10.0.0.0/8")
    assert told["patched_rules"] == [
        {"action": "allow", "target": "b.example"},
        {"action": "deny", "target": "10.0.0.0/8"},
    ]
    told = osb.json("egress get", box.id)
    assert told == box.get_egress_policy().model_dump(mode="json")
    assert told["default_action"] == "deny"
    assert [(rule["action"], rule["target"]) for rule in told["egress"]] == [
        ("allow", "b.example"),
        ("deny", "10.0.0.0/8"),
        ("allow", "api.example.com"),
    ]
    assert "rule 1" in osb.refused("egress patch", box.id, "--rule", "allow=*")


def test_a_vault_is_made_read_changed_and_deleted(
    osb: Published, box: SandboxSync, tmp_path: pathlib.Path
):
    assert "VAULT::NOT_FOUND" in osb.refused("credential-vault get", box.id)
    binding = {
        "name": "api",
        "match": {"hosts": ["api.example.com"]},
        "auth": {"type": "bearer", "credential": "token"},
    }
    vault = {"credentials": [{"name": "token", "source": {"value": SECRET}}], "bindings": [binding]}
    path = tmp_path / "vault.yaml"
    path.write_text(yaml.safe_dump(vault))
    made = osb.json("credential-vault create", box.id, "--file", str(path))
    assert made["revision"] == 1
    told = osb("credential-vault get", box.id, "-o", "json").stdout
    assert json.loads(told) == made == box.credential_vault.get().model_dump(mode="json")
    assert SECRET not in told

    credentials = osb.json("credential-vault credential list", box.id)
    assert [(each["name"], each["source_type"]) for each in credentials] == [("token", "inline")]
    assert osb.json("credential-vault credential get", box.id, "token") == credentials[0]
    bindings = osb.json("credential-vault binding list", box.id)
    assert [each["match"]["hosts"] for each in bindings] == [["api.example.com"]]
    assert osb.json("credential-vault binding get", box.id, "api") == bindings[0]
    assert "VAULT::NOT_FOUND" in osb.refused("credential-vault binding get", box.id, "none")

    change = {"expectedRevision": 1, "credentials": {"add": [{"name": "b", "source": {"value": "x"}}]}}
    told = osb.json("credential-vault patch", box.id, "--file", "-", stdin=json.dumps(change))
    assert (told["revision"], [each["name"] for each in told["credentials"]]) == (2, ["b", "token"])
    assert box.credential_vault.get().revision == 2
    said = osb.refused("credential-vault patch", box.id, "--file", "-", stdin=json.dumps(change))
    assert "VAULT::REVISION_MISMATCH" in said

    assert osb.json("credential-vault delete", box.id)["status"] == "deleted"
    assert "VAULT::NOT_FOUND" in osb.refused("credential-vault get", box.id)
