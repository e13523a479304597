"""What a sandbox that does its worst costs others: what they take beside it, to what they take without."""

from __future__ import annotations

import contextlib
import json
import os
import pathlib
import statistics
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from typing import Any

from served import Server, wait_for

# How often the attacker is made and removed.
ROUNDS = 5
# Whatever else this machine does comes and goes, while what an attack costs, it costs each time: one
# good series out of these is enough, and a bad cause spoils them all.
SERIES = 3
# The part of their time in which the processors have nothing to do, at the least, while one thing after
# another is asked of the server and nothing else happens.
LEAST_REST = 0.1
# After how many seconds the server removes a sandbox that nobody else has removed.
TIMEOUT = 3600
# After how many an attack ends itself, if the server is gone too.
LONGEST = 300

# What every attack begins with. It calls `begun` each time it has done its worst.
PRELUDE = """
import os, signal
def begun():
    with open("/dev/shm/begun", "w"):
        pass
def fork(count):
    for _ in range(count):
        if os.fork() == 0:
            return
    signal.pause()
"""


class Sandbox:
    """A sandbox, without what a client adds to the time that its requests take."""

    def __init__(self, server: Server, *, reaches: list[str] | None = None, **limits: str) -> None:
        body: dict[str, Any] = {
            "image": {"uri": "host"},
            "resourceLimits": limits,
            "entrypoint": ["sleep", "infinity"],
            "timeout": TIMEOUT,
        }
        if reaches is not None:
            rules = [{"action": "allow", "target": target} for target in reaches]
            body["networkPolicy"] = {"defaultAction": "deny", "egress": rules}
        made = server.call("POST", "/v1/sandboxes", body)
        assert made.status == 202, made
        self.server = server
        self.path = f"/v1/sandboxes/{made.json()['id']}"

    def __enter__(self) -> Sandbox:
        told = self.server.call("GET", f"{self.path}/endpoints/44772").json()
        self.execd = "/" + told["endpoint"].split("/", 1)[1]
        self.headers = told["headers"]
        return self

    def __exit__(self, *_: object) -> None:
        answer = self.server.call("DELETE", self.path)
        assert answer.status == 204, answer

    def run(self, command: str, timeout: float = 30) -> list[str]:
        """What the command printed."""
        path, body = f"{self.execd}/command", {"command": command}
        answer = self.server.call("POST", path, body, headers=self.headers, timeout=timeout)
        assert answer.status == 200 and b"execution_complete" in answer.body, answer
        events = [json.loads(line) for line in answer.body.splitlines() if line]
        return [event["text"] for event in events if event["type"] == "stdout"]

    def has_begun(self) -> bool:
        path = f"{self.execd}/files/info?path=/dev/shm/begun"
        return self.server.call("GET", path, headers=self.headers).status == 200

    def get(self) -> dict:
        answer = self.server.call("GET", self.path)
        assert answer.status == 200, answer
        return answer.json()

    def cpu_time(self) -> int:
        return self.server.call("GET", f"{self.path}/usage").json()["cpuTimeMs"]


# Ends with whoever started it.
BUSY = "import os\nparent = os.getppid()\nwhile os.getppid() == parent: pass"


@contextlib.contextmanager
def busy_programs(count: int) -> Iterator[None]:
    """So many programs of the host that take one processor each. Between every one of them and all
    sandboxes together the kernel shares alike."""
    with contextlib.ExitStack() as stack:
        for _ in range(count):
            program = subprocess.Popen([sys.executable, "-c", BUSY])
            stack.enter_context(program)
            stack.callback(program.kill)
        yield


class Clock:
    """Takes the time of what is asked of the server, and of a sandbox beside the attacker."""

    def __init__(self, server: Server, neighbour: Sandbox) -> None:
        self.server = server
        self.neighbour = neighbour

    def command(self) -> None:
        self.neighbour.run("echo x > /written")

    def get(self) -> None:
        self.neighbour.get()

    def create_and_remove(self) -> None:
        with Sandbox(self.server, cpu="1", memory="256Mi"):
            pass

    def asks(self) -> list[Callable[[], None]]:
        return [self.command, self.get, self.command, self.get, self.create_and_remove]

    def medians(self) -> dict[str, float]:
        """By turns and for longer than the kernel's period of a processor limit, in part of which the
        attacker runs on all processors, and in the rest not at all."""
        taken = defaultdict(list)
        for _ in range(12):
            for ask in self.asks():
                begun = time.perf_counter()
                ask()
                taken[ask.__name__].append(time.perf_counter() - begun)
        return {name: statistics.median(times) for name, times in taken.items()}


#: For as long as what it makes lasts, somebody does their worst.
Attack = Callable[[], contextlib.AbstractContextManager[Any]]


@contextlib.contextmanager
def attacking(server: Server, attack: str, **options: Any) -> Iterator[Sandbox]:
    """For as long as this lasts, a sandbox does its worst."""
    with Sandbox(server, **options) as attacker:
        attacker.run(f"cat > /dev/shm/attack.py <<'END'\n{PRELUDE}{attack}\nEND")
        attacker.run(f"sleep {LONGEST} && kill -9 -1 > /dev/null 2>&1 & echo")
        attacker.run("python3 /dev/shm/attack.py > /dev/shm/said 2>&1 & echo")
        wait_for("it has done its worst", attacker.has_begun, seconds=200)
        used = attacker.cpu_time()
        yield attacker
        assert attacker.cpu_time() > used, attacker.run("tail -n 20 /dev/shm/said")
        status = attacker.get()["status"]
        assert status["state"] == "Running", status


def processor_times() -> tuple[int, int]:
    """How long all processors had nothing to do, and how long they have been there."""
    times = [int(time) for time in pathlib.Path("/proc/stat").read_text().split("\n")[0].split()[1:9]]
    return times[3] + times[4], sum(times)


def costs(clock: Clock, attack: Attack, processors: int, rounds: int) -> dict[str, float]:
    """How many times as long everything takes beside the attack.

    A create keeps more than one processor busy, so that it takes longer beside whatever is busy. It
    is compared with one beside busy programs of the host, on as many processors as the attacker may
    use: an attack costs no more than such work.

    So is everything else where other programs leave the processors hardly any rest. Twice is promised
    for a machine that does nothing else: there, it is only watched that nothing gets out of hand.
    """
    measured = []
    clock.medians()
    # In turns, so that whatever else this machine does slows all of them alike; and the attacker
    # is gone meanwhile, for what it holds may cost others even while it is paused.
    for _ in range(rounds):
        idle, passed = processor_times()
        quiet = clock.medians()
        rest = (processor_times()[0] - idle) / (processor_times()[1] - passed)
        with busy_programs(processors):
            busy = clock.medians()
        with attack():
            beside = clock.medians()
        base = quiet if rest > LEAST_REST else busy
        ratios = {name: beside[name] / base[name] for name in quiet}
        if "create_and_remove" in ratios:
            ratios["create_and_remove"] = beside["create_and_remove"] / busy["create_and_remove"]
        told = {f"{name} to quiet": beside[name] / quiet[name] for name in quiet}
        measured.append({**ratios, **told, "rest": rest})
    # The middle one: another program may have come in the way of any part of a round.
    return {name: statistics.median(r[name] for r in measured) for name in measured[0]}


def hold_to_twice(clock: Clock, attack: Attack, processors: int, rounds: int = ROUNDS) -> None:
    """Fails if others take more than twice their time beside the attack."""
    measured = []
    for _ in range(SERIES):
        cost = costs(clock, attack, processors, rounds)
        print({name: round(ratio, 2) for name, ratio in cost.items()})
        judged = [ratio for name, ratio in cost.items() if name != "rest" and " to " not in name]
        if max(judged) < (2 if cost["rest"] > LEAST_REST else 3):
            return
        measured.append(cost)
    raise AssertionError(measured)
