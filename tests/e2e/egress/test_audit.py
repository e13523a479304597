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
    # What follows the last line break is not whole yet.
    return [json.loads(line) for file in files for line in file.read_text().split("\n")[:-1]]


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


def tried(server: Server, sandbox: SandboxSync, name: str) -> dict[str, Any]:
    """The entry of a name that is not allowed, once the sandbox has tried it."""
    run(sandbox, f"getent hosts {name}; true")
    return waited(server, sandbox.id, about("egress-denied", name))


def test_whatever_is_changed_is_named(server: Server, sandbox: SandboxSync) -> None:
    for name in ("one.example.net", "two.example.net", "three.example.net"):
        tried(server, sandbox, name)
    assert verified(server, sandbox.id)["state"] == "open"
    (file,) = book(server, sandbox.id).iterdir()
    whole = file.read_text()
    lines = whole.splitlines(keepends=True)
    place = next(at for at, line in enumerate(lines) if "two.example.net" in line)

    def fault_of(text: str) -> str:
        file.write_text(text)
        found = verified(server, sandbox.id)
        assert found["state"] == "broken", found
        return found["fault"]

    named = f"entry {place + 1} does not fit the one before it"
    assert named in fault_of(whole.replace("two.example.net", "tvo.example.net"))
    assert named in fault_of("".join(lines[:place] + lines[place + 1 :]))
    assert named in fault_of("".join([*lines[:place], lines[-1], *lines[place:]]))

    # People read it as well, as far as it fits.
    said = audit(server, "log", sandbox.id)
    assert said.returncode == 1
    assert "one.example.net" in said.stdout
    assert named in said.stderr
    assert "broken" in audit(server, "verify").stdout

    # What is cut off while the server runs is missed by what it writes next.
    file.write_text("".join(lines[:-1]))
    assert verified(server, sandbox.id)["state"] == "open"
    tried(server, sandbox, "four.example.net")
    assert f"entry {len(lines)} does not fit" in verified(server, sandbox.id)["fault"]


def test_a_server_that_was_killed_goes_on_where_it_was(
    server: Server, sandbox: SandboxSync
) -> None:
    tried(server, sandbox, "before.example.net")
    server.kill()
    before = verified(server, sandbox.id)
    assert before["state"] == "open"
    # As if it had been killed in the middle of a line.
    (file,) = book(server, sandbox.id).iterdir()
    with file.open("a") as torn:
        torn.write('{"number":')
    assert verified(server, sandbox.id) == before | {"state": "torn"}
    server.start()
    tried(server, sandbox, "after.example.net")
    after = verified(server, sandbox.id)
    assert after["state"] == "open"
    assert after["first"] == 1
    assert after["last"] > before["last"]
    # Of what was tried, more may be written meanwhile.
    written = entries(server, sandbox.id)
    assert written[before["last"] - 1]["hash"] == before["hash"]
    assert len(written) >= after["last"]
    assert [entry["number"] for entry in written] == [*range(1, len(written) + 1)]


HOLD = """
import socket, time
held = [socket.create_connection(("a.example.com", 443)) for _ in range(300)]
time.sleep(600)
"""


def test_a_server_that_is_stopped_writes_down_how_every_connection_ended(
    server: Server, sandbox: SandboxSync
) -> None:
    def streams() -> list[dict[str, Any]]:
        decided = [entry["what"] or {} for entry in entries(server, sandbox.id)]
        return [what for what in decided if what.get("protocol") == "tcp"]

    run(sandbox, f"cat > /tmp/hold.py <<'END'\n{HOLD}\nEND")
    run(sandbox, "setsid python3 /tmp/hold.py >/dev/null 2>&1 &")
    wait_for("all are open", lambda: len(streams()) == 300)
    server.stop()
    ended = {stream["number"] for stream in streams() if "end" in stream}
    assert ended == {stream["number"] for stream in streams()}
    assert len(ended) == 300
    server.start()


def test_a_sandbox_that_is_gone_has_a_book_that_is_finished(
    server: Server, sandbox: SandboxSync
) -> None:
    tried(server, sandbox, "one.example.net")
    sandbox.kill()
    waited(server, sandbox.id, lambda entry: entry["kind"] == "finished")
    found = verified(server, sandbox.id)
    assert found["state"] == "finished"
    # Whoever keeps the server's log elsewhere can tell that nothing was cut off.
    assert found["hash"] in server.log.read_text()
    # What is cut off later leaves a book without an end, of a sandbox that is not there.
    (file,) = book(server, sandbox.id).iterdir()
    file.write_text("".join(file.read_text().splitlines(keepends=True)[:-1]))
    assert verified(server, sandbox.id)["state"] == "open"


# A thousand at once are looked at, and then ten in a millisecond.
FLOOD = """
import socket, time
sender = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
for port in range(1, 6001):
    try:
        sender.sendto(b"x", ("192.0.2.9", port))
    except OSError:
        pass
    if port % 5 == 0:
        time.sleep(0.001)
"""


def counted(server: Server, name: str) -> int:
    lines = server.call("GET", "/metrics").body.decode().splitlines()
    return sum(int(line.rsplit(" ", 1)[1]) for line in lines if line.startswith(name))


def test_much_of_one_kind_hides_nothing_else(server: Server, sandbox: SandboxSync) -> None:
    written = counted(server, "opensandbox_audit_entries_total")
    lost = counted(server, 'opensandbox_audit_lost_total{reason="too-many"}')
    program = f"cat > /tmp/flood.py <<'END'\n{FLOOD}\nEND\npython3 /tmp/flood.py"
    run(sandbox, program)
    missed = waited(server, sandbox.id, lambda entry: entry["kind"] == "missed")
    assert missed["what"]["of"] == "udp-denied"
    # What comes now is written all the same, of this sandbox and of others.
    run(sandbox, "curl -sS https://a.example.com/after -o /dev/null")
    waited(server, sandbox.id, about("credential", "a.example.com"))
    tried(server, sandbox, "after.example.net")
    with made(server, "a.example.com") as other:
        tried(server, other, "other.example.net")
        other.kill()
    assert counted(server, "opensandbox_audit_entries_total") > written
    now_lost = counted(server, 'opensandbox_audit_lost_total{reason="too-many"}')
    assert now_lost - lost >= missed["what"]["count"]
    assert verified(server, sandbox.id)["state"] == "open"


def test_what_cannot_be_written_is_counted_and_said_once(
    server: Server, sandbox: SandboxSync
) -> None:
    # Where a file is, there is no room for a directory.
    assert not book(server, sandbox.id).exists()
    book(server, sandbox.id).touch()
    said = server.log.read_text().count("cannot write down what sandboxes do")
    name = 'opensandbox_audit_lost_total{reason="failed"}'
    failed = counted(server, name)
    for path in ("/one", "/two"):
        # It goes on.
        run(sandbox, f"curl -sS https://a.example.com{path} -o /dev/null")
    wait_for("it is counted", lambda: counted(server, name) > failed)
    os.remove(book(server, sandbox.id))
    missed = waited(server, sandbox.id, lambda entry: entry["kind"] == "missed")
    assert missed["what"]["count"] > 0
    assert verified(server, sandbox.id)["state"] == "open"
    assert server.log.read_text().count("cannot write down what sandboxes do") == said + 1
    wait_for("it says so", lambda: "is written down again" in server.log.read_text())


def test_a_full_disk_holds_up_nobody_and_leaves_a_book_that_fits(
    server: Server, sandbox: SandboxSync
) -> None:
    place = server.data_dir / "audit"
    name = 'opensandbox_audit_lost_total{reason="failed"}'
    failed = counted(server, name)
    mount = ["mount", "-t", "tmpfs", "-o"]
    subprocess.run([*mount, "size=16k,mode=0700", "tmpfs", place], check=True)
    try:
        for round in range(20):
            run(sandbox, f"curl -sS https://a.example.com/{round} -o /dev/null")
            for number in range(5):
                run(sandbox, f"getent hosts n{round}-{number}.example.net; true")
            if counted(server, name) > failed:
                break
        wait_for("it is counted", lambda: counted(server, name) > failed)
        # A line may have been written in part: it is no fault.
        assert verified(server, sandbox.id)["state"] in ("open", "torn")
        subprocess.run([*mount, "remount,size=1m", place], check=True)
        waited(server, sandbox.id, lambda entry: entry["kind"] == "missed")
        tried(server, sandbox, "after.example.net")
        assert verified(server, sandbox.id)["state"] == "open"
    finally:
        subprocess.run(["umount", place], check=True)
