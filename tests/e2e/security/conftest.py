"""The attacker: root in a sandbox like any other."""

from __future__ import annotations

import pytest
from opensandbox import SandboxSync


@pytest.fixture
def sandbox(create) -> SandboxSync:
    return create()
