"""What happened in and around a sandbox, with the published command."""

from __future__ import annotations

import pytest
from opensandbox import SandboxSync
from published import Published
from served import wait_for

COUNT = "for n in $(seq 1 5); do echo line $n; done; echo lost >&2; exec sleep infinity"
GONE = "00000000-0000-4000-8000-000000000000"


@pytest.fixture
def box(create) -> SandboxSync:
    """A sandbox whose program has said all that it has to say."""
    box = create(entrypoint=["bash", "-c", COUNT], env={"API_TOKEN": "never to be shown"})
    wait_for("it has spoken", lambda: "lost" in box.get_diagnostic_logs("container").content)
    return box


def test_logs_are_what_its_program_printed(osb: Published, box: SandboxSync):
    told = osb.json("diagnostics logs", box.id, "--scope", "container")
    assert (told["sandbox_id"], told["kind"], told["scope"]) == (box.id, "logs", "container")
    assert (told["delivery"], told["truncated"]) == ("inline", False)
    assert told["content_length"] == len(told["content"].encode())
    assert all(f"line {n}" in told["content"] for n in range(1, 6)), told
    raw = osb("diagnostics logs", box.id, "-s", "ALL", "-o", "raw")
    assert "line 5" in raw.stdout
    refused = osb("diagnostics logs", box.id, "-s", "nonsense", status=1)
    assert "DIAGNOSTICS_SCOPE_UNSUPPORTED" in refused.stderr


def test_events_are_what_was_done_to_it(osb: Published, box: SandboxSync):
    box.pause()
    told = osb.json("diagnostics events", box.id, "--scope", "runtime")
    assert (told["sandbox_id"], told["kind"], told["scope"]) == (box.id, "events", "runtime")
    assert told["content_type"] == "text/plain; charset=utf-8"
    assert len(told["content"].splitlines()) >= 2, told
    raw = osb("diagnostics events", box.id, "-s", "all").stdout
    assert len(raw.splitlines()) >= 2, raw
    assert "SANDBOX_NOT_FOUND" in osb.refused("diagnostics events", GONE, "-s", "all")


def test_the_earlier_commands_have_plain_text(osb: Published, box: SandboxSync):
    def text(command: str, *arguments: str) -> str:
        return osb(command, box.id, *arguments, "-o", "raw").stdout

    said = text("devops logs", "--tail", "2", "--since", "10m")
    assert len([line for line in said.splitlines() if line.strip()]) == 2, said
    assert "line 1" not in said and "line 5" in text("devops logs")
    (event,) = [line for line in text("devops events", "--limit", "1").splitlines() if line]
    assert event in text("devops events")
    inspected = text("devops inspect")
    assert box.id in inspected and "Running" in inspected
    assert "API_TOKEN" in inspected and "never to be shown" not in inspected
    summary = text("devops summary", "--tail", "1", "--event-limit", "1")
    assert box.id in summary and event in summary and "line 1" not in summary
    for command in ("logs", "events", "inspect", "summary"):
        said = osb(f"devops {command}", GONE, status=1).stderr
        assert f"Sandbox '{GONE}' not found." in said
