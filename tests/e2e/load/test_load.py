"""Ten thousand connections, and sandboxes that hold on to all they can get: the server and the others
go on as before."""

from __future__ import annotations

import contextlib
import functools
import json
import os
import pathlib
import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterator

import pytest
from internet import OTHER, Internet
from neighbours import PRELUDE, Clock, Sandbox, attacking, hold_to_twice
from served import Server, wait_for

HERE = pathlib.Path(__file__).resolve().parent

#: A public address at which nobody is: no way leads there, and nobody says so.
NOWHERE = "46.77.0.1"

# What the neighbour does: it prints how long a question for a name takes and how long a request does, the
# middle of each.
PROBE = """
import json, socket, statistics, struct, time
QUESTION = struct.pack("!6H", 7, 0x100, 1, 0, 0, 0) + b"\\1a\\7example\\3com\\0\\0\\1\\0\\1"
def ask():
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as s:
        s.settimeout(20)
        s.connect(("9.9.9.9", 53))
        s.send(QUESTION)
        return socket.inet_ntoa(s.recv(512)[-4:])
def request(address):
    with socket.create_connection((address, 80), 20) as s:
        s.sendall(b"GET / HTTP/1.1\\r\\nHost: a.example.com\\r\\nConnection: close\\r\\n\\r\\n")
        while s.recv(4096):
            pass
taken = [[], []]
for _ in range(10):
    began = time.perf_counter()
    address = ask()
    asked = time.perf_counter()
    request(address)
    taken[0].append(asked - began)
    taken[1].append(time.perf_counter() - asked)
print(json.dumps([statistics.median(times) for times in taken]))
"""

# Has so many connections at the same time, or tries to have them: one that is refused is tried again.
HOLD = """
import resource, select, socket, sys, time
most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
def hold(addresses, count, heard=lambda stream: stream.recv(4096), each=lambda stream: None, pause=1.0):
    poll, streams, tried = select.epoll(), {}, 0
    def begin():
        stream = socket.socket()
        stream.setblocking(False)
        stream.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        stream.connect_ex(addresses[tried % len(addresses)])
        streams[stream.fileno()] = stream
        poll.register(stream, select.EPOLLIN)
    next_turn = time.monotonic() + pause
    while True:
        while len(streams) < count:
            begin()
            tried += 1
            if tried == 10_000:
                begun()
        for number, _ in poll.poll(max(0, next_turn - time.monotonic())):
            try:
                if heard(streams[number]):
                    continue
            except BlockingIOError:
                continue
            except OSError:
                pass
            poll.unregister(number)
            streams.pop(number).close()
        if time.monotonic() >= next_turn:
            for stream in list(streams.values()):
                try:
                    each(stream)
                except OSError:
                    pass
            begun()
            next_turn = time.monotonic() + pause
"""


@pytest.fixture(scope="module")
def crowd(world: Internet) -> Iterator[None]:
    """Hosts that take any number of connections."""
    command = ["ip", "netns", "exec", world.away, sys.executable, str(HERE / "crowd.py"), OTHER]
    # What they do is no part of what is measured.
    command = ["nice", "-n", "19", *command]
    hosts = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert hosts.stdout is not None and hosts.stdout.readline() == b"ready\n"
    yield
    assert hosts.poll() is None, "they have ended early"
    hosts.communicate()


class NetworkClock(Clock):
    """Also takes the time of what the neighbour asks of others."""

    def __init__(self, server: Server, neighbour: Sandbox) -> None:
        super().__init__(server, neighbour)
        neighbour.run(f"cat > /probe.py <<'END'\n{PROBE}\nEND")

    def asks(self) -> list[Callable[[], None]]:
        return [self.command, self.get]

    def medians(self) -> dict[str, float]:
        asked, requested = json.loads(self.neighbour.run("python3 /probe.py", timeout=300)[0])
        return {**super().medians(), "question": asked, "request": requested}


@pytest.fixture
def attacked(server: Server, crowd: None) -> Callable[..., None]:
    """Attacks from a sandbox that reaches these, and looks how others fare."""

    def attacked(attack: str, *reaches: str) -> None:
        limits = {"cpu": "1", "memory": "1Gi"}
        attack = HOLD + textwrap.dedent(attack)
        attack_once = functools.partial(attacking, server, attack, reaches=[*reaches], **limits)
        with Sandbox(server, reaches=["a.example.com"], cpu="1", memory="512Mi") as neighbour:
            # The server is as busy with it as the attacker itself may be.
            hold_to_twice(NetworkClock(server, neighbour), attack_once, 2, rounds=3)

    return attacked


def test_beside_ten_thousand_connections_others_answer_within_twice_their_time(attacked):
    attacked(f'hold([("{OTHER}", 9000)], 10_000, each=lambda s: s.send(b"?"))', OTHER)


def test_beside_ten_thousand_refused_connections_others_answer_within_twice_their_time(attacked):
    attacked(f'hold([("{OTHER}", 9000), ("10.0.0.1", 80), ("198.18.77.77", 443)], 10_000)')


def test_beside_connections_that_nobody_answers_others_answer_within_twice_their_time(attacked):
    attacked(f'hold([("{NOWHERE}", 80), ("{OTHER}", 9003)], 10_000)', NOWHERE, OTHER)


def test_beside_a_slow_loris_others_answer_within_twice_their_time(attacked):
    attacked(
        f"""
        hello = bytes([22, 3, 1, 2, 0, 1, 0, 1, 0xfc, 3, 3]) + bytes(500)
        head = b"GET / HTTP/1.1\\r\\nX: " + b"x" * 4000
        sent = {{}}
        def each(stream):
            number = stream.fileno()
            at = sent[number] = sent.get(number, -1) + 1
            stream.send((hello if number % 2 else head)[at:at + 1])
        hold([("{OTHER}", 9002)], 10_000, each=each)
        """,
        OTHER,
    )


def test_beside_connections_that_are_never_read_others_answer_within_twice_their_time(attacked):
    attacked(
        f"""
        def look(stream):
            time.sleep(0.001)
            return stream.recv(1, socket.MSG_PEEK)
        hold([("{OTHER}", 9001)], 10_000, heard=look)
        """,
        OTHER,
    )


def test_beside_a_flood_of_questions_others_answer_within_twice_their_time(attacked):
    attacked(
        """
        import itertools, struct
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as s:
            s.connect(("9.9.9.9", 53))
            for number in itertools.count():
                label = b"%08x" % number
                head = struct.pack("!6H", number & 0xffff, 0x100, 1, 0, 0, 0)
                domain = b"\\7example\\3com\\0" if number % 2 else b"\\5other\\3org\\0"
                s.send(head + b"\\x08" + label + domain + b"\\0\\1\\0\\1")
                if number == 10_000:
                    begun()
        """,
        "*.example.com",
    )


def test_beside_a_flood_of_datagrams_others_answer_within_twice_their_time(attacked):
    attacked(
        f"""
        import itertools
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as s:
            for number in itertools.count():
                s.sendto(b"x", ("{OTHER}" if number % 2 else f"11.0.{{number >> 8 & 255}}.{{number & 255}}", 7000))
                if number == 10_000:
                    begun()
        """,
        OTHER,
    )


def test_beside_resolvers_that_are_held_others_answer_within_twice_their_time(attacked):
    attacked('hold([("9.9.9.9", 53)], 10_000, each=lambda s: s.send(b"\\0"))', OTHER)


# What each of several sandboxes has.
SHARE = 500

# Has so many connections, each of which has carried a byte, and tells; repeats that when it is told to.
CARRY = f"""
streams = []
for _ in range({SHARE}):
    stream = socket.create_connection(("{OTHER}", 9000), 60)
    assert stream.recv(1) == b"!"
    streams.append(stream)
begun()
while not os.path.exists("/dev/shm/go"):
    time.sleep(0.1)
for stream in streams:
    stream.sendall(b"?")
print(sum(stream.recv(1) == b"?" for stream in streams), flush=True)
signal.pause()
"""


class Process:
    """What the server's process has."""

    def __init__(self, server: Server) -> None:
        assert server.process is not None
        self.place = pathlib.Path(f"/proc/{server.process.pid}")

    def memory(self) -> int:
        """In bytes."""
        lines = (self.place / "status").read_text().splitlines()
        return 1024 * int(next(line for line in lines if line.startswith("VmRSS:")).split()[1])

    def descriptors(self) -> int:
        return len(os.listdir(self.place / "fd"))

    def most_descriptors(self) -> int:
        lines = (self.place / "limits").read_text().splitlines()
        return int(next(line for line in lines if line.startswith("Max open files")).split()[3])


def open_connections(server: Server) -> int:
    text = server.call("GET", "/metrics").body.decode()
    lines = [it for it in text.splitlines() if it.startswith("opensandbox_egress_connections ")]
    return int(lines[0].split()[1])


def test_ten_thousand_connections_of_several_sandboxes_carry_bytes_and_leave_nothing(server, crowd):
    """Of two descriptors each, and half of all are for something else: where there are not enough, it
    is as many as there are, but for the last share, which is for others."""
    process = Process(server)
    places = process.most_descriptors() // 4
    count = min(10_000 // SHARE, places // SHARE - 1)
    assert count > 1, f"there are only {process.most_descriptors()} descriptors"
    wait_for("what was before has ended", lambda: open_connections(server) == 0)
    memory, descriptors = process.memory(), process.descriptors()
    with contextlib.ExitStack() as stack:
        sandboxes = []
        for _ in range(count):
            sandboxes.append(stack.enter_context(Sandbox(server, reaches=[OTHER], memory="256Mi")))
            sandboxes[-1].run(f"cat > /carry.py <<'END'\n{PRELUDE}{HOLD}{CARRY}\nEND")
            sandboxes[-1].run("python3 /carry.py > /dev/shm/said 2>&1 & echo")
        for sandbox in sandboxes:
            wait_for("it has all of its connections", sandbox.has_begun, seconds=100)
        assert open_connections(server) == count * SHARE
        each = (process.memory() - memory) / (count * SHARE)
        print(f"{count * SHARE} connections, {each / 1024:.1f} KiB of memory for each")
        assert each < 16 * 1024
        for sandbox in sandboxes:
            sandbox.run("touch /dev/shm/go")
        for sandbox in sandboxes:
            carried = lambda sandbox=sandbox: sandbox.run("cat /dev/shm/said") == [str(SHARE)]
            wait_for("all have carried a byte", carried)
    # In the midst of it the sandboxes are removed.
    wait_for("all connections have ended", lambda: open_connections(server) == 0)
    wait_for("all descriptors are closed", lambda: process.descriptors() <= descriptors + 8)
    # The allocator keeps for the next ones what these had, and nothing beyond it.
    kept = (process.memory() - memory) / (count * SHARE)
    print(f"{kept / 1024:.1f} KiB of memory kept for each")
    assert kept < 8 * 1024
