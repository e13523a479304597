"""Jupyter kernels as execd runs them: every language of the environment, through the API."""

from __future__ import annotations

import base64
import json
import re
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import httpx
import pytest
from code_interpreter import CodeInterpreterSync
from inside import Environment
from opensandbox import SandboxSync
from served import wait_for

EXECD_PORT = 44772

#: Of each language: a cell that keeps something, one that prints it, what that prints, and one that fails.
LANGUAGES = {
    "python": ("x = 41", "print(x + 1)", "42\n", "1 / 0"),
    "javascript": ("let x = 41", "console.log(x + 1)", "42\n", "throw new TypeError('refused')"),
    "typescript": ("let x: number = 41", "console.log(x + 1)", "42\n", "let text: string = 5"),
    "java": ("int x = 41;", "System.out.println(x + 1);", "42\n", 'throw new RuntimeException("refused");'),
    "go": ("func x() int { return 41 }", "%%\nfmt.Println(x() + 1)", "42\n", "%%\nmissing()"),
    "bash": ("x=41", "echo $((x + 1))", "42\n", "(exit 3)"),
}

#: A cell that prints `waits` and goes on until it is interrupted.
WAITING = {
    "python": "import time\nprint('waits', flush=True)\ntime.sleep(1000)",
    "javascript": "console.log('waits'); await new Promise(r => setTimeout(r, 1000000))",
    "typescript": "console.log('waits'); await new Promise(r => setTimeout(r, 1000000))",
    "go": 'import ("fmt"; "time")\nfunc main() { fmt.Println("waits"); time.Sleep(time.Hour) }',
    "bash": "echo waits; sleep 1000",
}


class Execd:
    """The API of one sandbox's execd."""

    def __init__(self, sandbox: SandboxSync) -> None:
        endpoint = sandbox.get_endpoint(EXECD_PORT)
        headers = endpoint.build_request_headers(sandbox.connection_config)
        self.client = httpx.Client(base_url=f"http://{endpoint.endpoint}", headers=headers, timeout=120)

    def context(self, language: str, **options: Any) -> dict[str, Any]:
        answer = self.client.post("/code/context", json={"language": language, "kind": "jupyter"} | options)
        assert answer.status_code == 200, answer.text
        return answer.json()

    def run(
        self,
        context: dict[str, Any],
        code: str,
        on_event: Callable[[dict[str, Any]], None] = lambda event: None,
        **options: Any,
    ) -> Cell:
        body = {"code": code, "context": {"id": context["id"]}} | options
        events = []
        with self.client.stream("POST", "/code", json=body) as answer:
            assert answer.status_code == 200
            rest = ""
            for piece in answer.iter_text():
                *blocks, rest = (rest + piece).split("\n\n")
                for block in blocks:
                    event = json.loads(block)
                    events.append(event)
                    on_event(event)
        return Cell(events)

    def interrupt(self, context: dict[str, Any]) -> None:
        assert self.client.delete("/code", params={"id": context["id"]}).status_code == 200

    def run_and_interrupt(self, context: dict[str, Any], code: str) -> Cell:
        """Interrupts a cell once it has printed something."""
        threads: list[threading.Thread] = []

        def interrupt(event: dict[str, Any]) -> None:
            if event["type"] == "stdout" and not threads:
                threads.append(threading.Thread(target=self.interrupt, args=[context]))
                threads[0].start()

        cell = self.run(context, code, interrupt)
        for thread in threads:
            thread.join()
        return cell


class Cell:
    def __init__(self, events: list[dict[str, Any]]) -> None:
        self.events = events

    def printed(self, kind: str = "stdout") -> str:
        return "".join(event["text"] for event in self.events if event["type"] == kind)

    @property
    def results(self) -> list[dict[str, Any]]:
        return [event["results"] for event in self.events if event["type"] == "result"]

    @property
    def errors(self) -> list[dict[str, Any]]:
        return [event["error"] for event in self.events if event["type"] == "error"]


@pytest.fixture(scope="module")
def sandbox(code_interpreter: Environment) -> Iterator[SandboxSync]:
    with code_interpreter.sandbox() as sandbox:
        yield sandbox


@pytest.fixture(scope="module")
def execd(sandbox: SandboxSync) -> Execd:
    return Execd(sandbox)


@pytest.fixture(scope="module")
def python(execd: Execd) -> dict[str, Any]:
    return execd.context("python")


@pytest.mark.parametrize("language", LANGUAGES)
def test_a_kernel_keeps_state_prints_and_fails(execd: Execd, language: str) -> None:
    keeps, prints, printed, fails = LANGUAGES[language]
    context = execd.context(language)
    assert (context["kind"], context["language"]) == ("jupyter", language)
    assert execd.run(context, keeps).errors == []
    cell = execd.run(context, prints)
    assert (cell.printed(), cell.printed("stderr"), cell.errors) == (printed, "", [])
    assert cell.events[-1]["type"] == "execution_complete"
    failed = execd.run(context, fails)
    (error,) = failed.errors
    assert error["evalue"], failed.events
    assert execd.run(context, prints).printed() == printed, "the state outlives an error"
    (listed,) = [each for each in execd.client.get("/code/contexts").json() if each["id"] == context["id"]]
    assert listed["memory"] > 1 << 20
    assert execd.client.delete(f"/code/contexts/{context['id']}").status_code == 200


@pytest.mark.parametrize("language", WAITING)
def test_an_interrupt_ends_the_cell_and_keeps_the_state(execd: Execd, language: str) -> None:
    keeps, prints, printed, _ = LANGUAGES[language]
    context = execd.context(language)
    execd.run(context, keeps)
    interrupted = execd.run_and_interrupt(context, WAITING[language])
    assert interrupted.printed().startswith("waits\n")
    assert "InterpreterEnded" not in [error["ename"] for error in interrupted.errors]
    assert execd.run(context, prints).printed() == printed


def test_an_interrupted_kernel_of_java_cannot_go_on_and_says_so(execd: Execd) -> None:
    context = execd.context("java")
    execd.run(context, "int x = 41;")
    interrupted = execd.run_and_interrupt(context, 'System.out.println("waits"); Thread.sleep(1000000);')
    assert interrupted.errors[-1]["ename"] == "InterpreterEnded"
    after = execd.run(context, 'System.out.println("new");')
    assert after.printed() == "new\n"
    assert "what it knew is gone" in after.printed("stderr")


def test_java_starts_every_time_even_if_many_start_at_once(execd: Execd) -> None:
    failed: list[list[dict[str, Any]]] = []

    def start() -> None:
        context = execd.context("java")
        cell = execd.run(context, "6 * 7")
        if [result["text"] for result in cell.results] != ["42"]:
            failed.append(cell.events)
        execd.client.delete(f"/code/contexts/{context['id']}")

    threads = [threading.Thread(target=start) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failed


def test_output_comes_while_the_cell_runs(execd: Execd, python: dict[str, Any]) -> None:
    came: list[float] = []
    code = "import time\nfor i in range(3):\n    print(i, flush=True)\n    time.sleep(0.5)"
    began = time.monotonic()
    execd.run(python, code, lambda event: came.append(time.monotonic() - began) if event["type"] == "stdout" else None)
    assert len(came) == 3 and came[0] < came[1] - 0.3 < came[2] - 0.6


def test_everything_that_can_be_shown_is(execd: Execd, python: dict[str, Any]) -> None:
    shown = execd.run(
        python,
        "from IPython.display import *\n"
        "handle = display(HTML('<b>1</b>'), display_id=True)\n"
        "display(SVG('<svg xmlns=\"http://www.w3.org/2000/svg\"/>'), Latex('$x$'), Markdown('*m*'), JSON({'a': [1]}))\n"
        "display({'application/vnd.vega.v5+json': {'marks': []}}, raw=True)\n"
        "handle.update(HTML('<b>2</b>'))\n"
        "clear_output()\n"
        "'last'",
    )
    *displays, last = shown.results
    by_kind = {kind: content for each in displays for kind, content in each.items() if kind != "text"}
    assert by_kind["text/html"] == "<b>2</b>" and displays[0]["text/html"] == "<b>1</b>"
    assert by_kind["image/svg+xml"].startswith("<svg") and by_kind["text/latex"] == "$x$"
    assert by_kind["text/markdown"] == "*m*" and by_kind["application/json"] == {"a": [1]}
    assert by_kind["application/vnd.vega.v5+json"] == {"marks": []}
    assert last == {"text": "'last'"}
    assert {"type": "status", "text": "clear_output"}.items() <= shown.events[-4].items()
    assert shown.events[-3]["execution_count"] > 0


def test_a_plot_is_a_picture(execd: Execd, python: dict[str, Any]) -> None:
    drawn = execd.run(python, "import matplotlib.pyplot as plt\nplt.plot([1, 2])\nplt.show()")
    assert base64.b64decode(drawn.results[0]["image/png"]).startswith(b"\x89PNG")


def test_an_error_has_its_traceback(execd: Execd, python: dict[str, Any]) -> None:
    (error,) = execd.run(python, "def f():\n    return {}['é']\nf()").errors
    assert (error["ename"], error["evalue"]) == ("KeyError", "'é'")
    plain = re.sub(r"\x1b\[[0-9;]*m", "", "\n".join(error["traceback"]))
    assert "return {}['é']" in plain and "in f()" in plain


def test_input_is_refused(execd: Execd, python: dict[str, Any]) -> None:
    (error,) = execd.run(python, "input('name? ')").errors
    assert error["ename"] == "StdinNotImplementedError"
    assert "does not support input" in error["evalue"]


def test_what_programs_of_a_cell_print_is_output_once(execd: Execd, python: dict[str, Any]) -> None:
    cell = execd.run(python, "import os, subprocess\nsubprocess.run(['echo', 'child'])\nos.write(2, b'raw')\nNone")
    assert (cell.printed(), cell.printed("stderr")) == ("child\n", "raw")


def test_no_text_is_lost_or_changed(execd: Execd, python: dict[str, Any]) -> None:
    assert execd.run(python, "print('é😀\\u2028\\x85\\x00', end='')").printed() == "é😀\u2028\x85\x00"
    cell = execd.run(python, "for i in range(1 << 17): print('%079d' % i)")
    assert cell.printed() == "".join(f"{i:079d}\n" for i in range(1 << 17))
    whole = execd.run(python, "print('é' * (5 << 20), end='')")
    assert whole.printed() == "é" * (5 << 20)


def test_what_is_too_long_is_said_to_be(execd: Execd, python: dict[str, Any]) -> None:
    cell = execd.run(python, "print('x' * (40 << 20))")
    assert "too long" in cell.printed("stderr")
    assert cell.events[-1]["type"] == "execution_complete"


def test_a_cell_ends_when_its_time_is_over_and_the_state_stays(execd: Execd, python: dict[str, Any]) -> None:
    execd.run(python, "kept = 7")
    cell = execd.run(python, "import time\ntime.sleep(1000)", timeout=300)
    assert "CellTimeout" in [error["ename"] for error in cell.errors]
    assert execd.run(python, "kept").results == [{"text": "7"}]


@pytest.mark.parametrize("death", ["exit()", "import os, signal\nos.kill(os.getpid(), signal.SIGKILL)"])
def test_a_kernel_that_ends_is_told_of_and_started_anew(execd: Execd, death: str) -> None:
    context = execd.context("python")
    execd.run(context, "x = 1")
    # What is printed is handed to a thread, which a kill would not let finish.
    died = execd.run(context, f"import time\nprint('last words', flush=True)\ntime.sleep(0.5)\n{death}")
    assert died.printed() == "last words\n"
    assert died.errors[-1]["ename"] == "InterpreterEnded" and died.events[-1]["type"] == "error"
    after = execd.run(context, "'x' in globals()")
    assert after.results == [{"text": "False"}]
    assert "what it knew is gone" in after.printed("stderr")


def test_cells_of_one_context_wait_and_contexts_do_not(execd: Execd) -> None:
    slow, other = execd.context("python"), execd.context("bash")
    execd.run(slow, "import time"), execd.run(other, ":")
    order: list[str] = []
    cells = [
        (slow, "time.sleep(1.5); print('first')"),
        (slow, "print('second')"),
        (other, "echo other"),
    ]
    threads = []
    for context, code in cells:
        thread = threading.Thread(target=lambda c=context, k=code: order.append(execd.run(c, k).printed().strip()))
        thread.start()
        threads.append(thread)
        time.sleep(0.2)
    for thread in threads:
        thread.join()
    assert order == ["other", "first", "second"]


def test_whoever_asks_for_a_kind_gets_it_or_is_told(code_interpreter: Environment) -> None:
    with code_interpreter.sandbox(env={"EXECD_CODE_KIND": "builtin"}) as sandbox:
        execd = Execd(sandbox)
        assert execd.context("python", kind=None)["kind"] == "builtin"
        assert execd.context("python", kind="jupyter")["kind"] == "jupyter"
        refused = execd.client.post("/code/context", json={"language": "java"})
        assert refused.status_code >= 400 and "java" in refused.json()["message"]
        sandbox.commands.run("rm -r /usr/local/share/jupyter/kernels/go")
        refused = execd.client.post("/code/context", json={"language": "go", "kind": "jupyter"})
        assert "no kernelspec for go" in refused.json()["message"]


def test_a_kernel_that_cannot_start_says_why(code_interpreter: Environment) -> None:
    with code_interpreter.sandbox() as sandbox:
        sandbox.commands.run(r"printf '#!/bin/sh\necho no libraries >&2; exit 7\n' > /opt/opensandbox/kernel")
        execd = Execd(sandbox)
        (error,) = execd.run(execd.context("java"), "1").errors
        assert 'the kernelspec "java"' in error["evalue"] and "code 7" in error["evalue"]
        assert error["evalue"].endswith("no libraries")


def test_nothing_is_left_of_a_context_that_is_deleted(execd: Execd, sandbox: SandboxSync) -> None:
    context = execd.context("python")
    (pid,) = execd.run(context, "import os\nos.getpid()").results[0].values()
    before = sandbox.commands.run("ls -d /tmp/kernel-*").text.split()
    assert execd.client.delete(f"/code/contexts/{context['id']}").status_code == 200
    wait_for(
        "its file is gone",
        lambda: len(sandbox.commands.run("ls -d /tmp/kernel-* || true").text.split()) == len(before) - 1,
    )
    assert sandbox.commands.run(f"test ! -e /proc/{pid}").exit_code == 0


def test_connection_files_are_for_their_user_alone(execd: Execd, sandbox: SandboxSync, python: dict[str, Any]) -> None:
    execd.run(python, "1")
    modes = sandbox.commands.run("stat -c %a /tmp/kernel-* /tmp/kernel-*/*").text.split()
    assert set(modes) == {"700", "600"}


def test_the_published_client_runs_every_language(sandbox: SandboxSync) -> None:
    with CodeInterpreterSync.create(sandbox) as interpreter:
        for language, (keeps, prints, printed, _) in LANGUAGES.items():
            context = interpreter.codes.create_context(language)
            assert interpreter.codes.run(keeps, context=context).error is None
            execution = interpreter.codes.run(prints, context=context)
            assert "".join(message.text for message in execution.logs.stdout) == printed, language
