"""A small Internet: network namespaces with hosts in them, and one from which a server reaches them.

Everything is in a namespace of its own, so nothing of the machine's network is touched:

    home ── the server runs here
      ├── 45.77.0.0/24, 2a0e:77::/64  the public Internet: web servers, a resolver, a banner
      ├── 10.77.0.0/24                a private network with a web server
      └── 169.254.169.254             where clouds give machines their identity

Addresses that are reserved for documentation would be refused as such, so the hosts that stand for
the public Internet have addresses that belong to somebody. Nothing is ever sent there: no way leads
out of these namespaces.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import pathlib
import subprocess
import sys
from collections.abc import Iterator

HERE = pathlib.Path(__file__).resolve().parent

PUBLIC = "45.77.0.10"
OTHER = "45.77.0.11"
PUBLIC6 = "2a0e:77::10"
RESOLVER = "45.77.0.53"
PRIVATE = "10.77.0.10"
METADATA = "169.254.169.254"

#: CLONE_NEWNET.
NEW_NETWORK = 0x40000000

#: What the resolver knows. `=name` is another name for it, `of name address` an answer that is about
#: another name, and what is before `then` is answered once, and never again.
NAMES = {
    "a.example.com": [PUBLIC],
    "b.example.com": [PUBLIC],
    "example.com": [PUBLIC],
    "other.org": [OTHER],
    "six.example.com": [PUBLIC6],
    "both.example.com": [PUBLIC, PUBLIC6],
    "dead.example.com": ["45.77.0.99", PUBLIC],
    "private.example.com": [PRIVATE],
    "metadata.example.com": [METADATA],
    "loopback.example.com": ["127.0.0.1"],
    "mapped.example.com": ["::ffff:10.77.0.10"],
    "mixed.example.com": [PRIVATE, PUBLIC],
    "registry.corp.example": [PRIVATE],
    "link.example.com": ["169.254.7.7"],
    "shared.example.com": ["100.64.0.10"],
    "home.example.com": ["45.77.0.1"],
    "zero.example.com": ["0.0.0.0"],
    "everybody.example.com": ["255.255.255.255"],
    "group.example.com": ["224.0.0.251"],
    "synthetic.example.com": ["198.18.1.0"],
    "translated.example.com": ["64:ff9b::a9fe:a9fe"],
    "unique.example.com": ["fd00:ec2::254"],
    "alias.example.com": ["=metadata.example.com"],
    "denied-alias.example.com": ["=other.org"],
    "rebinding.example.com": [PUBLIC, "then", METADATA],
    "stranger.example.com": [f"of other.org {OTHER}"],
    "*.wild.example.com": [PUBLIC],
    "dns.google": ["8.8.8.8"],
    "use-application-dns.net": [PUBLIC],
    "peer.example.com": [OTHER],
    "impostor.example.com": [OTHER],
    "expired.example.com": [OTHER],
    "namesake.example.com": [OTHER],
}


def ip(*arguments: str) -> None:
    subprocess.run(["ip", *arguments], check=True)


class Internet:
    """The namespaces and the processes in them."""

    def __init__(self) -> None:
        self.home = f"osb-home-{os.getpid()}"
        self.away = f"osb-away-{os.getpid()}"
        self.hosts: subprocess.Popen[bytes] | None = None
        self.config: pathlib.Path | None = None

    def start(self, place: pathlib.Path) -> None:
        for name in (self.home, self.away):
            ip("netns", "add", name)
            ip("-n", name, "link", "set", "lo", "up")
        ip("-n", self.home, "link", "add", "net0", "type", "veth", "peer", "name", "net0", "netns", self.away)
        for name in (self.home, self.away):
            ip("-n", name, "link", "set", "net0", "up")
        for address in ("45.77.0.1/24", "10.77.0.1/24", "169.254.0.1/16"):
            ip("-n", self.home, "addr", "add", address, "dev", "net0")
        ip("-n", self.home, "addr", "add", "2a0e:77::1/64", "dev", "net0", "nodad")
        for address in (PUBLIC, OTHER, RESOLVER, PRIVATE, METADATA):
            ip("-n", self.away, "addr", "add", f"{address}/16", "dev", "net0")
        ip("-n", self.away, "addr", "add", f"{PUBLIC6}/64", "dev", "net0", "nodad")
        ip("-n", self.home, "route", "add", "default", "via", PUBLIC)
        ip("-n", self.home, "-6", "route", "add", "default", "via", PUBLIC6)
        command = ["ip", "netns", "exec", self.away, sys.executable, str(HERE / "hosts.py"), json.dumps(NAMES)]
        self.hosts = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        assert self.hosts.stdout is not None and self.hosts.stdout.readline() == b"ready\n"
        self.config = place / "server.toml"
        self.config.write_text(
            f'[egress]\nresolvers = ["{RESOLVER}"]\nallow-private = ["registry.corp.example"]\n'
        )

    def stop(self) -> None:
        if self.hosts is not None:
            self.hosts.kill()
            self.hosts.wait()
        for name in (self.home, self.away):
            subprocess.run(["ip", "netns", "del", name], check=False)


@contextlib.contextmanager
def internet(place: pathlib.Path) -> Iterator[Internet]:
    made = Internet()
    try:
        made.start(place)
        yield made
    finally:
        made.stop()


@contextlib.contextmanager
def inside(namespace: str) -> Iterator[None]:
    """This thread, and what it starts, in a network namespace. The server listens on its loopback,
    so whoever talks to it must be there too."""
    with open("/proc/thread-self/ns/net") as here, open(f"/run/netns/{namespace}") as there:
        enter(there.fileno())
        try:
            yield
        finally:
            enter(here.fileno())


@contextlib.contextmanager
def alone() -> Iterator[None]:
    """This thread, and what it starts, in a network namespace that has a loopback and nothing else."""
    with open("/proc/thread-self/ns/net") as here:
        if ctypes.CDLL(None, use_errno=True).unshare(NEW_NETWORK) != 0:
            raise OSError(ctypes.get_errno(), "unshare")
        try:
            subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
            yield
        finally:
            enter(here.fileno())


def enter(namespace: int) -> None:
    # os.setns exists from Python 3.12 on.
    if ctypes.CDLL(None, use_errno=True).setns(namespace, NEW_NETWORK) != 0:
        raise OSError(ctypes.get_errno(), "setns")
