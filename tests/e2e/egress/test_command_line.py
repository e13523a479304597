"""The network and its credentials from the command line."""

from __future__ import annotations

import json
import os
import pathlib
import subprocess
from typing import Any

import pytest
from company import trusting_server
from served import Server, osb, serving

__all__ = ["trusting_server"]

TOKEN = "hunter2-and-more"


def says(server: Server, *words: str, given: str = "") -> subprocess.CompletedProcess[str]:
    known = {"OPEN_SANDBOX_DOMAIN": server.domain, "OPEN_SANDBOX_API_KEY": server.api_key}
    env = os.environ | known
    command = [osb(), *words]
    return subprocess.run(
        command, env=env, check=False, capture_output=True, text=True, input=given
    )


def vault(place: pathlib.Path) -> str:
    file = place / "vault.json"
    auth = {"type": "bearer", "credential": "t"}
    binding = {"name": "a", "match": {"hosts": ["a.example.com"]}, "auth": auth}
    content = {"credentials": [{"name": "t", "source": {"value": TOKEN}}], "bindings": [binding]}
    file.write_text(json.dumps(content))
    return str(file)


def test_a_run_says_what_it_was_refused_and_learns_what_allows_it(
    server: Server, tmp_path: pathlib.Path
) -> None:
    command = ["--", "curl", "-sS", "https://a.example.com/x"]
    refused = says(server, "run", "--allow", "b.example.com", *command)
    assert refused.returncode == 6, refused
    told = "osb: the network refused: a.example.com (no rule allows it)\n"
    assert told in refused.stderr and "--learn FILE" in refused.stderr
    quiet = says(server, "run", "--quiet", "--allow", "b.example.com", *command)
    assert quiet.returncode == 6 and "osb:" not in quiet.stderr, quiet

    learnt = tmp_path / "policy.json"
    assert says(server, "run", "--learn", str(learnt), *command).returncode == 0
    rules = json.loads(learnt.read_text())["egress"]
    assert rules == [{"action": "allow", "target": "a.example.com", "ports": [443]}]
    again = says(server, "run", "--learn", str(learnt), *command)
    assert again.returncode == 125 and "there is such a file" in again.stderr, again
    allowed = says(server, "run", "--policy", str(learnt), *command)
    assert (allowed.returncode, allowed.stderr) == (0, ""), allowed


def test_a_run_is_given_credentials_that_it_never_sees(
    server: Server, echo: Any, tmp_path: pathlib.Path
) -> None:
    command = ["--", "curl", "-sSi", "https://a.example.com/x"]
    content = pathlib.Path(vault(tmp_path)).read_text()
    ran = says(server, "run", "--allow", "a.example.com", "--vault", "-", *command, given=content)
    assert ran.returncode == 0, ran
    assert echo.seen[-1]["headers"]["Authorization"] == f"Bearer {TOKEN}"
    assert "[REDACTED]" in ran.stdout and TOKEN not in ran.stdout


def test_a_vault_is_made_shown_changed_and_deleted(server: Server, tmp_path: pathlib.Path) -> None:
    made = says(server, "sandbox", "create", "--allow", "a.example.com", "--vault", vault(tmp_path))
    sandbox = made.stdout.strip()
    shown = says(server, "vault", "get", sandbox)
    assert "revision 1" in shown.stdout and "a.example.com" in shown.stdout, shown
    assert TOKEN not in shown.stdout
    changes = tmp_path / "changes.json"
    changes.write_text(json.dumps({"expectedRevision": 1, "bindings": {"delete": ["a"]}}))
    assert says(server, "vault", "patch", sandbox, str(changes)).returncode == 0
    late = says(server, "vault", "patch", sandbox, str(changes))
    assert late.returncode == 1 and "VAULT::REVISION_MISMATCH" in late.stderr, late
    assert says(server, "vault", "rm", sandbox).returncode == 0
    gone = says(server, "vault", "get", sandbox)
    assert gone.returncode == 1 and "VAULT::NOT_FOUND" in gone.stderr, gone
    assert says(server, "vault", "create", sandbox, vault(tmp_path)).returncode == 0
    assert says(server, "sandbox", "rm", sandbox).returncode == 0


def test_a_sandbox_whose_vault_is_refused_is_not_left(
    server: Server, tmp_path: pathlib.Path
) -> None:
    made = says(server, "sandbox", "create", "--allow", "b.example.com", "--vault", vault(tmp_path))
    assert made.returncode == 1 and "VAULT::INVALID" in made.stderr, made
    assert says(server, "sandbox", "ls", "-o", "json").stdout.strip() == "[]"


def test_changes_say_what_they_replaced_and_did_not_find(server: Server) -> None:
    sandbox = says(server, "sandbox", "create", "--allow", "a.example.com:443").stdout.strip()
    denied = says(server, "egress", "deny", sandbox, "A.example.com")
    assert (denied.returncode, denied.stderr) == (0, "osb: replaced: allow a.example.com:443\n")
    dropped = says(server, "egress", "rm", sandbox, "a.example.com", "b.example.com")
    assert (dropped.returncode, dropped.stderr) == (1, "osb: no rule is about b.example.com\n")
    policy = json.dumps({"egress": [{"action": "deny", "target": "a.example.com"}]})
    assert says(server, "egress", "set", sandbox, "-", given=policy).returncode == 0
    narrower = says(server, "egress", "allow", sandbox, "a.example.com:80")
    assert narrower.returncode == 2 and "lost: deny a.example.com; --add" in narrower.stderr
    added = says(server, "egress", "allow", sandbox, "a.example.com:80", "--add")
    assert (added.returncode, added.stderr) == (0, ""), added
    assert says(server, "egress", "default", sandbox, "allow").returncode == 0
    shown = json.loads(says(server, "egress", "policy", sandbox, "-o", "json").stdout)
    assert [rule["action"] for rule in shown["egress"]] == ["allow", "deny"]
    assert shown["defaultAction"] == "allow"
    request = says(server, "egress", "allow", sandbox, "b.example.com", "--method", "GET")
    assert request.returncode == 1 and "osb sandbox create --policy FILE" in request.stderr
    assert says(server, "sandbox", "rm", sandbox).returncode == 0


@pytest.mark.parametrize("word", ["missing", "field", "target"])
def test_a_file_that_cannot_be_used_is_a_failure_of_osb(
    server: Server, tmp_path: pathlib.Path, word: str
) -> None:
    file = tmp_path / "policy.json"
    rule = {"action": "allow", "target": "https://a.example.com"}
    if word != "missing":
        rules = [rule] if word == "target" else [rule | {"port": 80}]
        file.write_text(json.dumps({"egress": rules}))
    ran = says(server, "run", "--policy", str(file), "--", "true")
    assert ran.returncode == 125 and str(file) in ran.stderr, ran
    assert says(server, "egress", "set", "x", str(file)).returncode == 1


def test_what_is_only_denied_widens_nothing_and_the_operator_comes_first(
    tmp_path: pathlib.Path,
) -> None:
    config = tmp_path / "osb.toml"
    config.write_text('[egress]\ndefault = "deny"\nallow = ["a.example.com"]\n')
    with serving("--config", str(config)) as server:
        made = says(server, "sandbox", "create", "--deny", "b.example.com")
        shown = json.loads(says(server, "egress", "policy", made.stdout.strip(), "-o", "json").stdout)
        assert (made.stderr, shown["defaultAction"]) == ("", "deny")
        ran = says(server, "run", "--no-network", "--", "true")
        assert ran.returncode == 0 and ran.stderr.endswith("reach: a.example.com\n"), ran
        denied = says(server, "egress", "deny", made.stdout.strip(), "a.example.com")
        assert denied.returncode == 0 and "operator allows a.example.com" in denied.stderr, denied
