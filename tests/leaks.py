"""Where suites look for secrets that nobody must have kept."""

from __future__ import annotations

import base64
import contextlib
import os
import pathlib
import re


def spellings(secret: str) -> re.Pattern[bytes]:
    """A secret as it is, or in base64 wherever in a text it begins."""
    found = [secret.encode()]
    for before in range(3):
        spelt = base64.b64encode(bytes(before) + secret.encode())
        # The letters that also depend on what is beside it.
        first, last = -(-before * 8 // 6), (before + len(secret)) * 8 // 6
        found.append(spelt[first:last])
    return re.compile(b"|".join(map(re.escape, found)))


def holds(place: pathlib.Path, secret: str) -> list[pathlib.Path]:
    """The files below that hold the secret."""
    looked_for = spellings(secret)
    found = []
    # What is being removed may be gone when we look, and `walk` does not mind.
    for directory, _, names in os.walk(place):
        for path in (pathlib.Path(directory, name) for name in names):
            with contextlib.suppress(FileNotFoundError):
                if path.is_file() and not path.is_symlink() and looked_for.search(path.read_bytes()):
                    found.append(path)
    return found
