"""A kernel for tests, of Python's own library alone. Cells are Python; `say` tells everybody anything,
in any form, so that they can be as wrong as they like."""

import contextlib
import hashlib
import hmac
import io
import json
import os
import signal
import socket
import sys
import threading
import traceback
import uuid

connection = json.load(open(sys.argv[1]))
KEY = connection["key"].encode()


def frame(body, flags=0):
    head = bytes([flags, len(body)]) if len(body) < 256 else bytes([flags | 2]) + len(body).to_bytes(8, "big")
    return head + body


class Peer:
    """The other side of a connection, with which everything is agreed."""

    def __init__(self, listener, name):
        self.stream, _ = listener.accept()
        self.file = self.stream.makefile("rb")
        self.stream.sendall(b"\xff" + bytes(8) + b"\x7f\x03\x00NULL" + bytes(48))
        assert self.file.read(64)[:10] == b"\xff" + bytes(8) + b"\x7f"
        while "CHATTERS" in os.environ:
            self.stream.sendall(frame(b"\x04PING", flags=4) * 10_000)
        socket_type = b"\x0bSocket-Type" + len(name).to_bytes(4, "big") + name
        self.stream.sendall(frame(b"\x05READY" + socket_type, flags=4))
        assert self.frame()[1].startswith(b"\x05READY")

    def frame(self):
        flags = self.file.read(1)
        if not flags:
            raise EOFError
        length = int.from_bytes(self.file.read(8 if flags[0] & 2 else 1), "big")
        return flags[0], self.file.read(length)

    def hear(self):
        parts, more = [], True
        while more:
            flags, part = self.frame()
            parts.append(part)
            more = flags & 1
        at = parts.index(b"<IDS|MSG>")
        assert parts[at + 1].decode() == hmac.new(KEY, b"".join(parts[at + 2 : at + 6]), hashlib.sha256).hexdigest()
        return json.loads(parts[at + 2]), json.loads(parts[at + 5])

    def say(self, kind, content, parent, key=KEY):
        header = {"msg_id": str(uuid.uuid4()), "msg_type": kind, "version": "5.3"}
        parts = [json.dumps(part).encode() for part in (header, parent, {}, content)]
        signature = hmac.new(key, b"".join(parts), hashlib.sha256).hexdigest().encode()
        parts = [b"topic", b"<IDS|MSG>", signature, *parts]
        last = len(parts) - 1
        self.stream.sendall(b"".join(frame(part, int(n < last)) for n, part in enumerate(parts)))


def listen(name):
    return socket.create_server(("127.0.0.1", connection[f"{name}_port"]))


class Printed(io.TextIOBase):
    def __init__(self, name):
        self.name_of_stream = name

    def write(self, text):
        say("stream", {"name": self.name_of_stream, "text": text})
        return len(text)


def obey(control):
    while True:
        header, _ = control.hear()
        if header["msg_type"] == "interrupt_request":
            os.kill(os.getpid(), signal.SIGINT)
            control.say("interrupt_reply", {"status": "ok"}, header)


if "FAILS" in os.environ:
    sys.exit("there is no library for this")
listeners = {name: listen(name) for name in ("iopub", "shell", "control")}
iopub = Peer(listeners["iopub"], b"PUB")
assert iopub.frame()[1] == b"\x01"
shell, control = Peer(listeners["shell"], b"ROUTER"), Peer(listeners["control"], b"ROUTER")
threading.Thread(target=obey, args=[control], daemon=True).start()
signal.signal(signal.SIGINT, signal.SIG_IGN)


def say(kind, content, parent=None, key=KEY):
    iopub.say(kind, content, header if parent is None else parent, key)


state = {"say": say, "iopub": iopub}
count = 0
while True:
    header, asked = shell.hear()
    say("status", {"execution_state": "busy"})
    reply = {"status": "ok"}
    if header["msg_type"] == "execute_request":
        count += 1
        assert asked["allow_stdin"] is False
        try:
            signal.signal(signal.SIGINT, signal.default_int_handler)
            with contextlib.redirect_stdout(Printed("stdout")), contextlib.redirect_stderr(Printed("stderr")):
                exec(asked["code"], state)
        except (Exception, KeyboardInterrupt) as error:
            failed = {"ename": type(error).__name__, "evalue": str(error), "traceback": traceback.format_exc().split("\n")}
            say("error", failed)
            reply = {"status": "error"} | failed
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        reply["execution_count"] = count
        if "value" in state:
            say("execute_result", {"execution_count": count, "data": {"text/plain": repr(state.pop("value"))}})
    shell.say(header["msg_type"].replace("request", "reply"), reply, header)
    say("status", {"execution_state": "idle"})
