"""Beside a sandbox that takes all it can, others and the server answer within twice their time: one
test per sentence of SECURITY.md, named after it."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator

import pytest
from neighbours import Clock, Sandbox, attacking, hold_to_twice

SPIN = """
begun()
fork(8)
while True:
    pass
"""

# Half of the processes end at once, so that there is always room for another one.
FORK_BOMB = """
signal.signal(signal.SIGCHLD, signal.SIG_IGN)
while True:
    try:
        if os.fork() == 0 and os.getpid() % 2:
            os._exit(0)
    except OSError:
        if not os.path.exists("/dev/shm/begun"):
            begun()
"""

# Two at a time, the next as soon as the kernel has ended one.
MEMORY_BOMB = """
fork(2)
while True:
    child = os.fork()
    if child == 0:
        bytearray(4 << 30)
    if os.WIFSIGNALED(os.waitpid(child, 0)[1]):
        begun()
"""

# Fills the disk and frees it, again and again.
DISK_FILL = """
block = os.urandom(1 << 20)
while True:
    try:
        with open("/full", "wb", buffering=0) as file:
            while True:
                file.write(block)
    except OSError:
        begun()
        os.unlink("/full")
"""

INODE_FILL = """
os.mkdir("/many")
while True:
    try:
        for number in range(10**9):
            os.mknod(f"/many/{number}")
    except OSError:
        begun()
        for other in range(number):
            os.unlink(f"/many/{other}")
"""

DESCRIPTORS = """
import resource
most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
fork(2)
while True:
    try:
        while True:
            os.open("/dev/null", os.O_RDONLY)
    except OSError:
        os.closerange(3, most)
        begun()
"""

# Watches the programs that all sandboxes share, and their directories, with all that it may have.
WATCHES = """
import ctypes, glob
libc = ctypes.CDLL(None, use_errno=True)
places = glob.glob("/usr/lib/*-linux-gnu") + glob.glob("/usr/lib*") + ["/usr/bin"]
names = [f"{place}/{name}" for place in places for name in ("sh", "dash", "bash", "libc.so.6")]
watchers = []
while (watcher := libc.inotify_init1(os.O_NONBLOCK)) >= 0:
    watchers.append(watcher)
for watcher in watchers:
    for name in places + names:
        libc.inotify_add_watch(watcher, name.encode(), 0xfff)
while True:
    begun()
    for watcher in watchers:
        try:
            while os.read(watcher, 1 << 16):
                pass
        except OSError:
            pass
"""


@pytest.fixture
def attacked(server) -> Callable[..., None]:
    """Attacks from a sandbox with these limits, and looks how others fare."""

    def attacked(attack: str, **limits: str) -> None:
        @contextlib.contextmanager
        def attack_once() -> Iterator[None]:
            with attacking(server, attack, **limits) as attacker:
                yield
                message = attacker.get()["status"]["message"]
                assert attack == MEMORY_BOMB or "memory" not in message, message

        with Sandbox(server, cpu="1", memory="512Mi") as neighbour:
            processors = int(limits.get("cpu", os.cpu_count() or 1))
            hold_to_twice(Clock(server, neighbour), attack_once, processors)

    return attacked


def test_beside_a_sandbox_that_spins_others_answer_within_twice_their_time(attacked):
    attacked(SPIN, cpu="1", memory="512Mi")


def test_beside_one_that_spins_without_a_limit_others_answer_within_twice_their_time(attacked):
    attacked(SPIN, memory="512Mi")


def test_beside_a_fork_bomb_others_answer_within_twice_their_time(attacked):
    attacked(FORK_BOMB, cpu="1", memory="2Gi")


def test_beside_a_memory_bomb_others_answer_within_twice_their_time(attacked):
    attacked(MEMORY_BOMB, cpu="1", memory="512Mi")


def test_beside_a_full_disk_others_answer_within_twice_their_time(attacked):
    # Less memory than disk: what is written costs none.
    attacked(DISK_FILL, cpu="1", memory="64Mi", disk="128Mi")


def test_beside_a_disk_full_of_files_others_answer_within_twice_their_time(attacked):
    attacked(INODE_FILL, cpu="1", memory="512Mi", disk="64Mi")


def test_beside_one_that_opens_all_it_can_others_answer_within_twice_their_time(attacked):
    attacked(DESCRIPTORS, cpu="1", memory="512Mi")


def test_beside_one_that_watches_all_it_can_others_answer_within_twice_their_time(attacked):
    attacked(WATCHES, cpu="1", memory="512Mi")
