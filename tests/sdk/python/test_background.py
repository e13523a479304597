"""Commands in the background: their status, their logs, and their end."""

from __future__ import annotations

import threading
import time
from datetime import datetime, timedelta, timezone

import pytest
from clients import Box
from opensandbox.exceptions import SandboxApiException
from opensandbox.models.execd import RunCommandOpts
from served import wait_for

BACKGROUND = RunCommandOpts(background=True)


def ended(box: Box, command: str):
    """The status of a command once it has ended."""
    return wait_for(
        "the command ends",
        lambda: not (status := box.commands.get_command_status(command)).running and status,
    )


def test_it_returns_at_once_and_the_status_is_there(box: Box):
    began = time.monotonic()
    execution = box.commands.run("sleep 30", opts=BACKGROUND)
    status = box.commands.get_command_status(execution.id)
    assert time.monotonic() - began < 20
    assert execution.exit_code is None
    assert (status.id, status.content, status.running) == (execution.id, "sleep 30", True)
    assert (status.exit_code, status.finished_at) == (None, None)
    assert abs(status.started_at - datetime.now(timezone.utc)) < timedelta(minutes=1)
    box.commands.interrupt(execution.id)


@pytest.mark.parametrize("code", [0, 3])
def test_the_exit_code_is_kept(box: Box, code: int):
    execution = box.commands.run(f"exit {code}", opts=BACKGROUND)
    status = ended(box, execution.id)
    assert status.exit_code == code
    assert bool(status.error) == (code != 0)
    assert status.finished_at >= status.started_at


def test_the_logs_come_once_each_by_cursor(box: Box):
    script = "for n in $(seq 1 50); do echo line $n; echo err $n >&2; sleep 0.01; done"
    execution = box.commands.run(script, opts=BACKGROUND)
    text, cursor, running = "", None, True
    while running:
        running = box.commands.get_command_status(execution.id).running
        logs = box.commands.get_background_command_logs(execution.id, cursor)
        text, cursor = text + logs.content, logs.cursor
    expected = [f"{word} {n}" for n in range(1, 51) for word in ("line", "err")]
    assert sorted(text.splitlines()) == sorted(expected)
    again = box.commands.get_background_command_logs(execution.id, cursor)
    assert (again.content, again.cursor) == ("", cursor)
    assert box.commands.get_background_command_logs(execution.id).content == text


def test_a_foreground_command_has_a_status_too(box: Box):
    execution = box.commands.run("exit 4")
    status = box.commands.get_command_status(execution.id)
    assert (status.running, status.exit_code, status.content) == (False, 4, "exit 4")


def test_the_time_limit_holds_in_the_background(box: Box):
    opts = RunCommandOpts(background=True, timeout=timedelta(milliseconds=200))
    execution = box.commands.run("sleep 60", opts=opts)
    assert ended(box, execution.id).exit_code == -1


def test_an_interrupt_ends_the_whole_family(box: Box):
    script = "sleep 61 & sleep 61 & sh -c 'sleep 61; true' & echo $!; wait"
    execution = box.commands.run(script, opts=BACKGROUND)
    wait_for("it has begun", lambda: box.commands.get_background_command_logs(execution.id).content)
    box.commands.interrupt(execution.id)
    status = ended(box, execution.id)
    assert status.exit_code == -1
    left = box.commands.run("cat /proc/[0-9]*/cmdline | tr '\\0' ' ' | grep -c '[s]leep 61'")
    assert left.logs.stdout[0].text == "0"


def test_an_interrupt_ends_a_stream_with_an_error(box: Box):
    found: dict[str, str] = {}
    known = threading.Event()

    def interrupt() -> None:
        known.wait(30)
        with box.http() as http:
            found["status"] = str(http.delete("/command", params={"id": found["id"]}).status_code)

    thread = threading.Thread(target=interrupt)
    thread.start()
    handlers = box.handlers(
        on_init=lambda event: found.update(id=event.id), on_stdout=lambda _: known.set()
    )
    execution = box.commands.run("echo begun; sleep 60", handlers=handlers)
    thread.join()
    assert found["status"] == "200"
    assert execution.error.name == "CommandExecError"
    assert execution.exit_code == -1
    assert execution.complete is None


def test_nobody_knows_another_id(box: Box):
    calls = [
        (box.commands.get_command_status, {404}),
        (box.commands.get_background_command_logs, {400, 404}),
        (box.commands.interrupt, {404, 500}),
    ]
    for call, statuses in calls:
        with pytest.raises(SandboxApiException) as raised:
            call("0" * 32)
        assert raised.value.status_code in statuses
        assert raised.value.error.message
