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



import time
def test_hold(server, crowd):
    attack = HOLD + f'hold([("{OTHER}", 9000)], 900, each=lambda s: s.send(b"?"), pause=0.0)'
    with attacking(server, attack, reaches=[OTHER], cpu="1", memory="1Gi"):
        time.sleep(1)
        a = server.call("GET","/metrics").body.decode()
        subprocess.run(["python3","/tmp/samp.py"]); subprocess.run(["perf","record","-q","-g","-o","/tmp/perf.data","-p",str(server.process.pid),"sleep","1"]); subprocess.run("timeout 1 strace -f -c -p %d -o /tmp/strace.out" % server.process.pid, shell=True)
        b = server.call("GET","/metrics").body.decode()
        f = lambda t: [l for l in t.splitlines() if 'bytes' in l and 'egress' in l and l[0] != '#']
        print(f(a), f(b))
