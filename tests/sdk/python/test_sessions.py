"""Sessions: one shell that stays, and what lasts in it."""

from __future__ import annotations

from datetime import timedelta

import pytest
from clients import Box
from opensandbox.exceptions import SandboxApiException


class Session:
    def __init__(self, box: Box, **options) -> None:
        self.box = box
        self.id = box.commands.create_session(**options)

    def run(self, command: str, **options):
        return self.box.commands.run_in_session(self.id, command, **options)

    def lines(self, command: str, **options) -> list[str]:
        return [line.text for line in self.run(command, **options).logs.stdout]


@pytest.fixture
def session(box: Box) -> Session:
    return Session(box)


def test_it_begins_where_it_was_told_and_a_run_may_go_elsewhere(box: Box):
    session = Session(box, working_directory="/tmp/new/place")
    assert session.lines("pwd") == ["/tmp/new/place"]
    assert session.lines("pwd", working_directory="/var") == ["/var"]


def test_everything_that_a_shell_keeps_is_kept(session: Session):
    session.run("cd /usr; export A=1; B='two words'; f() { echo \"f:$1\"; }; set -o noglob")
    assert session.lines("pwd; echo $A; echo $B; f x; echo *") == ["/usr", "1", "two words", "f:x", "*"]
    assert session.lines("sh -c 'echo [$A][$B]'") == ["[1][]"]


def test_a_background_job_stays(session: Session):
    execution = session.run("sleep 60 & echo $!")
    assert execution.exit_code == 0
    pid = execution.logs.stdout[0].text
    assert session.lines("jobs -p") == [pid]
    assert session.lines(f"kill {pid} && echo killed") == ["killed"]


def test_both_streams_are_told_apart_and_blank_lines_kept(session: Session):
    execution = session.run(r"printf 'a\n\nb\n'; echo err >&2")
    assert [line.text for line in execution.logs.stdout] == ["a", "\n", "b"]
    assert [line.text for line in execution.logs.stderr] == ["err"]


def test_the_exit_code_arrives_and_the_session_lives_on(session: Session):
    session.run("A=kept")
    execution = session.run("exit 7")
    assert (execution.exit_code, execution.error.value) == (7, "7")
    assert execution.error.name == "CommandExecError"
    assert execution.complete is None
    assert session.run("false").exit_code == 1
    assert session.lines("echo $A") == ["kept"]


def test_a_time_limit_ends_the_run_and_not_the_session(session: Session):
    session.run("A=kept")
    execution = session.run("sleep 60", timeout=timedelta(milliseconds=300))
    assert execution.error is not None
    assert execution.complete is None
    assert session.lines("echo $A") == ["kept"]


def test_two_sessions_know_nothing_of_each_other(box: Box):
    one, two = Session(box), Session(box)
    one.run("A=1; cd /tmp")
    two.run("A=2; cd /usr")
    assert (one.lines("echo $A; pwd"), two.lines("echo $A; pwd")) == (["1", "/tmp"], ["2", "/usr"])


def test_the_events_carry_the_name_of_the_session(box: Box):
    seen = []
    session = Session(box)
    execution = session.run("echo x", handlers=box.handlers(on_init=lambda e: seen.append(e.id)))
    assert seen == [session.id] == [execution.id]


def test_a_deleted_session_is_unknown_and_its_processes_are_gone(session: Session):
    pid = session.run("sleep 62 & echo $!").logs.stdout[0].text
    session.box.commands.delete_session(session.id)
    with pytest.raises(SandboxApiException) as raised:
        session.box.commands.delete_session(session.id)
    assert raised.value.status_code == 404
    with pytest.raises(SandboxApiException) as raised:
        session.run("true")
    assert raised.value.status_code in (404, 500)
    execution = session.box.commands.run(f"test -e /proc/{pid} || echo gone")
    assert execution.logs.stdout[0].text == "gone"


def test_a_directory_that_is_not_there_is_an_error(session: Session):
    with pytest.raises(SandboxApiException) as raised:
        session.run("pwd", working_directory="/no/such/place")
    assert raised.value.status_code == 400


def test_odd_characters_and_a_long_output_arrive_whole(session: Session):
    text = session.lines(r"printf 'a\xe2\x80\xa8b\xc2\x85c\n\xff\n'; seq 1 5000")
    assert text[:2] == ["a\u2028b\u0085c", "\ufffd"]
    assert text[2:] == [str(number) for number in range(1, 5001)]
