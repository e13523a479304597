"""A place to run commands in: a new sandbox for each, as a client of the server gets it."""

from __future__ import annotations

import contextlib
import shlex
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from opensandbox import SandboxSync
from opensandbox.config import ConnectionConfigSync
from opensandbox.models.execd import OutputMessage, RunCommandOpts
from served import Server


def text(messages: list[OutputMessage]) -> str:
    return "".join(f"{message.text.removesuffix(chr(10))}\n" for message in messages)


@dataclass(frozen=True)
class Environment:
    server: Server
    image: str

    @contextlib.contextmanager
    def sandbox(self, **options: Any) -> Iterator[SandboxSync]:
        connection = ConnectionConfigSync(
            domain=self.server.domain,
            api_key=self.server.api_key,
            request_timeout=timedelta(minutes=5),
        )
        # The programs of an environment want more than a sandbox has if nobody asks.
        options = {"resource": {"cpu": "2", "memory": "4Gi"}} | options
        sandbox = SandboxSync.create(
            self.image,
            connection_config=connection,
            timeout=timedelta(minutes=10),
            ready_timeout=timedelta(minutes=2),
            **options,
        )
        try:
            yield sandbox
        finally:
            sandbox.kill()
            sandbox.close()

    def run(self, *argv: str, timeout: float = 180, **options: Any) -> subprocess.CompletedProcess[str]:
        with self.sandbox(**options) as sandbox:
            limit = RunCommandOpts(timeout=timedelta(seconds=timeout))
            done = sandbox.commands.run(shlex.join(argv), opts=limit)
            logs = done.logs
            return subprocess.CompletedProcess(argv, done.exit_code, text(logs.stdout), text(logs.stderr))

    def output(self, *argv: str, **options: Any) -> str:
        """What a command that must succeed printed on its standard output."""
        ended = self.run(*argv, **options)
        assert ended.returncode == 0, f"{argv}: {ended.returncode}\n{ended.stdout}\n{ended.stderr}"
        return ended.stdout.strip()
