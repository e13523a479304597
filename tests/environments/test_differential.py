"""The built-in driver of Python beside ipykernel: the same cells come to the same, but for a reviewed list."""

from __future__ import annotations

import json
import pathlib
import re
from typing import Any

import httpx
import pytest
from corpus import INTENDED, SESSIONS
from inside import Environment
from opensandbox import SandboxSync

CELLS = pathlib.Path(__file__).with_name("cells.py").read_text()


def of_kernel(environment: Environment, cells: list[str]) -> list[dict[str, Any]]:
    printed = environment.output("python3", "-c", CELLS, "python", json.dumps(cells))
    return [outcome(cell) for cell in json.loads(printed.splitlines()[-1])["cells"]]


def of_driver(environment: Environment, cells: list[str]) -> list[dict[str, Any]]:
    with environment.sandbox() as sandbox:
        with httpx.Client(**execd(sandbox), timeout=120) as client:
            asked = {"language": "python", "kind": "builtin"}
            context = client.post("/code/context", json=asked).raise_for_status().json()
            assert context["kind"] == "builtin"
            return [outcome(run(client, context["id"], cell)) for cell in cells]


def execd(sandbox: SandboxSync) -> dict[str, Any]:
    endpoint = sandbox.get_endpoint(44772)
    return {"base_url": f"http://{endpoint.endpoint}", "headers": endpoint.headers}


def run(client: httpx.Client, context: str, code: str) -> dict[str, Any]:
    answer = client.post("/code", json={"code": code, "context": {"id": context}}).raise_for_status()
    seen: dict[str, Any] = {"stdout": "", "stderr": "", "results": [], "error": None}
    for block in answer.text.split("\n\n"):
        if not block:
            continue
        event = json.loads(block)
        if event["type"] in ("stdout", "stderr"):
            seen[event["type"]] += event["text"]
        elif event["type"] == "result":
            data = dict(event["results"])
            if "text" in data:
                data["text/plain"] = data.pop("text")
            seen["results"].append(data)
        elif event["type"] == "error":
            seen["error"] = [event["error"]["ename"], event["error"]["evalue"]]
    return seen


def outcome(seen: dict[str, Any]) -> dict[str, Any]:
    """What is to be the same: without addresses, the names of cells, and the bytes of pictures."""
    results = []
    for data in seen["results"]:
        shown = {kind: same(content) for kind, content in data.items() if not kind.startswith("image/png")}
        if "image/png" in data:
            shown = {"image/png": data["image/png"][:8]}
        results.append(shown)
    error = seen["error"] and [same(text) for text in seen["error"]]
    return {"stdout": same(seen["stdout"]), "stderr": same(seen["stderr"]), "results": results, "error": error}


def same(content: Any) -> Any:
    if not isinstance(content, str):
        return content
    content = re.sub(r"0x[0-9a-f]{6,}", "0x…", content)
    content = re.sub(r"(<cell \d+>|/tmp/ipykernel_\d+/\d+\.py|<ipython-input-[^>]*>|\d+\.py)", "<cell>", content)
    return re.sub(r"\x1b\[[0-9;]*m", "", content)


@pytest.mark.parametrize("session", SESSIONS)
def test_the_driver_does_what_the_kernel_does(code_interpreter: Environment, session: str) -> None:
    cells = SESSIONS[session]
    differences = {}
    kernel, driver = of_kernel(code_interpreter, cells), of_driver(code_interpreter, cells)
    for cell, theirs, ours in zip(cells, kernel, driver, strict=True):
        differs = {part: (theirs[part], ours[part]) for part in theirs if theirs[part] != ours[part]}
        if differs and (session, cell) not in INTENDED:
            differences[cell] = differs
        elif not differs:
            assert (session, cell) not in INTENDED, f"this does not differ any more: {cell!r}"
    assert not differences, json.dumps(differences, indent=1, ensure_ascii=False)


def test_the_corpus_is_large_and_its_list_of_differences_is_of_it() -> None:
    assert sum(map(len, SESSIONS.values())) >= 150
    for (session, cell), why in INTENDED.items():
        assert cell in SESSIONS[session] and why
