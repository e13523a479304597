"""Kernels that run before there is a sandbox to ask for: in a pool of the code interpreter."""

from __future__ import annotations

import pathlib
from collections.abc import Iterator

import pytest
from code_interpreter import CodeInterpreterSync
from inside import Environment
from opensandbox import SandboxSync
from recipes import archives, import_archive
from served import Server, serving, wait_for

NAME = "opensandbox/code-interpreter:latest"
#: What an operator keeps ready for those who follow the published quick start, without the version that it names.
POOL = f"""\
[[pool]]
image = "{NAME}"
size = 1
code = ["python", "java"]
imports = ["numpy", "pandas", "nothing_of_this_name"]
"""
ENTRY_POINT = ["/opt/opensandbox/code-interpreter.sh"]
QUICK_START = {"PYTHON_VERSION": "3.11"}
ENV = {**QUICK_START, "TOLD": "when it was claimed"}
#: The numbers of all processes that are a virtual machine of Java.
MACHINES = 'for each in /proc/[0-9]*; do [ "$(cat $each/comm 2>/dev/null)" != java ] || echo ${each#/proc/}; done'
LOADED = "import os, sys\n[name in sys.modules for name in ('numpy', 'pandas')], os.environ.get('TOLD'), 'numpy' in globals()"


def number(server: Server, name: str) -> int:
    lines = server.call("GET", "/metrics").body.decode().splitlines()
    return int(next(line for line in lines if line.startswith(f"{name}{{")).rsplit(" ", 1)[1])


@pytest.fixture(scope="module")
def pooled(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Environment]:
    built: dict[str, pathlib.Path] = archives()
    config = tmp_path_factory.mktemp("pools") / "osb.toml"
    config.write_text(POOL)
    with serving("--config", str(config)) as server:
        import_archive(server, built["code-interpreter"], NAME)
        yield Environment(server, NAME)


def is_full(environment: Environment) -> None:
    wait_for("one waits", lambda: number(environment.server, "opensandbox_pool_ready") == 1, seconds=120)


def test_a_claimed_kernel_has_imported_what_it_should_and_knows_its_sandbox(pooled: Environment) -> None:
    is_full(pooled)
    with pooled.sandbox(entrypoint=ENTRY_POINT, env=ENV) as sandbox, CodeInterpreterSync.create(sandbox) as interpreter:
        execution = interpreter.codes.run(LOADED)
        assert execution.error is None and not execution.logs.stderr, execution
        assert [result.text for result in execution.result] == ["([True, True], 'when it was claimed', False)"]
        assert execution.execution_count == 1
        # What it cannot import it says when it is asked to.
        execution = interpreter.codes.run("import nothing_of_this_name")
        assert execution.error is not None and execution.error.name == "ModuleNotFoundError"
        assert interpreter.codes.list_contexts("python")[0].language == "python"
    server = pooled.server
    counted = [number(server, f"opensandbox_pool_{name}_total") for name in ("claims", "misses", "failures")]
    assert counted == [1, 0, 0]


def machines(sandbox: SandboxSync) -> set[str]:
    done = sandbox.commands.run(MACHINES)
    assert done.exit_code == 0, done
    return {line.text.strip() for line in done.logs.stdout}


def printed_by_java(interpreter: CodeInterpreterSync, value: str) -> str:
    execution = interpreter.codes.run(f"System.out.println({value});", language="java")
    assert execution.error is None and not execution.logs.stderr, execution
    return "".join(message.text for message in execution.logs.stdout).strip()


def test_a_kernel_of_java_that_was_there_before_runs_the_first_cell(pooled: Environment) -> None:
    is_full(pooled)
    options = {"entrypoint": ENTRY_POINT, "env": QUICK_START}
    with pooled.sandbox(**options) as sandbox, CodeInterpreterSync.create(sandbox) as interpreter:
        before = machines(sandbox)
        assert printed_by_java(interpreter, "ProcessHandle.current().pid()") in before
        assert machines(sandbox) == before, "none was started for the cell"


def test_a_kernel_of_java_that_is_to_know_a_variable_is_another_one(pooled: Environment) -> None:
    is_full(pooled)
    with pooled.sandbox(entrypoint=ENTRY_POINT, env=ENV) as sandbox, CodeInterpreterSync.create(sandbox) as interpreter:
        before = machines(sandbox)
        assert printed_by_java(interpreter, 'System.getenv("TOLD")') == ENV["TOLD"]
        assert printed_by_java(interpreter, "ProcessHandle.current().pid()") not in before


def test_a_kernel_that_cannot_be_told_is_another_one(pooled: Environment) -> None:
    is_full(pooled)
    options = {"entrypoint": ENTRY_POINT, "env": {**ENV, "PYTHONPATH": "/somewhere"}}
    with pooled.sandbox(**options) as sandbox, CodeInterpreterSync.create(sandbox) as interpreter:
        execution = interpreter.codes.run("import sys\n'pandas' in sys.modules, '/somewhere' in sys.path")
        assert execution.error is None and not execution.logs.stderr, execution
        assert [result.text for result in execution.result] == ["(False, True)"]
