"""Somebody on the other end of the wire, who sees every packet that leaves the server's machine."""

from __future__ import annotations

import contextlib
import select
import socket
import struct
import threading
from collections import Counter
from collections.abc import Iterator

from internet import inside

EVERYTHING = 3
IPV4, IPV6 = 0x0800, 0x86DD
#: A packet that was sent from where the witness stands.
OUTGOING = 4


class Witness:
    def __init__(self, namespace: str) -> None:
        with inside(namespace):
            self.socket = socket.socket(socket.AF_PACKET, socket.SOCK_DGRAM, socket.htons(EVERYTHING))
        self.socket.setblocking(False)
        self.counted: Counter[tuple[str, int | None]] = Counter()
        self.carried: Counter[tuple[str, int | None]] = Counter()
        self.asked: Counter[str] = Counter()
        self.bytes = bytearray()
        self.looking = threading.Lock()
        self.ended = threading.Event()
        self.thread = threading.Thread(target=self.watch, daemon=True)

    @property
    def packets(self) -> Counter[tuple[str, int | None]]:
        """How many packets came for whom: an address and a port, or none if there is none."""
        self.look()
        return self.counted.copy()

    @property
    def told(self) -> Counter[tuple[str, int | None]]:
        """How many bytes came for whom, not counting the packets that only open and close."""
        self.look()
        return self.carried.copy()

    @property
    def questions(self) -> Counter[str]:
        """The questions for names, as they were asked."""
        self.look()
        return self.asked.copy()

    @property
    def heard(self) -> bytearray:
        """Everything that was sent in the clear, or not so."""
        self.look()
        return self.bytes

    def everything(self) -> int:
        """How much programs have sent. What has no port is the kernel's, such as its search for routers."""
        return sum(count for (_, port), count in self.packets.items() if port is not None)

    def watch(self) -> None:
        while not self.ended.is_set():
            select.select([self.socket], [], [], 0.2)
            self.look()

    def look(self) -> None:
        """Counts all that has come until now."""
        with self.looking, contextlib.suppress(BlockingIOError):
            while True:
                packet, (_, protocol, kind, *_) = self.socket.recvfrom(1 << 16)
                if kind != OUTGOING and protocol in (IPV4, IPV6):
                    self.see(packet, protocol)

    def see(self, packet: bytes, protocol: int) -> None:
        if protocol == IPV4:
            kind, to, start = packet[9], socket.inet_ntoa(packet[16:20]), (packet[0] & 15) * 4
        else:
            kind, to, start = packet[6], socket.inet_ntop(socket.AF_INET6, packet[24:40]), 40
        port, head = None, 0
        if kind in (socket.IPPROTO_TCP, socket.IPPROTO_UDP):
            port = struct.unpack_from("!H", packet, start + 2)[0]
            head = (packet[start + 12] >> 4) * 4 if kind == socket.IPPROTO_TCP else 8
        self.counted[to, port] += 1
        self.carried[to, port] += len(packet) - start - head
        self.bytes += packet[start:]
        if kind == socket.IPPROTO_UDP and port == 53:
            self.asked[name_of(packet[start + 20 :])] += 1


def name_of(question: bytes) -> str:
    labels, at = [], 0
    while question[at]:
        labels.append(question[at + 1 : at + 1 + question[at]].decode("latin-1"))
        at += 1 + question[at]
    return ".".join(labels)


@contextlib.contextmanager
def witness(namespace: str) -> Iterator[Witness]:
    seen = Witness(namespace)
    seen.thread.start()
    try:
        yield seen
    finally:
        seen.ended.set()
        seen.thread.join()
        seen.socket.close()
