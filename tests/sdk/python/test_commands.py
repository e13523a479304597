"""Commands: what they print, how they end, where and with what they run."""

from datetime import timedelta

import pytest
from opensandbox.exceptions import SandboxApiException
from opensandbox.models.execd import RunCommandOpts


def stdout(execution):
    return [line.text for line in execution.logs.stdout]


def stderr(execution):
    return [line.text for line in execution.logs.stderr]


def test_each_line_is_one_message_and_blank_lines_are_kept(sandbox):
    execution = sandbox.commands.run(r"printf 'a\n\nb\n\n\nc\n'")
    assert stdout(execution) == ["a", "\n", "b", "\n", "\n", "c"]


def test_a_last_line_without_end_is_not_lost(sandbox):
    assert stdout(sandbox.commands.run("printf 'a\nb'")) == ["a", "b"]


def test_both_streams_are_told_apart(sandbox):
    execution = sandbox.commands.run("echo out; echo err >&2")
    assert (stdout(execution), stderr(execution)) == (["out"], ["err"])


@pytest.mark.parametrize("code", [1, 7, 255])
def test_the_exit_code_arrives(sandbox, code):
    execution = sandbox.commands.run(f"exit {code}")
    assert execution.exit_code == code
    assert execution.error.name == "CommandExecError"
    assert execution.error.value == str(code)
    assert execution.complete is None


def test_an_unknown_program_says_so(sandbox):
    execution = sandbox.commands.run("no-such-program-here")
    assert execution.exit_code == 127
    assert any("no-such-program-here" in line for line in stderr(execution))


def test_a_command_runs_where_it_was_told(sandbox):
    execution = sandbox.commands.run("pwd", opts=RunCommandOpts(working_directory="/tmp"))
    assert stdout(execution) == ["/tmp"]


def test_a_directory_that_is_not_there_is_an_error(sandbox):
    with pytest.raises(SandboxApiException) as raised:
        sandbox.commands.run("pwd", opts=RunCommandOpts(working_directory="/no/such/place"))
    assert raised.value.status_code == 400


def test_variables_hold_for_one_command(sandbox):
    execution = sandbox.commands.run(
        'echo "$GREETING"', opts=RunCommandOpts(envs={"GREETING": "a 'b' $HOME"})
    )
    assert stdout(execution) == ["a 'b' $HOME"]
    assert stdout(sandbox.commands.run('echo "[$GREETING]"')) == ["[]"]


def test_variables_of_the_sandbox_hold_for_every_command(create):
    sandbox = create(env={"PLACE": "here"})
    assert stdout(sandbox.commands.run('echo "$PLACE"')) == ["here"]


def test_an_argument_list_arrives_as_it_is(sandbox):
    execution = sandbox.commands.run(["printf", "%s|", "a b", "$HOME", ""])
    assert stdout(execution) == ["a b|$HOME||"]


def test_a_command_that_takes_too_long_is_ended(sandbox):
    opts = RunCommandOpts(timeout=timedelta(milliseconds=300))
    execution = sandbox.commands.run("sleep 30", opts=opts)
    assert execution.error is not None
    assert execution.complete is None


def test_odd_characters_do_not_break_the_stream(sandbox):
    execution = sandbox.commands.run(r"printf 'a\xe2\x80\xa8b\xc2\x85c\n\xff\n'")
    assert stdout(execution) == ["a\u2028b\u0085c", "\ufffd"]


def test_a_long_output_arrives_whole(sandbox):
    execution = sandbox.commands.run("seq 1 20000")
    assert stdout(execution) == [str(number) for number in range(1, 20001)]


def test_a_process_in_the_background_does_not_hold_the_command(sandbox):
    execution = sandbox.commands.run("sleep 60 & echo started")
    assert stdout(execution) == ["started"]
    assert execution.exit_code == 0
