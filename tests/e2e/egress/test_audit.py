"""What sandboxes did is written down, and whoever changes that is found out."""

from __future__ import annotations

import json
import os
import pathlib
import subprocess
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from company import made, run, trusting_server
from opensandbox import SandboxSync
from served import Server, osb, wait_for

__all__ = ["trusting_server"]

SECRET = "a-secret-that-nobody-writes-down"


def book(server: Server, sandbox: str) -> pathlib.Path:
    return server.data_dir / "audit" / sandbox


def entries(server: Server, sandbox: str) -> list[dict[str, Any]]:
    """What is written down of a sandbox by now."""
    files = sorted(book(server, sandbox).glob("*.jsonl"))
    return [json.loads(line) for file in files for line in file.read_text().splitlines()]


def audit(server: Server, *words: str) -> subprocess.CompletedProcess[str]:
    command = [osb(), "audit", *words, "--data-dir", str(server.data_dir)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def verified(server: Server, sandbox: str) -> dict[str, Any]:
    """What the command line says of a book."""
    said = audit(server, "verify", "--sandbox", sandbox, "-o", "json")
    (found,) = json.loads(said.stdout)
    assert said.returncode == (1 if found["state"] == "broken" else 0), said
    return found


def waited(server: Server, sandbox: str, is_it: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
    """The first entry that is like this, once it is written."""

    def found() -> dict[str, Any] | None:
        return next((entry for entry in entries(server, sandbox) if is_it(entry)), None)

    return wait_for("the entry is written", found)


def about(kind: str, name: str) -> Callable[[dict[str, Any]], bool]:
    return lambda entry: entry["kind"] == kind and entry["what"].get("name") == name


@pytest.fixture
def sandbox(server: Server, echo: Any) -> Iterator[SandboxSync]:
    """A sandbox with a credential for a host."""
    with made(server, "a.example.com") as sandbox:
        sandbox.credential_vault.create(
            credentials=[{"name": "t", "source": {"value": SECRET}}],
            bindings=[
                {
                    "name": "a",
                    "match": {"hosts": ["a.example.com"]},
                    "auth": {"type": "bearer", "credential": "t"},
                }
            ],
        )
        yield sandbox
        if sandbox.id in server.ids():
            sandbox.kill()


def test_every_decision_is_an_entry_with_all_that_is_known_of_it(
    server: Server, sandbox: SandboxSync, log: Callable[[SandboxSync], list[dict[str, Any]]]
) -> None:
    run(sandbox, "curl -sS https://a.example.com/x?key=y -d body -o /dev/null")
    for _ in range(3):
        run(sandbox, "curl -sS -m 5 https://b.example.com/ -o /dev/null; true")
    ended = waited(
        server,
        sandbox.id,
        lambda entry: about("egress-allowed", "a.example.com")(entry) and "end" in entry["what"],
    )
    assert ended["sandbox"] == sandbox.id
    shown = ended["what"]
    assert (shown["protocol"], shown["port"], shown["action"]) == ("tcp", 443, "allow")
    assert shown["address"]
    assert (shown["reason"], shown["rule"]) == ("rule", "a.example.com")
    assert shown["end"]["outcome"] == "done"
    assert shown["end"]["sentBytes"] > 0
    assert shown["end"]["receivedBytes"] > 0
    # It is what the log of the sandbox shows.
    assert any(decision == shown for decision in log(sandbox))

    denied = waited(server, sandbox.id, about("egress-denied", "b.example.com"))["what"]
    assert (denied["action"], denied["reason"]) == ("deny", "default")
    # Of what repeats, every one.
    decided = [
        entry["what"]["times"]
        for entry in entries(server, sandbox.id)
        if about("egress-denied", "b.example.com")(entry)
    ]
    assert len(decided) >= 3
    assert decided.count(1) == decided.count(2) == decided.count(3)

    used = waited(server, sandbox.id, about("credential", "a.example.com"))["what"]
    assert (used["credentials"], used["status"], used["binding"]) == (["t"], 200, "a")
    assert (used["method"], used["path"], used["port"]) == ("POST", "/x", 443)

    assert verified(server, sandbox.id)["state"] == "open"
    for file in book(server, sandbox.id).iterdir():
        assert file.stat().st_mode & 0o777 == 0o600
        assert SECRET not in file.read_text()
    assert (server.data_dir / "audit").stat().st_mode & 0o777 == 0o700
