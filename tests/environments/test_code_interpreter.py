"""What clients of the code interpreter find in its environment."""

from __future__ import annotations

import base64
import json
import pathlib
import re

import pytest
from inside import Environment

CELLS = pathlib.Path(__file__).with_name("cells.py").read_text()
SCRIPTS = ["/opt/opensandbox/code-interpreter.sh", "/opt/code-interpreter/code-interpreter.sh"]


def cells(environment: Environment, language: str, *code: object) -> list[dict]:
    """What came of each cell, all in one kernel."""
    printed = environment.output("python3", "-c", CELLS, language, json.dumps(code))
    return json.loads(printed.splitlines()[-1])["cells"]


@pytest.mark.parametrize("language", ["python", "javascript", "typescript", "java", "go", "bash"])
def test_each_language_has_a_kernelspec_of_its_name(code_interpreter: Environment, language: str) -> None:
    listed = json.loads(code_interpreter.output("jupyter", "kernelspec", "list", "--json"))
    assert listed["kernelspecs"][language]["spec"]["language"] == language


def test_python_keeps_state_shows_results_and_draws(code_interpreter: Environment) -> None:
    plot = "import matplotlib.pyplot as plt\nplt.plot([x, 2])\nplt.title('中文 日本語 한국어')\nplt.show()"
    first, printed, drawn, frame, failed = cells(
        code_interpreter,
        "python",
        "x = 41\n1 + 1",
        "print('hi', x + 1)",
        plot,
        "import pandas as pd, numpy as np\npd.DataFrame({'a': np.arange(2)})",
        "1 / 0",
    )
    assert first["results"] == [{"text/plain": "2"}]
    assert printed["stdout"] == "hi 42\n"
    assert base64.b64decode(drawn["results"][0]["image/png"]).startswith(b"\x89PNG")
    assert drawn["stderr"] == "", "every glyph is in a font, and matplotlib has nothing to say"
    assert "<table" in frame["results"][0]["text/html"]
    assert failed["error"] == ["ZeroDivisionError", "division by zero"]


def test_an_interrupted_cell_of_python_leaves_its_state(code_interpreter: Environment) -> None:
    wait = "x = 5\nimport time\nprint('waits', flush=True)\ntime.sleep(1000)"
    interrupted, after = cells(code_interpreter, "python", [wait, "waits"], "x")
    assert interrupted["error"][0] == "KeyboardInterrupt"
    assert after["results"] == [{"text/plain": "5"}]


@pytest.mark.parametrize("language", ["javascript", "typescript"])
def test_node_keeps_state_and_prints_results(code_interpreter: Environment, language: str) -> None:
    one, printed, failed, after = cells(
        code_interpreter,
        language,
        "let x = 41; 1 + 1",
        "console.log('hi', x + 1)",
        "throw new Error('refused')",
        "await Promise.resolve(x)",
    )
    assert (one["stdout"], printed["stdout"], after["stdout"]) == ("2\n", "hi 42\n", "41\n")
    assert failed["status"] == "error" and "Error: refused" in failed["stderr"]


def test_typescript_checks_types(code_interpreter: Environment) -> None:
    (wrong,) = cells(code_interpreter, "typescript", "let text: string = 5")
    assert wrong["status"] == "error" and "not assignable" in wrong["stderr"]


def test_an_interrupted_cell_of_javascript_leaves_its_state(code_interpreter: Environment) -> None:
    wait = "console.log('waits'); await new Promise(r => setTimeout(r, 1000000))"
    for left in reversed(range(3)):
        try:
            interrupted, after = cells(code_interpreter, "javascript", "let x = 5", [wait, "waits"], "x")[1:]
            break
        except AssertionError as error:
            # By itself, without execd, this kernel answers nothing after an interrupt now and then.
            if left == 0 or "nothing came of 'x'" not in str(error):
                raise
    assert interrupted["status"] == "error"
    assert after["stdout"] == "5\n"


def test_java_keeps_state_and_shows_results_as_text(code_interpreter: Environment) -> None:
    one, printed, value, failed = cells(
        code_interpreter,
        "java",
        "1 + 1",
        'int x = 41; System.out.println("hi");',
        "x + 1",
        'throw new RuntimeException("refused");',
    )
    assert one["results"] == [{"text/plain": "2"}]
    assert printed["stdout"] == "hi\n"
    assert value["results"] == [{"text/plain": "42"}]
    assert failed["error"] == ["EvalException", "refused"]


def test_go_keeps_what_is_declared_and_runs_main(code_interpreter: Environment) -> None:
    one, declared, used, whole, failed = cells(
        code_interpreter,
        "go",
        "%%\nfmt.Println(1 + 1)",
        "func double(x int) int { return 2 * x }",
        "%%\nfmt.Println(double(21))",
        'package main\n\nimport "fmt"\n\nfunc main() { fmt.Print("whole") }',
        "%%\nmissing()",
    )
    assert (one["stdout"], used["stdout"], whole["stdout"]) == ("2\n", "42\n", "whole")
    assert declared["status"] == "ok"
    assert failed["status"] == "error"


def test_an_interrupted_cell_of_go_ends(code_interpreter: Environment) -> None:
    wait = 'import ("fmt"; "time")\nfunc main() { fmt.Println("waits"); time.Sleep(time.Hour) }'
    interrupted, after = cells(code_interpreter, "go", [wait, "waits"], "%%\nfmt.Println(5)")
    assert interrupted["stdout"].startswith("waits\n")
    assert after["stdout"] == "5\n"


def test_bash_keeps_state(code_interpreter: Environment) -> None:
    one, printed, failed = cells(code_interpreter, "bash", "x=41; echo $((1 + 1))", "echo hi $((x + 1))", "false")
    assert (one["stdout"], printed["stdout"]) == ("2\n", "hi 42\n")
    assert failed["error"] == ["", "1"]


def test_an_interrupted_cell_of_bash_leaves_its_state(code_interpreter: Environment) -> None:
    _, interrupted, after = cells(code_interpreter, "bash", "x=5", ["echo waits; sleep 1000", "waits"], "echo $x")
    assert interrupted["stdout"].startswith("waits\n")
    assert after["stdout"] == "5\n"


@pytest.mark.parametrize("script", SCRIPTS)
@pytest.mark.parametrize(
    ("variable", "asked", "argv", "answered"),
    [
        ("PYTHON_VERSION", "3.11", ["python3", "--version"], r"Python 3\.11\."),
        ("NODE_VERSION", "24", ["node", "--version"], r"v24\."),
        ("NODE_VERSION", "22", ["node", "--version"], r"v22\."),
        ("NODE_VERSION", "v22.x", ["node", "--version"], r"v22\."),
        ("JAVA_VERSION", "17", ["java", "--version"], r"openjdk 17\."),
        ("GO_VERSION", "1.27", ["go", "version"], r"go version go1\.27\."),
    ],
)
def test_an_installed_version_is_used(
    code_interpreter: Environment, script: str, variable: str, asked: str, argv: list[str], answered: str
) -> None:
    ended = code_interpreter.run("env", f"{variable}={asked}", script, *argv)
    assert ended.returncode == 0, ended.stderr
    assert re.match(answered, ended.stdout), ended.stdout
    assert "not installed" not in ended.stderr


@pytest.mark.parametrize("script", SCRIPTS)
@pytest.mark.parametrize(
    ("variable", "asked", "argv", "answered"),
    [
        ("PYTHON_VERSION", "3.13", ["python3", "--version"], r"Python 3\.11\."),
        ("NODE_VERSION", "18", ["node", "--version"], r"v22\."),
        ("NODE_VERSION", "23", ["node", "--version"], r"v24\."),
        ("NODE_VERSION", "99", ["node", "--version"], r"v24\."),
        ("NODE_VERSION", "$(touch /tmp/ran)", ["node", "--version"], r"v24\."),
        ("JAVA_VERSION", "21", ["java", "--version"], r"openjdk 17\."),
        ("GO_VERSION", "1.25", ["go", "version"], r"go version go1\.27\."),
    ],
)
def test_a_version_that_is_missing_is_said_and_another_used(
    code_interpreter: Environment, script: str, variable: str, asked: str, argv: list[str], answered: str
) -> None:
    ended = code_interpreter.run("env", f"{variable}={asked}", script, *argv)
    assert ended.returncode == 0, ended.stderr
    assert re.match(answered, ended.stdout), ended.stdout
    language = variable.removesuffix("_VERSION").lower()
    assert f"{language} {asked} is not installed, using " in ended.stderr


def test_kernels_use_the_version_that_was_asked_for(code_interpreter: Environment) -> None:
    run = code_interpreter.output(
        "env", "NODE_VERSION=22", "python3", "-c", CELLS, "javascript", '["process.version"]'
    )
    assert json.loads(run.splitlines()[-1])["cells"][0]["stdout"].startswith("v22.")


@pytest.mark.parametrize("script", SCRIPTS)
def test_the_entry_point_stays_tells_execd_and_ends_when_told(code_interpreter: Environment, script: str) -> None:
    # Its child is there once it has done all the rest.
    watch = f"""
    export EXECD_ENVS=/tmp/envs NODE_VERSION=22
    for time in first second; do
      {script} & entry=$!
      until child=$(pgrep -P $entry -x sleep); do kill -0 $entry || exit 1; done
      kill -TERM $entry; wait $entry && echo ended with 0
      kill -0 $child 2>/dev/null && echo left $child behind
    done
    cat /tmp/envs
    """
    ended, again, *told = code_interpreter.output("bash", "-c", watch).splitlines()
    assert ended == again == "ended with 0"
    assert [line.split("=")[0] for line in told] == ["PATH", "JAVA_HOME"], "the second start adds nothing"
    assert re.match(r"PATH=/opt/node/22\.[0-9.]+/bin:/usr/local/", told[0])


def test_a_shell_switches_back_and_forth(code_interpreter: Environment) -> None:
    switch = """
    export EXECD_ENVS=/tmp/envs
    for wanted in 22 24 22; do
      source /opt/code-interpreter/code-interpreter-env.sh node $wanted
      node --version
    done
    source /tmp/envs; node --version
    source /opt/code-interpreter/code-interpreter-env.sh ruby 3 || echo refused
    """
    versions = code_interpreter.output("bash", "-c", switch).splitlines()
    assert [version.split(".")[0] for version in versions] == ["v22", "v24", "v22", "v22", "refused"]


def test_kernels_run_as_a_user_who_is_not_root(code_interpreter: Environment) -> None:
    go = json.dumps(["%%\nfmt.Println(os.Getuid())"])
    printed = code_interpreter.output(
        "setpriv", "--reuid=1000", "--regid=1000", "--clear-groups", "env", "HOME=/" + "home/sandbox",
        "python3", "-c", CELLS, "go", go,
    )  # fmt: skip
    assert json.loads(printed.splitlines()[-1])["cells"][0]["stdout"] == "1000\n"
