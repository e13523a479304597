"""Commands and sessions with the published command."""

from __future__ import annotations

from datetime import datetime

from opensandbox import SandboxSync
from published import Published
from served import wait_for


def test_output_is_passed_on_and_failure_too(osb: Published, box: SandboxSync):
    ran = osb("command run", box.id, "--workdir", "/usr", "--", "sh", "-c", "pwd; echo no >&2")
    assert (ran.stdout, ran.stderr) == ("/usr\n", "no")
    # The package knows only that it failed, and says so with its own status.
    said = osb("command run", box.id, "-o", "raw", "--", "sh", "-c", "echo out; exit 7", status=1)
    assert said.stdout == "out\n"
    assert "CommandExecError: 7" in said.stderr


def test_arguments_arrive_as_they_are(osb: Published, box: SandboxSync):
    odd = ["$HOME", "a'b\"c", "", "*"]
    script = "import sys; print(sys.argv[1:])"
    for flag in ([], ["--argv"]):
        ran = osb("command run", box.id, *flag, "--", "python3", "-c", script, *odd)
        assert ran.stdout == f"{odd}\n"


def test_a_command_that_takes_too_long_is_ended(osb: Published, box: SandboxSync):
    ran = osb("command run", box.id, "--timeout", "1s", "--", "sleep", "60", status=1)
    assert "Execution Error" in ran.stderr
    assert box.commands.run("pgrep -c -x sleep").logs.stdout[0].text == "0"


def test_a_command_in_the_background_is_followed_and_interrupted(osb: Published, box: SandboxSync):
    script = "echo one; echo two >&2; exec sleep 600"
    told = osb.json("command run", box.id, "--background", "--", "sh", "-c", script)
    assert (told["sandbox_id"], told["mode"]) == (box.id, "background")
    command = told["execution_id"]
    wait_for("it has said all", lambda: "two" in logs(box, command))

    told = osb.json("command logs", box.id, command)
    assert sorted(told["content"].split()) == ["one", "two"]
    cursor = str(told["cursor"])
    assert osb.json("command logs", box.id, command, "--cursor", cursor)["content"] == ""
    assert sorted(osb("command logs", box.id, command, "-o", "raw").stdout.split()) == ["one", "two"]

    status = osb.json("command status", box.id, command)
    assert (status["id"], status["running"], status["exit_code"]) == (command, True, None)
    assert osb.json("command interrupt", box.id, command)["status"] == "ok"
    wait_for("it ends", lambda: not box.commands.get_command_status(command).running)
    status = osb.json("command status", box.id, command)
    assert (status["running"], status["exit_code"]) == (False, -1)
    assert datetime.fromisoformat(status["finished_at"]) >= datetime.fromisoformat(
        status["started_at"]
    )
    assert 'no command has the id "nobody"' in osb.refused("command status", box.id, "nobody")


def logs(box: SandboxSync, command: str) -> str:
    return box.commands.get_background_command_logs(command).content


def test_a_session_remembers(osb: Published, box: SandboxSync):
    told = osb.json("command session create", box.id, "--workdir", "/usr")
    assert told["working_directory"] == "/usr"
    session = told["session_id"]

    def run(*arguments: str, **options: int) -> str:
        return osb("command session run", box.id, session, *arguments, **options).stdout

    assert run("--", "pwd") == "/usr\n"
    run("--", "export", "WHO=me")
    # What one client leaves behind the other finds.
    assert box.commands.run_in_session(session, "echo $WHO").logs.stdout[0].text == "me"
    assert run("-w", "/etc", "-t", "20s", "-o", "raw", "--", "pwd") == "/etc\n"
    run("--", "false", status=1)
    assert osb.json("command session delete", box.id, session)["status"] == "ok"
    run("--", "true", status=1)
