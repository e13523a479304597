"""The code interpreter as the published clients ask for it: by the name and the entry point that they know."""

from __future__ import annotations

import pytest
from inside import Environment
from served import wait_for

#: Clients of today and from before ask for one of these.
ENTRY_POINTS = ["/opt/opensandbox/code-interpreter.sh", "/opt/code-interpreter/code-interpreter.sh"]


@pytest.mark.parametrize("entrypoint", ENTRY_POINTS)
def test_variables_of_the_sandbox_choose_the_versions_of_its_commands(
    code_interpreter: Environment, entrypoint: str
) -> None:
    env = {"NODE_VERSION": "22", "PYTHON_VERSION": "3.11", "JAVA_VERSION": "17", "GO_VERSION": "1.27"}
    with code_interpreter.sandbox(entrypoint=[entrypoint], env=env) as sandbox:

        def said(command: str) -> str:
            return sandbox.commands.run(command).text

        # The entry point runs beside the first commands.
        wait_for("the entry point has chosen", lambda: said("node --version").startswith("v22."))
        assert said("python3 --version").startswith("Python 3.11.")
        assert said("java --version").startswith("openjdk 17.")
        assert said("go version").startswith("go version go1.27.")
        running = said("ps -e -o args")
        assert entrypoint in running, running


def test_the_alias_is_the_image_that_was_built(code_interpreter: Environment) -> None:
    server = code_interpreter.server
    built = server.call("GET", "/v1/images/inspect?name=opensandbox/code-interpreter")
    assert built.status == 200, built
    with code_interpreter.sandbox() as sandbox:
        kernels = set(sandbox.commands.run("ls /usr/local/share/jupyter/kernels").text.split())
        assert kernels >= {"bash", "go", "java", "javascript", "python", "typescript"}
        assert sandbox.get_info().image.image == code_interpreter.image
