"""Hosts of the small Internet that take any number of connections.

Port 9000 greets with a byte and repeats what it hears, 9001 sends without end, 9002 takes connections and
is silent, 9003 takes none. Runs inside their namespace, at the address it is given, until its standard
input is closed.
"""

from __future__ import annotations

import contextlib
import resource
import select
import socket
import sys


class Crowd:
    def __init__(self, address: str) -> None:
        self.poll = select.epoll()
        self.listeners: dict[int, socket.socket] = {}
        self.streams: dict[int, tuple[socket.socket, int]] = {}
        for port in (9000, 9001, 9002):
            listener = socket.create_server((address, port), backlog=4096)
            listener.setblocking(False)
            self.listeners[listener.fileno()] = listener
            self.poll.register(listener, select.EPOLLIN)
        # Its queue is full with the first one.
        self.closed = socket.create_server((address, 9003), backlog=0)

    def run(self) -> None:
        self.poll.register(sys.stdin, select.EPOLLIN)
        while True:
            for number, _ in self.poll.poll():
                if number == sys.stdin.fileno():
                    return
                if number in self.listeners:
                    self.take(self.listeners[number])
                else:
                    self.serve(number)

    def take(self, listener: socket.socket) -> None:
        port = listener.getsockname()[1]
        with contextlib.suppress(BlockingIOError):
            while True:
                stream, _ = listener.accept()
                stream.setblocking(False)
                self.streams[stream.fileno()] = stream, port
                wanted = select.EPOLLOUT if port == 9001 else select.EPOLLIN
                self.poll.register(stream, wanted)
                if port == 9000:
                    # It may be gone already.
                    with contextlib.suppress(OSError):
                        stream.send(b"!")

    def serve(self, number: int) -> None:
        stream, port = self.streams[number]
        try:
            if port == 9001:
                stream.send(bytes(1 << 16))
                return
            heard = stream.recv(1 << 16)
            if heard:
                if port == 9000:
                    stream.send(heard)
                return
        except BlockingIOError:
            return
        except OSError:
            pass
        del self.streams[number]
        self.poll.unregister(stream)
        stream.close()


def main() -> None:
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    crowd = Crowd(sys.argv[1])
    print("ready", flush=True)
    crowd.run()


if __name__ == "__main__":
    main()
