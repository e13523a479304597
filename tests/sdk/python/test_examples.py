"""The examples do what they say, started as a newcomer starts them."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from served import ROOT, Server, free_port, osb

EXAMPLES = ROOT / "examples"
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


def test_the_first_sandbox_of_a_newcomer_is_shown(tmp_path: Path):
    """What `make run` does once there is a binary."""
    env = {**os.environ, "OSB_DATA_DIR": str(tmp_path)}
    program = [str(ROOT / "scripts" / "demo.sh"), osb(), f"127.0.0.1:{free_port()}"]
    log = tmp_path / "shown"
    with log.open("w") as shown:
        ended = subprocess.run(program, env=env, stdout=shown, stderr=shown, timeout=120, check=False)
    server = tmp_path / "server.pid"
    if server.exists():
        os.kill(int(server.read_text()), signal.SIGTERM)
    assert ended.returncode == 0, log.read_text()
    for said in ["hello from a sandbox", "written from outside", "refused, as it should be", "The server goes on."]:
        assert said in log.read_text()
