"""Much of everything leaves nothing: the daemon is counted from the host before and after."""

from __future__ import annotations

import json
import socket
import struct
import threading

import pytest
from inside import MIB, Daemon, state_of, streaming
from served import wait_for

# What the allocator may keep of what was used once; a leak of one page per command is far more.
SLACK = MIB
RESOURCE = {"cpu": "2", "memory": "1Gi"}


@pytest.fixture
def daemon(create, server) -> Daemon:
    return Daemon(create(resource=RESOURCE), server)


@pytest.fixture(params=[False, True], ids=["direct", "through the gateway"])
def daemon_on_both_ways(create, server, request) -> Daemon:
    return Daemon(create(resource=RESOURCE), server, through_gateway=request.param)


def in_parallel(daemon: Daemon, count: int, job) -> None:
    """Does `job(client, number)` for each number, over two kept connections."""
    failures: list[BaseException] = []

    def work(first: int) -> None:
        try:
            with daemon.client() as client:
                for number in range(first, count, 2):
                    job(client, number)
        except BaseException as failure:
            failures.append(failure)

    threads = [threading.Thread(target=work, args=(first,)) for first in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failures:
        raise failures[0]


def one_command(client, number: int) -> None:
    """Commands of every kind and every end, in turn."""
    match number % 20:
        case 0:
            events = client.run(command="exit 3")
            assert events[-1]["error"]["evalue"] == "3"
        case 1:
            events = client.run(command="sleep 60", timeout=1)
            assert events[-1]["error"]["evalue"] == "-1"
        case 2:
            events = client.run(argv=["no-such-program"])
            assert events[-1]["type"] == "error"
        case 3:
            events = client.run(command="seq 1 100; sleep 0 & echo $EXECD_ENVS")
            assert sum(event["type"] == "stdout" for event in events) == 101
        case 4:
            events = client.run(command="echo behind; exit 1", background=True)
            assert events[-1]["type"] == "execution_complete"
        case 5:
            # A grandchild whose parent has ended is the first process's to bury.
            events = client.run(command="(sleep 0.01 &) ; true")
            assert events[-1]["type"] == "execution_complete"
        case _:
            events = client.run(argv=["true"])
            assert events[-1]["type"] == "execution_complete"


def test_ten_thousand_commands_leave_no_process_descriptor_file_or_memory(daemon: Daemon):
    in_parallel(daemon, 1000, one_command)
    wait_for("the warm-up has settled", lambda: daemon.held().zombies == 0)
    before = daemon.held()
    memory = daemon.private()
    in_parallel(daemon, 10_000, one_command)
    daemon.comes_back_to(before)
    assert daemon.private() <= memory + SLACK


def test_clients_that_are_killed_mid_stream_leave_nothing_running(daemon_on_both_ways: Daemon):
    daemon = daemon_on_both_ways
    scripts = [
        "yes",
        "echo x; sleep 60",
        "sleep 60 & sleep 60 & echo x; wait",
        "trap '' TERM INT HUP PIPE; while :; do echo x; sleep 0.01; done",
        "setsid sleep 1 & echo x; cat /dev/zero | tr '\\0' x",
    ]

    def kill(times: int) -> None:
        for number in range(times):
            with streaming(daemon, command=scripts[number % len(scripts)]) as connection:
                seen = b""
                while b'"stdout"' not in seen:
                    piece = connection.recv(65536)
                    assert piece, seen
                    seen += piece
                reset(connection)
        daemon.comes_back_to(before)

    with daemon.client() as client:
        client.run(argv=["true"])
    before = daemon.held()
    kill(100)
    memory = daemon.private()
    kill(200)
    assert daemon.private() <= memory + 2 * SLACK


def reset(connection: socket.socket) -> None:
    """Lets the end be a reset instead of a goodbye, as when the client's machine is gone."""
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))


TEN_GIGABYTES = 10_000_000_000
LINES = f"yes {'x' * 999} | head -c {TEN_GIGABYTES}"
ONE_LINE = f"{LINES} | tr -d '\\n'"


@pytest.mark.parametrize(
    ("command", "size"),
    [(LINES, TEN_GIGABYTES), (ONE_LINE, TEN_GIGABYTES // 1000 * 999)],
    ids=["in lines", "in one line"],
)
def test_ten_gigabytes_in_the_background_do_not_grow_the_daemon(
    daemon: Daemon, command: str, size: int
):
    resident = daemon.forget_peak()
    with daemon.client() as client:
        events = client.run(command=f"{command}; echo finished", background=True)
        status = f"/command/status/{events[0]['text']}"
        wait_for(
            "all of it is written",
            lambda: not json.loads(client.call("GET", status))["running"],
            120,
        )
        assert json.loads(client.call("GET", status))["exit_code"] == 0
        logs = client.call("GET", f"/command/{events[0]['text']}/logs?cursor={size}")
        assert logs == b"finished\n"
    assert daemon.peak() <= resident + 20 * MIB


@pytest.mark.parametrize("command", [LINES, ONE_LINE], ids=["in lines", "in one line"])
def test_gigabytes_in_a_stream_do_not_grow_the_daemon(daemon: Daemon, command: str):
    """A good part is read; then the reader stops, and at last is gone in the middle of the rest."""
    with daemon.client() as client:
        client.run(argv=["true"])
    before = daemon.held()
    resident = daemon.forget_peak()
    with streaming(daemon, command=command) as connection:
        buffer = memoryview(bytearray(MIB))
        came = 0
        while came < 300_000_000:
            piece = connection.recv_into(buffer)
            assert piece > 0
            came += piece
        read = daemon.peak()
        # With nobody to read, the program has to wait; nothing is piled up for the reader.
        wait_for("the program waits", lambda: all_wait(daemon))
        assert daemon.peak() <= read + MIB
    assert daemon.peak() <= resident + 8 * MIB
    daemon.comes_back_to(before)


def all_wait(daemon: Daemon) -> bool:
    return all(state_of(pid) == "S" for pid in daemon.family())


def test_a_thousand_sessions_leave_nothing(daemon: Daemon):
    def one(client, number: int) -> None:
        session = json.loads(client.call("POST", "/session", {}))["session_id"]
        if number % 4 == 0:
            run = {"command": "A=1; sleep 60 & echo $A"}
            assert b'"1"' in client.call("POST", f"/session/{session}/run", run)
        client.call("DELETE", f"/session/{session}")

    in_parallel(daemon, 100, one)
    before = daemon.held()
    memory = daemon.private()
    in_parallel(daemon, 1000, one)
    daemon.comes_back_to(before)
    assert daemon.private() <= memory + SLACK


def test_a_thousand_terminals_leave_nothing(daemon: Daemon):
    upgrade = (
        "Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n"
        "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ=="
    )

    def one(client, number: int) -> None:
        created = client.call("POST", "/pty", {"command": "echo here; sleep 60"}, (201,))
        terminal = json.loads(created)["session_id"]
        if number % 4 == 0:
            with daemon.connect() as connection:
                connection.sendall(daemon.request("GET", f"/pty/{terminal}/ws", more=upgrade))
                seen = b""
                while b"here" not in seen:
                    piece = connection.recv(4096)
                    assert piece, seen
                    seen += piece
        client.call("DELETE", f"/pty/{terminal}")

    in_parallel(daemon, 100, one)
    before = daemon.held()
    memory = daemon.private()
    in_parallel(daemon, 1000, one)
    daemon.comes_back_to(before)
    assert daemon.private() <= memory + SLACK


def test_uploads_that_break_off_leave_nothing(daemon_on_both_ways: Daemon):
    daemon = daemon_on_both_ways
    head = (
        b"--b\r\nContent-Disposition: form-data; name=\"metadata\"; filename=\"metadata\"\r\n"
        b"Content-Type: application/json\r\n\r\n{\"path\": \"/tmp/never\"}\r\n"
        b"--b\r\nContent-Disposition: form-data; name=\"file\"; filename=\"f\"\r\n\r\n"
    )
    whole = head + b"x" * MIB
    kind = "Content-Type: multipart/form-data; boundary=b\r\nContent-Length: 1000000000"

    def break_off(times: int) -> None:
        for number in range(times):
            with daemon.connect() as connection:
                # Broken off in the metadata, in the file's head, and in the file.
                part = [whole[:100], head, whole][number % 3]
                connection.sendall(daemon.request("POST", "/files/upload", part, kind))
                if number % 2:
                    reset(connection)
            if number % 6 == 5:
                # A crowd would measure how many are held at once, and not what each leaves.
                daemon.comes_back_to(before)

    with daemon.client() as client:
        client.run(argv=["true"])
    before = daemon.held()
    break_off(600)
    memory = daemon.private()
    break_off(600)
    daemon.comes_back_to(before)
    assert not (daemon.root / "tmp" / "never").exists()
    assert daemon.private() <= memory + 2 * SLACK
