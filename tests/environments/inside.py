"""A place to run commands in."""

from __future__ import annotations

import subprocess
from dataclasses import dataclass


@dataclass(frozen=True)
class Environment:
    prefix: tuple[str, ...]

    def run(self, *argv: str, timeout: float = 180) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [*self.prefix, *argv], capture_output=True, text=True, timeout=timeout, check=False
        )

    def output(self, *argv: str) -> str:
        """What a command that must succeed printed on its standard output."""
        ended = self.run(*argv)
        assert ended.returncode == 0, f"{argv}: {ended.returncode}\n{ended.stdout}\n{ended.stderr}"
        return ended.stdout.strip()
