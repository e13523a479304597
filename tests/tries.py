"""What suites let programs in a sandbox try in the network."""

from __future__ import annotations

import textwrap

from opensandbox import SandboxSync

#: What tests run inside. Each call prints one line: what came back, or the name of the error.
INSIDE = '''
import os, socket, ssl, struct, sys, urllib.request
socket.setdefaulttimeout(10)
def tell(work):
    try:
        print(work(), flush=True)
    except OSError as error:
        reason = getattr(error, "reason", error)
        print(type(reason if isinstance(reason, Exception) else error).__name__, flush=True)
def get(url, **headers):
    request = urllib.request.Request(url, headers=headers)
    return tell(lambda: urllib.request.urlopen(request).read().decode().strip())
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


#: How a stream that was refused looks to a program.
REFUSED = ("ConnectionResetError", "ConnectionRefusedError", "RemoteDisconnected")
