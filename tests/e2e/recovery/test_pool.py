"""What waits in a warm pool ends with its server, and what was claimed from it does not."""

from __future__ import annotations

import os
import pathlib
import re
from collections.abc import Iterator
from datetime import timedelta

import pytest
from opensandbox import SandboxSync
from opensandbox.config import ConnectionConfigSync
from opensandbox.models.sandboxes import PVC, Volume
from served import Server, serving, wait_for
from traces import Traces

SIZE = 3


@pytest.fixture
def server(tmp_path: pathlib.Path) -> Iterator[Server]:
    assert os.geteuid() == 0, "the native runtime needs root here"
    config = tmp_path / "osb.toml"
    config.write_text(f'[[pool]]\nimage = "host"\nsize = {SIZE}\n')
    with serving("--config", str(config)) as server:
        yield server


def number(server: Server, name: str) -> int:
    text = server.call("GET", "/metrics").body.decode()
    found = re.search(rf'^opensandbox_pool_{name}{{image="host"}} (\d+)$', text, re.MULTILINE)
    assert found, text
    return int(found[1])


def is_full(server: Server) -> bool:
    return number(server, "ready") == SIZE


def claimed(server: Server) -> SandboxSync:
    wait_for("the pool is full", lambda: is_full(server))
    before = number(server, "claims_total")
    connection = ConnectionConfigSync(domain=server.domain, api_key=server.api_key)
    sandbox = SandboxSync.create(
        "host",
        connection_config=connection,
        timeout=timedelta(minutes=10),
        env={"COLOUR": "blue"},
        resource={"cpu": "1", "memory": "256Mi"},
    )
    assert number(server, "claims_total") == before + 1
    return sandbox


def said(sandbox: SandboxSync, command: str) -> str:
    return "\n".join(line.text for line in sandbox.commands.run(command).logs.stdout)


def stage(server: Server, name: str) -> int:
    text = server.call("GET", "/metrics").body.decode()
    found = re.search(rf'^opensandbox_start_stage_seconds_count{{stage="{name}"}} (\d+)$', text, re.MULTILINE)
    assert found, text
    return int(found[1])


def test_the_stages_of_starts_and_claims_are_told(server: Server) -> None:
    with claimed(server):
        assert stage(server, "claim") == 1
        wait_for("the pool is full again", lambda: is_full(server))
        assert stage(server, "prepare") >= stage(server, "spawn") >= stage(server, "start") >= SIZE + 1


def test_a_sandbox_with_a_volume_is_no_warm_one(server: Server) -> None:
    wait_for("the pool is full", lambda: is_full(server))
    volume = Volume(name="data", pvc=PVC(claim_name="data"), mount_path="/data")
    connection = ConnectionConfigSync(domain=server.domain, api_key=server.api_key)
    with SandboxSync.create("host", connection_config=connection, volumes=[volume]) as sandbox:
        assert said(sandbox, "touch /data/x; ls /data") == "x"
        assert number(server, "claims_total") == 0
        assert (server.data_dir / "native/volumes/data/data/x").exists()
        sandbox.kill()


def test_a_claimed_sandbox_is_what_was_asked_for(server: Server) -> None:
    with claimed(server) as first, claimed(server) as second:
        for sandbox in (first, second):
            assert said(sandbox, "echo $COLOUR") == "blue"
            assert round(sandbox.get_metrics().memory_total_in_mib) == 256
            assert said(sandbox, "find /tmp /root -mindepth 1 | wc -l").strip() == "0"
            sandbox.commands.run("echo mine > /tmp/mark")
        assert first.id != second.id
        assert said(first, "cat /proc/self/uid_map") != said(second, "cat /proc/self/uid_map")
        first.kill()
        second.kill()


def test_those_that_wait_end_with_a_killed_server_and_the_claimed_one_lives(server: Server) -> None:
    traces = Traces(server)
    sandbox = claimed(server)
    sandbox.commands.run("echo kept > /tmp/kept")
    wait_for("the pool is full again", lambda: is_full(server))
    waiting = {path.name for path in (server.data_dir / "native" / "pool").iterdir()}
    assert len(waiting) == SIZE
    traces.record()

    server.kill()
    wait_for("those that waited have ended", lambda: not processes(waiting))
    server.start()

    assert server.ids() == [sandbox.id]
    assert said(sandbox, "cat /tmp/kept") == "kept"
    wait_for("the pool is full", lambda: is_full(server))
    now = {path.name for path in (server.data_dir / "native" / "pool").iterdir()}
    assert len(now) == SIZE and not now & waiting
    traces.record()
    sandbox.kill()
    server.stop()
    traces.all_gone()


def processes(names: set[str]) -> list[str]:
    """Processes in the control groups of these names."""
    found = []
    for cgroup in pathlib.Path("/proc").glob("[0-9]*/cgroup"):
        try:
            text = cgroup.read_text()
        except OSError:
            continue
        if any(name in text for name in names):
            found.append(cgroup.parent.name)
    return found
