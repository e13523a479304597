"""A company's network: hosts at private addresses, signed by an authority that nobody else knows."""

from __future__ import annotations

import pathlib
import subprocess
from collections.abc import Iterator
from typing import Any

import pytest
from company import Authority, connection, echoing, header, made, run, uses
from internet import PRIVATE, Internet, inside
from opensandbox import SandboxSync
from served import Server, osb, serving

HOST = "registry.corp.example"
BUNDLE = "/etc/ssl/certs/ca-certificates.crt"


@pytest.fixture(scope="module")
def registry(world: Internet, authority: Authority) -> Iterator[Any]:
    with echoing(world, PRIVATE, 443, authority.vouch(HOST)) as host:
        yield host


@pytest.fixture(scope="module")
def config(world: Internet, authority: Authority) -> pathlib.Path:
    path = authority.place / "server.toml"
    path.write_text(world.config.read_text() + f'extra-ca = "{authority.certificate}"\n')
    return path


@pytest.fixture(scope="module")
def server(world: Internet, config: pathlib.Path, registry: Any) -> Iterator[Server]:
    with inside(world.home), serving("--config", str(config)) as server:
        yield server


def test_programs_of_every_kind_trust_the_company_without_settings(
    server: Server, registry: Any
) -> None:
    url = f"https://{HOST}"
    with SandboxSync.create("host", connection_config=connection(server)) as sandbox:
        run(sandbox, f"curl -sS {url}/curl")
        # Those who look at no variable find it in the file that their distribution has.
        run(sandbox, f"env -i curl -sS {url}/bare")
        program = f"import urllib.request as u; u.urlopen('{url}/python')"
        run(sandbox, f'python3 -c "{program}"')
        pip = f"python3 -m pip download --no-deps --index-url {url}/simple x"
        run(sandbox, f"! python3 -m pip --version || {pip} 2>&1 | grep -q 'No matching'")
        program = f"fetch('{url}/node').then((answer) => answer.text())"
        run(sandbox, f'! command -v node || node -e "{program}"')
        sandbox.kill()
    paths = [seen["path"] for seen in registry.seen]
    assert {"/curl", "/bare", "/python"} <= set(paths)


def test_credentials_are_released_to_a_host_that_the_company_vouches_for(
    server: Server, registry: Any
) -> None:
    with made(server, HOST) as sandbox:
        sandbox.credential_vault.create(
            credentials=[{"name": "t", "source": {"value": "hunter2-corp"}}],
            bindings=[
                {
                    "name": "b",
                    "match": {"hosts": [HOST]},
                    "auth": {"type": "bearer", "credential": "t"},
                }
            ],
        )
        assert "hunter2" not in run(sandbox, f"curl -sS https://{HOST}/credential")
        sandbox.kill()
    assert header(registry.seen[-1], "authorization") == "Bearer hunter2-corp"


def test_a_sandbox_from_a_snapshot_trusts_each_authority_once(server: Server) -> None:
    count = f"grep -c BEGIN {BUNDLE} || true"
    with SandboxSync.create("host", connection_config=connection(server)) as first:
        before = run(first, count)
        snapshot = first.create_snapshot()
        with SandboxSync.create(
            snapshot_id=snapshot.id, connection_config=connection(server)
        ) as second:
            assert run(second, count) == before
            run(second, f"curl -sS https://{HOST}/restored")
            second.kill()
        first.kill()


def test_nobody_trusts_the_company_unless_the_operator_does(world: Internet, registry: Any) -> None:
    before = len(registry.seen)
    with inside(world.home), serving("--config", str(world.config)) as server:
        with made(server, HOST) as sandbox:
            failed = run(sandbox, f"curl -sS https://{HOST}/ 2>&1 || true")
            assert "certificate" in failed.lower()
            sandbox.credential_vault.create(
                credentials=[{"name": "t", "source": {"value": "hunter2-corp"}}],
                bindings=[
                    {
                        "name": "b",
                        "match": {"hosts": [HOST]},
                        "auth": {"type": "bearer", "credential": "t"},
                    }
                ],
            )
            answer = run(sandbox, f"curl -sS -w '%{{http_code}}' https://{HOST}/")
            assert answer.endswith("502") and "no trusted connection" in answer
            (entry,) = uses(server, sandbox)
            assert entry["action"] == "deny" and "not verified" in entry["withheld"]
            sandbox.kill()
    assert len(registry.seen) == before


@pytest.mark.parametrize("content", [None, "", "no certificate at all\n"])
def test_a_file_that_is_no_authority_is_an_error_at_the_start(
    tmp_path: pathlib.Path, content: str | None
) -> None:
    file = tmp_path / "corp.pem"
    if content is not None:
        file.write_text(content)
    config = tmp_path / "server.toml"
    config.write_text(f'[egress]\nextra-ca = "{file}"\n')
    command = [osb(), "server", "--listen", "127.0.0.1:0", "--data-dir", str(tmp_path / "data")]
    done = subprocess.run(
        [*command, "--config", str(config)], capture_output=True, timeout=60, text=True
    )
    assert done.returncode != 0
    assert "egress.extra-ca" in done.stderr and "corp.pem" in done.stderr, done.stderr
