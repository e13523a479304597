"""The published command as a process, and a record of what was called."""

from __future__ import annotations

import json
import os
import pathlib
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import click
from opensandbox_cli.main import cli
from served import Server

# It is called `osb` too; this name is never that of the program under test.
PROGRAM = pathlib.Path(sys.executable).with_name("opensandbox")

# Which options the tests of this run have given to which commands; "" is the program itself.
CALLED: dict[str, set[str]] = {}


class Published:
    """The command with a home of its own, told by its environment where the server is."""

    def __init__(self, server: Server, home: pathlib.Path) -> None:
        self.home = home
        self.environment = {
            "PATH": os.environ["PATH"],
            "HOME": str(home),
            "OPEN_SANDBOX_DOMAIN": server.domain,
            "OPEN_SANDBOX_API_KEY": server.api_key,
            # As wide as a table may become.
            "COLUMNS": "300",
        }

    def start(
        self, command: str, *arguments: str, before: tuple[str, ...] = (), **environment: str
    ) -> subprocess.Popen[str]:
        """A command such as `sandbox list`; `before` are options of the program itself."""
        CALLED.setdefault("", set()).update(before)
        given = arguments[: arguments.index("--")] if "--" in arguments else arguments
        CALLED.setdefault(command, set()).update(given)
        return subprocess.Popen(
            [str(PROGRAM), *before, *command.split(), *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=self.environment | environment,
            text=True,
        )

    def __call__(
        self,
        command: str,
        *arguments: str,
        stdin: str = "",
        status: int = 0,
        before: tuple[str, ...] = (),
        **environment: str,
    ) -> subprocess.CompletedProcess[str]:
        with self.start(command, *arguments, before=before, **environment) as process:
            out, err = process.communicate(stdin, timeout=60)
        assert process.returncode == status, (command, arguments, process.returncode, out, err)
        return subprocess.CompletedProcess(process.args, status, out, err)

    def json(self, command: str, *arguments: str, **options: Any) -> Any:
        return json.loads(self(command, "-o", "json", *arguments, **options).stdout)

    def refused(self, command: str, *arguments: str, **options: Any) -> str:
        """What it says when a server refuses."""
        ran = self(command, *arguments, status=1, **options)
        assert ran.stdout == ""
        return ran.stderr


def commands(group: click.Group = cli, words: tuple[str, ...] = ()) -> Iterator[tuple[str, Any]]:
    """Every command that the package offers, by its words."""
    for name, command in group.commands.items():
        if isinstance(command, click.Group):
            yield from commands(command, (*words, name))
        else:
            yield " ".join((*words, name)), command


def options(command: click.Command) -> list[set[str]]:
    """The options of a command, each with all of its names."""
    found = []
    for parameter in command.params:
        if isinstance(parameter, click.Option):
            found.append(set(parameter.opts))
            if parameter.secondary_opts:
                found.append(set(parameter.secondary_opts))
    return found
