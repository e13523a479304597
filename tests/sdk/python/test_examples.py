"""The examples do what they say, started as a newcomer starts them."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from served import Server

EXAMPLES = Path(__file__).resolve().parents[3] / "examples"
SQUARES = [str(number * number) for number in range(20)]
#: What each prints, at least at first.
PRINTED = {
    "first.py": "['hello'] exit code 3\nkept\n",
    "many.py": f"{SQUARES} ",
    "code.py": "area\n28.27\nZeroDivisionError - division by zero\nhello from bash\n",
}


def test_every_example_is_tried():
    assert {path.name for path in (EXAMPLES / "python").glob("*.py")} == set(PRINTED)
    listed = (EXAMPLES / "README.md").read_text()
    assert all(f"(python/{name})" in listed for name in PRINTED)


@pytest.mark.parametrize("name", PRINTED)
def test_an_example_prints_what_it_should(server: Server, name: str):
    env = {
        **os.environ,
        "OPEN_SANDBOX_DOMAIN": server.domain,
        "OPEN_SANDBOX_API_KEY": server.api_key,
    }
    program = [sys.executable, str(EXAMPLES / "python" / name)]
    ended = subprocess.run(program, env=env, capture_output=True, text=True, timeout=300, check=False)
    assert ended.returncode == 0, ended.stderr
    assert ended.stdout.startswith(PRINTED[name]), ended.stdout
