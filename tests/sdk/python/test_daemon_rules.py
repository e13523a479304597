"""What holds for every route of the daemon: who is let in, and what an answer looks like."""

from __future__ import annotations

import json
import re

import pytest
import yaml
from clients import Box
from served import ROOT, wait_for

SERVICE = r"""
import base64, hashlib, http.server, time
class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    def do_GET(self):
        if self.headers.get("Upgrade") == "websocket":
            key = self.headers["Sec-WebSocket-Key"] + "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
            accept = base64.b64encode(hashlib.sha1(key.encode()).digest()).decode()
            self.send_response(101)
            for name, value in [("Upgrade", "websocket"), ("Connection", "Upgrade"),
                                ("Sec-WebSocket-Accept", accept)]:
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(b"\x81\x02hi")
            self.wfile.write(b"\x81\x04" + self.rfile.read(10)[6:])
            self.close_connection = True
            return
        if self.path.startswith("/events"):
            self.send_response(200)
            self.send_header("Content-Type", "text/event-stream")
            self.send_header("Connection", "close")
            self.end_headers()
            self.wfile.write(b"data: first\n\n")
            self.wfile.flush()
            while self.path != "/events?released" and not released:
                time.sleep(0.01)
            self.wfile.write(b"data: second\n\n")
            return
        if self.path == "/release":
            released.append(True)
        body = f"{self.path}\n{self.headers}".encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
    def log_message(self, *_): pass
released = []
http.server.ThreadingHTTPServer(("127.0.0.1", 8123), Handler).serve_forever()
"""


@pytest.fixture
def kind() -> str:
    """These ask in plain HTTP, so that one client is enough to make the sandbox."""
    return "sync"


def operations() -> list[tuple[str, str]]:
    """Every route of the protocol, with something in place of its parameters."""
    document = yaml.safe_load((ROOT / "specs" / "execd.yaml").read_text())
    return [
        (method.upper(), re.sub(r"\{[^}]*\}", "1", path))
        for path, item in document["paths"].items()
        for method in item
        if method in ("get", "post", "put", "delete", "patch")
    ]


def test_nobody_enters_without_the_token(box: Box):
    asked = operations()
    assert len(asked) > 40
    with box.http() as http:
        (name,) = (name for name in http.headers if "execd-access-token" in name.lower())
        token = http.headers[name]
        # The server sends the token itself to those who have its key.
        wrong = [] if box.way == "through-the-server" else [None, "", token[:-1], token.upper() + "x"]
        for value in wrong:
            http.headers.pop(name, None)
            if value is not None:
                http.headers[name] = value
            for method, path in asked:
                answer = http.request(method, path)
                assert answer.status_code == 401, (method, path, answer)
                assert answer.json()["code"] and answer.json()["message"]


def test_an_empty_answer_says_so_and_an_error_has_a_body(box: Box):
    with box.http() as http:
        http.post("/directories", json={"/tmp/d": {"mode": 755}}).raise_for_status()
        empty = [
            http.get("/ping"),
            http.post("/directories", json={"/tmp/e": {"mode": 755}}),
            http.post("/files/mv", json=[{"src": "/tmp/e", "dest": "/tmp/f"}]),
            http.post("/files/permissions", json={"/tmp/d": {"mode": 700}}),
            http.delete("/files", params={"path": "/tmp/none"}),
            http.delete("/directories", params={"path": "/tmp/d"}),
        ]
        session = http.post("/session", headers={"Content-Type": "application/json"}).json()
        empty.append(http.delete(f"/session/{session['session_id']}"))
        for answer in empty:
            assert (answer.status_code, answer.headers["content-length"]) == (200, "0"), answer.url
        for method, path in operations():
            if path.startswith(("/ping", "/metrics", "/pty/1/ws")) or (method, path) == ("POST", "/pty"):
                continue
            body = b"no json" if method == "POST" else None
            answer = http.request(method, path, content=body)
            if answer.status_code >= 300:
                assert answer.json()["code"] and answer.json()["message"], (method, path)
            # Nobody listens on port 1, and that is not the daemon's fault.
            assert answer.status_code < 502 or path.startswith("/proxy/1"), (method, path, answer)


def test_a_million_lines_arrive_in_order(box: Box):
    with box.http() as http:
        command = {"command": "seq 1 1000000"}
        expected = 1
        with http.stream("POST", "/command", json=command, timeout=120) as answer:
            rest = b""
            for piece in answer.iter_raw():
                *frames, rest = (rest + piece).split(b"\n\n")
                for frame in frames:
                    if b'"stdout"' in frame:
                        assert json.loads(frame)["text"] == str(expected)
                        expected += 1
        assert (expected, rest) == (1_000_001, b"")


@pytest.fixture
def service(box: Box) -> Box:
    box.files.write_file("/tmp/service.py", SERVICE)
    execution = box.commands.run("python3 /tmp/service.py >/tmp/log 2>&1 & sleep 0")
    assert execution.exit_code == 0
    with box.http() as http:
        wait_for("the service answers", lambda: http.get("/proxy/8123/").status_code == 200)
    return box


def test_a_service_in_the_sandbox_is_reached_and_never_sees_the_token(service: Box):
    with service.http() as http:
        for asked, path in [("/proxy/8123", "/"), ("/proxy/8123/a/b?c=d%20e", "/a/b?c=d%20e")]:
            seen, *headers = http.get(asked).text.splitlines()
            assert seen == path
            assert not any("token" in line.lower() for line in headers), headers
        assert http.get("/proxy/8124/").status_code == 502
        assert http.get("/proxy/no-port/").status_code in (400, 404)


def test_a_stream_of_a_service_comes_as_it_is_written(service: Box):
    with service.http() as http, http.stream("GET", "/proxy/8123/events") as answer:
        pieces = answer.iter_raw()
        assert next(pieces) == b"data: first\n\n"
        with service.http() as other:
            other.get("/proxy/8123/release").raise_for_status()
        assert b"".join(pieces) == b"data: second\n\n"


def test_a_websocket_of_a_service_is_passed_through(service: Box):
    with service.http() as http:
        headers = {
            "Connection": "Upgrade",
            "Upgrade": "websocket",
            "Sec-WebSocket-Version": "13",
            "Sec-WebSocket-Key": "dGhlIHNhbXBsZSBub25jZQ==",
        }
        with http.stream("GET", "/proxy/8123/ws", headers=headers) as answer:
            assert answer.status_code == 101
            assert answer.headers["sec-websocket-accept"] == "s3pPLMBiTxaQ9kYGzzhZRbK+xOo="
            stream = answer.extensions["network_stream"]
            came = b""
            while len(came) < 4:
                came += stream.read(64, timeout=20)
            assert came == b"\x81\x02hi"
            # A masked frame whose mask is zero: the text as it is.
            stream.write(b"\x81\x84\0\0\0\0echo", timeout=20)
            came = b""
            while len(came) < 6:
                came += stream.read(64, timeout=20)
            assert came == b"\x81\x04echo"
