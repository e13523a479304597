"""What programs find in the environment `base`."""

from __future__ import annotations

import re

import pytest
from inside import Environment
from network import authorities


@pytest.mark.parametrize(
    "program",
    ["python", "python3", "pip", "node", "npm", "npx", "git", "curl", "gcc", "g++", "make", "jq", "ssh"],
)
def test_a_login_shell_finds(base: Environment, program: str) -> None:
    assert base.output("bash", "-lc", f"command -v {program}")


def test_node_and_npm_run(base: Environment) -> None:
    assert base.output("node", "-p", "6 * 7") == "42"
    assert base.output("npx", "--version") == base.output("npm", "--version")


def test_a_program_in_c_compiles(base: Environment) -> None:
    built = "echo 'int main() { return 7; }' | gcc -x c - -o /tmp/seven; /tmp/seven; echo $?"
    assert base.output("sh", "-c", built) == "7"


def test_there_is_a_user_who_is_not_root(base: Environment) -> None:
    as_user = base.output("su", "sandbox", "-c", "id -u; touch /workspace/mine; pwd; echo $HOME")
    assert as_user.split() == ["1000", "/workspace", "/" + "home/sandbox"]


def test_pip_installs_without_a_virtual_environment(base: Environment) -> None:
    package = "mkdir /tmp/p && cd /tmp/p && echo 'from setuptools import setup; setup(name=\"own\")' > setup.py"
    install = "pip install -q --no-index --no-build-isolation --no-deps /tmp/p && pip show own"
    assert "Name: own" in base.output("bash", "-c", f"{package} && {install}")


def test_nothing_of_the_build_is_left(base: Environment) -> None:
    assert base.output("sh", "-c", "ls -A /var/lib/apt/lists /tmp; env | grep -i -E 'pip_|npm_|_ca' || true") in (
        "/tmp:\n\n/var/lib/apt/lists:",
        "/tmp:\n/var/lib/apt/lists:",
    )


def test_authorities_of_the_network_it_was_built_in_are_not_in_it(base: Environment) -> None:
    trusted = base.output("cat", "/etc/ssl/certs/ca-certificates.crt")
    assert trusted.count("BEGIN CERTIFICATE") > 50
    for certificate in re.findall(r"BEGIN CERTIFICATE-----\s+(.+?)\s+-----END", authorities(), flags=re.S):
        assert certificate not in trusted
