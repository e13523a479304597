"""How these tests reach an environment: through a command that runs another one in it.

    OSB_IN_BASE='docker run --rm opensandbox/base' \\
    OSB_IN_CODE_INTERPRETER='docker run --rm opensandbox/code-interpreter' \\
    pytest tests/environments
"""

from __future__ import annotations

import os
import shlex

import pytest
from inside import Environment


def reached(variable: str) -> Environment:
    prefix = tuple(shlex.split(os.environ.get(variable, "")))
    if not prefix:
        said = f"{variable} does not say how to run a command in the environment"
        if "environments" in os.environ.get("OSB_REQUIRE", "").split(","):
            pytest.fail(said)
        pytest.skip(said)
    return Environment(prefix)


@pytest.fixture(scope="session")
def base() -> Environment:
    return reached("OSB_IN_BASE")


@pytest.fixture(scope="session")
def code_interpreter() -> Environment:
    return reached("OSB_IN_CODE_INTERPRETER")
