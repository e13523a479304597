"""How a way out is tried: from inside, beside a witness on the wire, and with a look into the log."""

from __future__ import annotations

import contextlib
import socket
import textwrap
import threading
from collections.abc import Iterator
from typing import Any

from opensandbox import SandboxSync
from served import Server, wait_for
from tries import REFUSED, run
from witness import Witness

#: What programs see of a way that is closed: a broken connection, silence, or no such name.
SHUT = (*REFUSED, "closed", "TimeoutError", "gaierror", "BrokenPipeError", "SSLError", "SSLEOFError")

#: More that tests run inside, beside what `tries` has.
INSIDE = '''
import ctypes, errno, time
def udp(host, port, data=b"x", family=socket.AF_INET):
    def work():
        with socket.socket(family, socket.SOCK_DGRAM) as s:
            s.setsockopt(socket.SOL_SOCKET, socket.SO_BROADCAST, 1)
            s.settimeout(0.5)
            s.connect((host, port))
            s.send(data)
            return "heard " + s.recv(4096).hex()
    return tell(work)
def web(host, port=80, name=None, more=""):
    head = f"GET / HTTP/1.1\\r\\nHost: {name or host}\\r\\n{more}Connection: close\\r\\n\\r\\n"
    return raw(host, port, head.encode())
def hello(name, *, alpn=None, version=None):
    context = ssl._create_unverified_context()
    if alpn:
        context.set_alpn_protocols(alpn)
    into, out = ssl.MemoryBIO(), ssl.MemoryBIO()
    try:
        context.wrap_bio(into, out, server_hostname=name).do_handshake()
    except ssl.SSLWantReadError:
        pass
    return out.read()
def extended(name, extension):
    """A hello with one more extension."""
    bytes_ = hello(name)
    record, body = bytes_[:5], bytes_[9:]
    at = 34 + 1 + body[34]
    at += 2 + int.from_bytes(body[at:at + 2], "big")
    at += 1 + body[at]
    body = body[:at] + struct.pack("!H", int.from_bytes(body[at:at + 2], "big") + len(extension)) + body[at + 2:] + extension
    message = b"\\x01" + len(body).to_bytes(3, "big") + body
    return record[:3] + struct.pack("!H", len(message)) + message
def query(name, kind=1, *, count=1, tail=b""):
    labels = b"".join(bytes([len(part)]) + part.encode() for part in name.split("."))
    return struct.pack("!HHHHHH", 7, 0x100, count, 0, 0, 0) + labels + b"\\0" + struct.pack("!HH", kind, 1) + tail
def attempt(work):
    """For what the kernel refuses: why it did."""
    try:
        print("done", work(), flush=True)
    except OSError as error:
        print(errno.errorcode.get(error.errno, type(error).__name__), flush=True)
'''


def search(secret: str) -> str:
    """A program that prints the places inside that have a secret."""
    # In two parts, so that it does not find itself.
    first, second = secret[: len(secret) // 2], secret[len(secret) // 2 :]
    return f"""
        import glob
        secret = ({first!r} + {second!r}).encode()
        places = glob.glob("/proc/[0-9]*/environ") + glob.glob("/proc/[0-9]*/cmdline")
        for top in ("/etc", "/run", "/tmp", "/opt", "/root", "/home", "/var", "/dev/shm"):
            for directory, _, names in os.walk(top):
                places += [os.path.join(directory, name) for name in names]
        def has(place):
            try:
                if not os.path.isfile(place) or os.path.getsize(place) > 1 << 24:
                    return False
                with open(place, "rb") as file:
                    return secret in file.read()
            except OSError:
                return False
        print([place for place in places if has(place)])
        """


@contextlib.contextmanager
def listening(address: str, port: int) -> Iterator[list[object]]:
    """A service of the host, and who came."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    came: list[object] = []
    with socket.create_server((address, port), family=family) as service:

        def serve() -> None:
            with contextlib.suppress(OSError):
                while True:
                    stream, peer = service.accept()
                    came.append(peer)
                    stream.sendall(b"welcome")
                    stream.close()

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        try:
            yield came
        finally:
            service.shutdown(socket.SHUT_RDWR)
            thread.join()


class Inmate:
    """A sandbox from which somebody tries to get out."""

    def __init__(self, sandbox: SandboxSync, server: Server, witness: Witness) -> None:
        self.sandbox = sandbox
        self.server = server
        self.witness = witness

    def says(self, text: str) -> list[str]:
        return run(self.sandbox, INSIDE + textwrap.dedent(text))

    def log(self) -> list[dict[str, Any]]:
        answer = self.server.call("GET", f"/v1/sandboxes/{self.sandbox.id}/egress/log")
        assert answer.status == 200, answer
        return answer.json()["decisions"]

    def times(self, **entry: Any) -> int:
        """How often something like this was denied, or cut."""

        def is_it(decision: dict[str, Any]) -> bool:
            cut = decision.get("end", {}).get("cutBy")
            if decision["action"] != "deny" and cut is None:
                return False
            said = decision | (cut or {})
            return all(said.get(key) == value for key, value in entry.items())

        return sum(decision["times"] for decision in self.log() if is_it(decision))

    def refused(
        self,
        text: str,
        *,
        unseen: tuple[str, int] | None = None,
        untold: tuple[str, int] | None = None,
        **entry: Any,
    ) -> None:
        """Each line that it prints says that the way was closed, the log has each, and what was
        forbidden did not come by on the wire: no packet for whom it was meant, or, where only what is
        said decides, not a byte of it; and nobody was asked for a name that does not exist."""
        if unseen is None and untold is None:
            unseen = (entry["address"], entry["port"])

        def passed() -> tuple[int, int, int]:
            questions = self.witness.questions[entry["name"]] if entry.get("protocol") == "dns" else 0
            return self.witness.packets[unseen], self.witness.told[untold], questions

        before, on_the_wire = self.times(**entry), passed()
        said = self.says(text)
        assert said and all(line in SHUT for line in said), said
        wait_for(f"it is in the log: {entry}", lambda: self.times(**entry) >= before + len(said))
        assert passed() == on_the_wire, (unseen, untold)

    def passes(self, text: str, *expected: str) -> None:
        """What is allowed works meanwhile, so that nothing was closed but the way."""
        assert self.says(text) == list(expected)

    def stopped(self, text: str, *errors: str) -> None:
        """The kernel refuses each of them with this error, or the first with the first and so on: nothing
        arrives anywhere, so there is nothing to log. `A|B` is one or the other, as the kernel was built."""
        said = self.says(f"tell = attempt\n{textwrap.dedent(text)}")
        expected = errors if len(errors) > 1 else errors * len(said)
        assert said and len(said) == len(expected), said
        assert all(line in error.split("|") for line, error in zip(said, expected)), said
