"""Code in the code interpreter, as the published quick start has it run: by kernels, and without them."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from code_interpreter import CodeInterpreterSync
from inside import Environment
from opensandbox import SandboxSync
from served import wait_for

EXECD_PORT = 44772
#: What the quick start asks for.
ENTRY_POINT = ["/opt/opensandbox/code-interpreter.sh"]
ENV = {"PYTHON_VERSION": "3.11"}


@pytest.fixture(scope="module", params=["builtin", "jupyter"])
def sandbox(code_interpreter: Environment, request: pytest.FixtureRequest) -> Iterator[SandboxSync]:
    env = ENV | {"EXECD_CODE_KIND": request.param}
    with code_interpreter.sandbox(entrypoint=ENTRY_POINT, env=env) as sandbox:
        yield sandbox


@pytest.fixture(scope="module")
def interpreter(sandbox: SandboxSync) -> Iterator[CodeInterpreterSync]:
    with CodeInterpreterSync.create(sandbox) as interpreter:
        yield interpreter


def shown(sandbox: SandboxSync, code: str) -> list[dict[str, Any]]:
    """The results of a cell with all their shapes, of which the published client keeps the text."""
    endpoint = sandbox.get_endpoint(EXECD_PORT)
    headers = endpoint.build_request_headers(sandbox.connection_config)
    body = {"code": code, "context": {"language": "python"}}
    answer = httpx.post(f"http://{endpoint.endpoint}/code", json=body, headers=headers, timeout=120)
    assert answer.status_code == 200, answer.text
    blocks = [block.removeprefix("data:") for block in answer.text.split("\n\n") if block.strip()]
    events = [json.loads(block) for block in blocks]
    assert not [event for event in events if event["type"] in ("error", "stderr")], answer.text[:2000]
    return [event["results"] for event in events if event["type"] == "result"]


def test_the_quick_start_works_as_it_is_written(interpreter: CodeInterpreterSync) -> None:
    assert interpreter.is_healthy()
    execution = interpreter.codes.run("import sys; print(sys.version)\nresult = 2 + 2\nresult")
    assert execution.error is None
    assert [result.text for result in execution.result] == ["4"]
    assert "".join(message.text for message in execution.logs.stdout).startswith("3.11.")
    context = interpreter.codes.create_context("python")
    interpreter.codes.run("users = ['Alice', 'Bob']", context=context)
    execution = interpreter.codes.run("print(f'{len(users)} users')", context=context)
    assert execution.logs.stdout[0].text == "2 users\n"


@pytest.mark.parametrize(
    ("language", "code", "printed"),
    [
        ("javascript", "const x = 41; console.log(x + 1)", "42\n"),
        ("typescript", "const x: number = 41; console.log(x + 1)", "42\n"),
        ("bash", "x=41; echo $((x + 1))", "42\n"),
    ],
)
def test_other_languages_work_as_well(
    interpreter: CodeInterpreterSync, language: str, code: str, printed: str
) -> None:
    execution = interpreter.codes.run(code, language=language)
    assert (execution.error, execution.logs.stderr) == (None, [])
    assert "".join(message.text for message in execution.logs.stdout) == printed


def test_a_plot_is_a_picture(sandbox: SandboxSync, interpreter: CodeInterpreterSync) -> None:
    plot = "import matplotlib.pyplot as plt\nplt.plot([1, 2])\nplt.title('中文 日本語 한국어')\nplt.show()"
    (drawn,) = shown(sandbox, plot)
    assert base64.b64decode(drawn["image/png"]).startswith(b"\x89PNG\r\n\x1a\n")
    assert drawn["text"].startswith("<Figure size")
    (without_show,) = [each for each in shown(sandbox, "plt.plot([2, 1]);") if "image/png" in each]
    assert base64.b64decode(without_show["image/png"]).startswith(b"\x89PNG")


def test_a_frame_is_a_table(sandbox: SandboxSync, interpreter: CodeInterpreterSync) -> None:
    (frame,) = shown(sandbox, "import pandas as pd\npd.DataFrame({'a': [1, 2], 'b': ['é', '😀']})")
    assert "<table" in frame["text/html"]
    assert "😀" in frame["text/html"] and "😀" in frame["text"]


@pytest.mark.parametrize("kind", ["builtin", "jupyter"])
def test_the_version_that_was_asked_for_runs_the_code(code_interpreter: Environment, kind: str) -> None:
    env = {"NODE_VERSION": "22", "EXECD_CODE_KIND": kind}
    with code_interpreter.sandbox(entrypoint=ENTRY_POINT, env=env) as sandbox:
        # The entry point runs beside the first commands.
        wait_for("the entry point has chosen", lambda: sandbox.commands.run("node --version").text.startswith("v22."))
        with CodeInterpreterSync.create(sandbox) as interpreter:
            execution = interpreter.codes.run("console.log(process.version)", language="javascript")
            assert execution.logs.stdout[0].text.startswith("v22.")
