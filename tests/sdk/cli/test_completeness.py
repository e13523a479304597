"""Every command of the published package that talks to a server has been called, with each of its
options.

This runs last and asks the package itself what it offers, so a command or an option that a newer one
brings fails here until it has a test. It needs the whole directory: alone it cannot succeed.
"""

from __future__ import annotations

from opensandbox_cli.main import cli
from published import CALLED, commands, options

# What only writes files for other programs, and never asks a server.
APART = "skills"


def test_no_command_is_without_a_test():
    offered = {words for words, _ in commands() if not words.startswith(APART)}
    assert len(offered) > 50
    assert offered - set(CALLED) == set()


def test_no_option_is_without_a_test():
    missing = [
        (words, sorted(names))
        for words, command in [("", cli), *commands()]
        for names in options(command)
        if not words.startswith(APART) and not names & CALLED.get(words, set())
    ]
    assert missing == []
