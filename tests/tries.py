"""What suites let programs in a sandbox try in the network."""

from __future__ import annotations

import textwrap
from typing import NamedTuple

from opensandbox import SandboxSync
from served import wait_for

#: What tests run inside. Each call prints one line: what came back, or the name of the error.
INSIDE = '''
import os, socket, ssl, struct, sys, urllib.request
socket.setdefaulttimeout(10)
def outcome(work):
    try:
        return work()
    except OSError as error:
        reason = getattr(error, "reason", error)
        return type(reason if isinstance(reason, Exception) else error).__name__
def tell(work):
    print(outcome(work), flush=True)
def page(url, **headers):
    request = urllib.request.Request(url, headers=headers)
    return urllib.request.urlopen(request).read().decode().strip()
def get(url, **headers):
    return tell(lambda: page(url, **headers))
def raw(host, port, data=b"", family=0):
    def work():
        with socket.create_connection((host, port)) as stream:
            stream.sendall(data)
            return stream.recv(100).decode("latin-1").strip() or "closed"
    return tell(work)
def lookup(name, kind=0):
    return tell(lambda: " ".join(sorted({found[4][0] for found in socket.getaddrinfo(name, 80, kind)})))
def ask(name, kind, server="9.9.9.9", tcp=False):
    labels = b"".join(bytes([len(part)]) + part.encode() for part in name.split("."))
    query = struct.pack("!HHHHHH", 7, 0x100, 1, 0, 0, 0) + labels + b"\\0" + struct.pack("!HH", kind, 1)
    def work():
        with socket.socket(socket.AF_INET, socket.SOCK_STREAM if tcp else socket.SOCK_DGRAM) as s:
            s.settimeout(10)
            s.connect((server, 53))
            s.sendall(struct.pack("!H", len(query)) + query if tcp else query)
            answer = s.recv(4096)[2 if tcp else 0:]
        code, count = answer[3] & 15, struct.unpack("!H", answer[6:8])[0]
        return f"{code} {count} {answer[len(query):].hex()}"
    return tell(work)
'''


def run(sandbox: SandboxSync, text: str) -> list[str]:
    """The lines that a script inside prints."""
    program = INSIDE + textwrap.dedent(text)
    sandbox.files.write_file("/tmp/try.py", program)
    done = sandbox.commands.run("timeout 60 python3 /tmp/try.py")
    assert done.exit_code == 0, [message.text for message in done.logs.stderr]
    return [line for message in done.logs.stdout for line in message.text.splitlines()]


def one(sandbox: SandboxSync, text: str) -> str:
    lines = run(sandbox, text)
    assert len(lines) == 1, lines
    return lines[0]


#: A program that tries the same again and again, each in a thread of its own, since who waits for an answer
#: to a question tries nothing meanwhile. It writes down when a try began and ended, and what came of it.
WATCH = """
import threading, time
def watch(what, work):
    with open("/tmp/seen", "a", buffering=1) as seen:
        while True:
            began = time.time()
            said = outcome(work)
            seen.write(f"{began} {time.time()} {what} {said}\\n")
            time.sleep(0.02)
def watch_all(**tries):
    for each in tries.items():
        threading.Thread(target=watch, args=each).start()
"""


class Try(NamedTuple):
    began: float
    ended: float
    what: str
    said: str


class Watch:
    """What a program that goes on trying sees."""

    def __init__(self, sandbox: SandboxSync, **tries: str) -> None:
        """Each is an expression that gives a text, or fails."""
        self.sandbox = sandbox
        works = ", ".join(f"{what}=lambda: {text}" for what, text in tries.items())
        sandbox.files.write_file("/tmp/watch.py", f"{INSIDE}{WATCH}watch_all({works})\n")
        sandbox.commands.run("setsid python3 /tmp/watch.py >/tmp/said 2>&1 & echo")

    def seen(self) -> list[Try]:
        """Everything so far."""
        said = self.sandbox.commands.run("cat /tmp/seen").logs.stdout
        words = [line.split(" ", 3) for message in said for line in message.text.splitlines()]
        return [Try(float(began), float(ended), what, said) for began, ended, what, said in words]

    def wait(self, what: str, said: str) -> None:
        """Until a try that begins from now on has come to this."""
        now = max((it.began for it in self.seen()), default=0.0)
        is_it = lambda it: it.began > now and (it.what, it.said) == (what, said)
        wait_for(f"{what}: {said}", lambda: any(map(is_it, self.seen())))

    def refusals(self, what: str, began: float, ended: float) -> int:
        """How often it was tried between these moments. Each time it was refused."""
        within = [it for it in self.seen() if it.what == what and began < it.began and it.ended < ended]
        assert all(it.said in REFUSED for it in within), within
        return len(within)


#: How a stream that was refused looks to a program.
REFUSED = ("ConnectionResetError", "ConnectionRefusedError", "RemoteDisconnected")
