"""Three hundred requests at once, and the server killed under them at a moment of chance."""

from __future__ import annotations

import json
import os
import random
import threading
import time
from collections.abc import Callable, Iterator

import pytest
from served import Server, serving, wait_for
from traces import Traces

ROUNDS = 4
AT_ONCE = 300
# Of each hundred requests; the rest are creations.
REMOVALS, PAUSES, SNAPSHOTS = 25, 15, 10
# The blow falls somewhere within the time that all of them take together.
LONGEST = 3.0

BODY = {
    "image": {"uri": "host"},
    "entrypoint": ["sleep", "infinity"],
    "resourceLimits": {"cpu": "1", "memory": "64Mi"},
    "timeout": 3600,
}


@pytest.fixture
def server() -> Iterator[Server]:
    with serving() as server:
        yield server


class Ledger:
    """What the server has said yes to, and what it was asked without an answer."""

    def __init__(self, server: Server) -> None:
        self.server = server
        self.lock = threading.Lock()
        # The states in which an acknowledged sandbox may be found.
        self.alive: dict[str, set[str]] = {}
        self.removed: set[str] = set()
        self.snapshots: set[str] = set()
        self.unanswered_creations = 0
        self.unanswered_snapshots = 0

    def create(self) -> None:
        answer = self.ask("POST", "/v1/sandboxes", BODY)
        with self.lock:
            if answer is None:
                self.unanswered_creations += 1
            elif answer.status == 202:
                self.alive[answer.json()["id"]] = {"Running"}

    def remove(self, sandbox: str) -> None:
        with self.lock:
            self.alive[sandbox].add("gone")
        answer = self.ask("DELETE", f"/v1/sandboxes/{sandbox}")
        if answer is not None:
            assert answer.status == 204, answer
            with self.lock:
                del self.alive[sandbox]
                self.removed.add(sandbox)

    def change(self, sandbox: str) -> None:
        """Pauses or resumes it, whichever it is not."""
        is_paused = self.alive[sandbox] == {"Paused"}
        verb, state = ("resume", "Running") if is_paused else ("pause", "Paused")
        with self.lock:
            self.alive[sandbox].add(state)
        answer = self.ask("POST", f"/v1/sandboxes/{sandbox}/{verb}")
        if answer is not None and answer.status == 202:
            with self.lock:
                self.alive[sandbox] = {state}

    def snapshot(self, sandbox: str) -> None:
        answer = self.ask("POST", f"/v1/sandboxes/{sandbox}/snapshots", {})
        with self.lock:
            if answer is None:
                self.unanswered_snapshots += 1
            elif answer.status == 202:
                self.snapshots.add(answer.json()["id"])

    def ask(self, method: str, path: str, body: object = None):
        """The answer, or nothing if the server was killed before it came, which is the point."""
        try:
            return self.server.call(method, path, body, timeout=60)
        except (OSError, ValueError):
            return None

    def requests(self, dice: random.Random) -> list[Callable[[], None]]:
        """A mix of requests, each sandbox in one of them at most."""
        known = list(self.alive)
        dice.shuffle(known)
        made: list[Callable[[], None]] = []
        for share, request in (
            (REMOVALS, self.remove),
            (PAUSES, self.change),
            (SNAPSHOTS, self.snapshot),
        ):
            # Some of each kind also where there are few sandboxes.
            among = len(self.alive) * share // (REMOVALS + PAUSES + SNAPSHOTS)
            for _ in range(min(AT_ONCE * share // 100, among)):
                made.append(lambda request=request, sandbox=known.pop(): request(sandbox))
        made += [self.create] * (AT_ONCE - len(made))
        dice.shuffle(made)
        return made


def states(server: Server) -> dict[str, str]:
    found: dict[str, str] = {}
    page = 1
    while True:
        answer = server.call("GET", f"/v1/sandboxes?pageSize=200&page={page}").json()
        found |= {item["id"]: item["status"]["state"] for item in answer["items"]}
        if not answer["pagination"]["hasNextPage"]:
            return found
        page += 1


def descriptors(server: Server) -> int:
    assert server.process is not None
    return len(os.listdir(f"/proc/{server.process.pid}/fd"))


def answers(server: Server, sandbox: str) -> bool:
    endpoint = server.call("GET", f"/v1/sandboxes/{sandbox}/endpoints/44772?use_server_proxy=true")
    told = endpoint.json()
    path = "/" + told["endpoint"].split("/", 1)[1]
    answer = server.call("POST", f"{path}/command", {"argv": ["true"]}, headers=told["headers"])
    return answer.status == 200 and b"execution_complete" in answer.body


def settled(server: Server) -> bool:
    return set(states(server).values()) <= {"Running", "Paused"}


def test_three_hundred_requests_at_once_and_a_server_killed_under_them(server):
    seed = random.randrange(1 << 32)
    print(f"seed {seed}")
    dice = random.Random(seed)
    traces, ledger = Traces(server), Ledger(server)
    idle = descriptors(server)

    for _ in range(ROUNDS):
        callers = [threading.Thread(target=request) for request in ledger.requests(dice)]
        for caller in callers:
            caller.start()
        # Not a wait for something, but the moment at which the blow falls.
        time.sleep(dice.uniform(0, LONGEST))
        server.kill()
        traces.record()
        for caller in callers:
            caller.join()
        server.start()
        wait_for("every sandbox has come to rest", lambda: settled(server), 60)

        found = states(server)
        lost = {
            sandbox: (found.get(sandbox, "gone"), sorted(allowed))
            for sandbox, allowed in ledger.alive.items()
            if found.get(sandbox, "gone") not in allowed
        }
        assert not lost, f"seed {seed}: found, allowed: {json.dumps(lost, indent=1)}"
        assert not ledger.removed & set(found), f"seed {seed}: removed, and there again"
        strangers = set(found) - set(ledger.alive)
        assert len(strangers) <= ledger.unanswered_creations, f"seed {seed}: {strangers}"
        wait_for(
            "on disk there is what is listed and nothing else",
            lambda: {path.name for path in traces.directories("sandboxes")} == set(states(server)),
        )
        for sandbox, state in dice.sample(sorted(found.items()), min(20, len(found))):
            if state == "Running":
                assert answers(server, sandbox), f"seed {seed}: {sandbox} does not answer"
        # What the answer was lost of, somebody would find in the list and use.
        ledger.alive = {sandbox: {state} for sandbox, state in found.items()}
        ledger.unanswered_creations = 0

    assert ledger.removed and ledger.snapshots, "there was something to lose"
    listed = {item["id"] for item in snapshots(server)}
    assert ledger.snapshots <= listed
    assert len(listed) <= len(ledger.snapshots) + ledger.unanswered_snapshots

    traces.record()
    for sandbox in server.ids():
        assert server.call("DELETE", f"/v1/sandboxes/{sandbox}", timeout=60).status == 204
    for snapshot in listed:
        assert server.call("DELETE", f"/v1/snapshots/{snapshot}", timeout=60).status == 204
    traces.all_gone()
    # A few threads and connections come and go.
    wait_for("the server holds nothing open", lambda: descriptors(server) <= idle + 20)


def snapshots(server: Server) -> list[dict]:
    found: list[dict] = []
    page = 1
    while True:
        answer = server.call("GET", f"/v1/snapshots?pageSize=200&page={page}").json()
        found += answer["items"]
        if not answer["pagination"]["hasNextPage"]:
            return found
        page += 1
