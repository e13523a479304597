"""Secrets and callers: one test per sentence of SECURITY.md, named after it."""

from __future__ import annotations

import pathlib
import socket
import stat
import threading

from attack import lines
from opensandbox.models.execd import RunCommandOpts
from served import Server, wait_for


def test_a_sandbox_does_not_see_its_own_token(sandbox, server):
    endpoint = server.call("GET", f"/v1/sandboxes/{sandbox.id}/endpoints/44772").json()
    tokens = list(endpoint["headers"].values())
    assert tokens
    seen = "\n".join(
        lines(sandbox, "env; cat /proc/[0-9]*/environ /proc/[0-9]*/cmdline | tr '\\0' '\\n'")
    )
    for token in tokens:
        assert token not in seen


def test_a_sandbox_is_opened_by_its_own_token_only(create, server):
    one, two = create(), create()
    token = server.call("GET", f"/v1/sandboxes/{two.id}/endpoints/44772").json()["headers"]
    answer = server.call("GET", f"/v1/sandboxes/{one.id}/proxy/44772/ping", key=None, headers=token)
    assert answer.status == 401, answer


def test_a_service_in_a_sandbox_does_not_see_the_callers_key(sandbox, server):
    script = (
        "import socket\n"
        "s = socket.create_server(('127.0.0.1', 7777))\n"
        "c, _ = s.accept()\n"
        "open('/tmp/request', 'wb').write(c.recv(65536))\n"
        "c.sendall(b'HTTP/1.1 200 OK\\r\\ncontent-length: 2\\r\\n\\r\\nok')\n"
    )
    sandbox.files.write_file("/tmp/service.py", script)
    sandbox.commands.run("python3 /tmp/service.py & echo")
    listening = f"grep -c ':{7777:04X} 00000000:0000 0A' /proc/net/tcp"
    wait_for("the service listens", lambda: lines(sandbox, listening) == ["1"])
    answer = server.call("GET", f"/v1/sandboxes/{sandbox.id}/proxy/7777/hello")
    assert (answer.status, answer.body) == (200, b"ok")
    request = sandbox.files.read_file("/tmp/request").lower()
    assert "get /hello" in request
    assert server.api_key.lower() not in request
    assert "api-key" not in request and "execd-access-token" not in request


def test_the_servers_key_and_state_are_readable_by_its_user_only(server: Server):
    key = server.data_dir / "api-key"
    assert stat.S_IMODE(key.stat().st_mode) == 0o600
    assert len(server.api_key) >= 32
    kept = list(server.data_dir.iterdir())
    assert server.data_dir / "native" in kept
    for path in kept:
        assert stat.S_IMODE(path.stat().st_mode) & 0o077 == 0, path


def test_no_secret_is_logged(sandbox, server: Server):
    sandbox.commands.run("true", opts=RunCommandOpts(envs={"SECRET": "hunter2hunter2"}))
    endpoint = server.call("GET", f"/v1/sandboxes/{sandbox.id}/endpoints/44772").json()
    log = server.log.read_text()
    for secret in (server.api_key, "hunter2hunter2", *endpoint["headers"].values()):
        assert secret not in log


def test_the_server_listens_on_loopback_unless_told_otherwise(server: Server):
    local = {f"0100007F:{server.port:04X}"}
    listening = set()
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        for line in pathlib.Path(table).read_text().splitlines()[1:]:
            fields = line.split()
            if fields[3] == "0A" and fields[1].endswith(f":{server.port:04X}"):
                listening.add(fields[1])
    assert listening == local


def test_a_head_without_end_is_cut_off(server: Server):
    with socket.create_connection(("127.0.0.1", server.port), timeout=20) as caller:
        try:
            caller.sendall(b"GET /health HTTP/1.1\r\nX: " + b"x" * 300_000)
            answer = caller.recv(100)
        except (BrokenPipeError, ConnectionResetError):
            answer = b""
    assert answer == b"" or b" 431 " in answer


def test_a_flood_of_requests_without_key_does_not_stop_others(sandbox, server: Server):
    refused: list[int] = []

    def flood() -> None:
        for _ in range(200):
            refused.append(server.call("GET", "/v1/sandboxes", key="wrong").status)

    threads = [threading.Thread(target=flood) for _ in range(4)]
    for thread in threads:
        thread.start()
    assert lines(sandbox, "echo served") == ["served"]
    for thread in threads:
        thread.join()
    # Here and not in the threads, where an assertion that fails is heard by nobody.
    assert refused == [401] * 800
