"""Commands: what they print, how they end, where and with what they run."""

import json
from datetime import timedelta

import pytest
from clients import Box
from opensandbox.exceptions import SandboxApiException
from opensandbox.models.execd import RunCommandOpts
from served import wait_for


def stdout(execution):
    return [line.text for line in execution.logs.stdout]


def stderr(execution):
    return [line.text for line in execution.logs.stderr]


def test_the_events_of_a_command_are_those_that_the_clients_expect(box: Box):
    seen: list[tuple[str, object]] = []

    def note(name: str):
        return lambda event: seen.append((name, event))

    names = ["on_init", "on_stdout", "on_stderr", "on_result", "on_error", "on_execution_complete"]
    handlers = box.handlers(**{name: note(name) for name in names})
    execution = box.commands.run("echo Hello", handlers=handlers)
    assert [name for name, _ in seen] == ["on_init", "on_stdout", "on_execution_complete"]
    assert seen[0][1].id == execution.id
    assert execution.id.strip()
    assert execution.complete.execution_time_in_millis >= 0
    assert box.commands.get_command_status(execution.id).id == execution.id

    seen.clear()
    execution = box.commands.run("echo no >&2; exit 3", handlers=handlers)
    assert [name for name, _ in seen] == ["on_init", "on_stderr", "on_error"]
    assert execution.error.traceback == ["exit status 3"]


def test_each_line_is_one_message_and_blank_lines_are_kept(box):
    execution = box.commands.run(r"printf 'a\n\nb\n\n\nc\n'")
    assert stdout(execution) == ["a", "\n", "b", "\n", "\n", "c"]


def test_a_last_line_without_end_is_not_lost(box):
    assert stdout(box.commands.run("printf 'a\nb'")) == ["a", "b"]


def test_both_streams_are_told_apart(box):
    execution = box.commands.run("echo out; echo err >&2")
    assert (stdout(execution), stderr(execution)) == (["out"], ["err"])


@pytest.mark.parametrize("code", [1, 7, 255])
def test_the_exit_code_arrives(box, code):
    execution = box.commands.run(f"exit {code}")
    assert execution.exit_code == code
    assert execution.error.name == "CommandExecError"
    assert execution.error.value == str(code)
    assert execution.complete is None


def test_an_unknown_program_says_so(box):
    execution = box.commands.run("no-such-program-here")
    assert execution.exit_code == 127
    assert any("no-such-program-here" in line for line in stderr(execution))


def test_a_command_runs_where_it_was_told(box):
    execution = box.commands.run("pwd", opts=RunCommandOpts(working_directory="/tmp"))
    assert stdout(execution) == ["/tmp"]


def test_a_directory_that_is_not_there_is_an_error(box):
    with pytest.raises(SandboxApiException) as raised:
        box.commands.run("pwd", opts=RunCommandOpts(working_directory="/no/such/place"))
    assert raised.value.status_code == 400


def test_variables_hold_for_one_command(box):
    execution = box.commands.run(
        'echo "$GREETING"', opts=RunCommandOpts(envs={"GREETING": "a 'b' $HOME"})
    )
    assert stdout(execution) == ["a 'b' $HOME"]
    assert stdout(box.commands.run('echo "[$GREETING]"')) == ["[]"]


def test_variables_of_the_sandbox_hold_for_every_command(make_box):
    box = make_box(env={"PLACE": "here"})
    assert stdout(box.commands.run('echo "$PLACE"')) == ["here"]


def test_an_argument_list_arrives_as_it_is(box):
    execution = box.commands.run(["printf", "%s|", "a b", "$HOME", ""])
    assert stdout(execution) == ["a b|$HOME||"]


def test_a_command_that_takes_too_long_is_ended(box):
    opts = RunCommandOpts(timeout=timedelta(milliseconds=300))
    execution = box.commands.run("sleep 30", opts=opts)
    assert execution.error is not None
    assert execution.complete is None


def test_odd_characters_do_not_break_the_stream(box):
    execution = box.commands.run(r"printf 'a\xe2\x80\xa8b\xc2\x85c\n\xff\n'")
    assert stdout(execution) == ["a\u2028b\u0085c", "\ufffd"]


def test_a_long_output_arrives_whole(box):
    execution = box.commands.run("seq 1 20000")
    assert stdout(execution) == [str(number) for number in range(1, 20001)]


def test_a_process_in_the_background_does_not_hold_the_command(box):
    execution = box.commands.run("sleep 60 & echo started")
    assert stdout(execution) == ["started"]
    assert execution.exit_code == 0


@pytest.mark.parametrize("option", [{"uid": 65534}, {"uid": 65534, "gid": 65534}])
def test_a_command_runs_as_the_user_it_was_told(box: Box, option: dict[str, int]):
    execution = box.commands.run("id -u; id -g", opts=RunCommandOpts(**option))
    assert stdout(execution) == ["65534", "65534"]


def test_an_argument_list_without_a_shell_and_with_every_option(box: Box):
    opts = RunCommandOpts(working_directory="/tmp", envs={"A": "1 2"}, uid=0, gid=7)
    execution = box.commands.run(["sh", "-c", "pwd; echo $A; id -g"], opts=opts)
    assert stdout(execution) == ["/tmp", "1 2", "7"]


def test_a_program_that_is_not_there_is_told_by_the_stream(box: Box):
    execution = box.commands.run(["no-such-program-here"])
    assert execution.error.name == "CommandExecError"
    assert "no-such-program-here" in execution.error.value
    assert execution.exit_code is None


VALUES = {
    "plain": "a value",
    "empty": "",
    "quotes": """both ' and ".""",
    "dollar": "$HOME ${PATH} `id`",
    "lines": "one\ntwo\n\tthree\\n",
    "letters": "grüße ☃ 日本",
}


@pytest.mark.parametrize("value", VALUES.values(), ids=VALUES.keys())
def test_a_variable_that_was_set_holds_for_commands_and_sessions(box: Box, value: str):
    box.commands.set_env("KEPT", value)
    show = 'printf %s "$KEPT" | od -An -tx1 | tr -d " \n"'
    assert "".join(stdout(box.commands.run(show))) == value.encode().hex()
    session = box.commands.create_session()
    assert "".join(stdout(box.commands.run_in_session(session, show))) == value.encode().hex()


def test_the_last_value_of_a_variable_holds_and_the_request_beats_it(box: Box):
    box.commands.set_env("KEPT", "1")
    box.commands.set_env("KEPT", "2")
    assert stdout(box.commands.run("echo $KEPT")) == ["2"]
    opts = RunCommandOpts(envs={"KEPT": "3"})
    assert stdout(box.commands.run("echo $KEPT", opts=opts)) == ["3"]


def test_a_line_of_ten_megabytes_arrives_whole(box: Box):
    size = 10 << 20
    execution = box.commands.run(f"head -c {size} /dev/zero | tr '\\0' x; echo; echo end")
    lines = stdout(execution)
    assert lines[-1] == "end"
    assert "".join(lines[:-1]) == "x" * size
    # What one event may be for every published client.
    assert max(map(len, lines)) < 4 << 20


def test_the_daemon_survives_a_client_that_goes_away(box: Box):
    with box.http() as http:
        with http.stream("POST", "/command", json={"command": "echo $$; sleep 60"}) as answer:
            events = answer.iter_lines()
            pid = next(json.loads(line)["text"] for line in events if '"stdout"' in line)
        wait_for(
            "the command of the client that went away has ended",
            lambda: stdout(box.commands.run(f"test -e /proc/{pid} || echo gone")) == ["gone"],
        )
