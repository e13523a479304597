"""The published client with a server that speaks TLS, and settings that change while it runs."""

from __future__ import annotations

import http.client
import json
import os
import pathlib
import shutil
import signal
import ssl
import subprocess
from collections.abc import Iterator
from datetime import timedelta

import httpx
import pytest
from opensandbox import SandboxSync
from opensandbox.config import ConnectionConfigSync
from opensandbox.models.execd import OutputMessage
from opensandbox.models.execd_sync import ExecutionHandlersSync
from opensandbox.models.filesystem import WriteEntry
from served import Server, osb, wait_for


def certify(place: pathlib.Path, name: str) -> pathlib.Path:
    """A certificate for this machine that vouches for itself, in the file that is returned."""
    key, certificate = place / f"{name}.key", place / f"{name}.pem"
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256"]
        + ["-nodes", "-keyout", str(key), "-out", str(certificate), "-days", "2"]
        + ["-subj", f"/CN={name}", "-addext", "subjectAltName=IP:127.0.0.1"],
        check=True,
        capture_output=True,
    )
    return certificate


class TlsServer(Server):
    """A server with a configuration file, by which it shows its first certificate."""

    def __init__(self, place: pathlib.Path) -> None:
        self.file = place / "osb.toml"
        super().__init__(place / "data", "--config", str(self.file))
        self.place = place
        self.key = "the-first-key"
        self.trusted = certify(place, "first")
        self.show("first")
        self.write()

    @property
    def api_key(self) -> str:
        return self.key

    def show(self, name: str) -> None:
        for kind in ("pem", "key"):
            shutil.copy(self.place / f"{name}.{kind}", self.place / f"shown.{kind}")

    def write(self, more: str = "") -> None:
        self.file.write_text(
            f'{more}\n[server]\napi_key = "{self.key}"\n[server.tls]\n'
            f'certificate = "{self.place}/shown.pem"\nkey = "{self.place}/shown.key"\n'
        )

    def context(self) -> ssl.SSLContext:
        return ssl.create_default_context(cafile=str(self.trusted))

    def connection(self, timeout: float) -> http.client.HTTPConnection:
        return http.client.HTTPSConnection(
            "127.0.0.1", self.port, timeout=timeout, context=self.context()
        )

    def reread(self, says: str) -> None:
        assert self.process is not None
        before = self.said(says)
        self.process.send_signal(signal.SIGHUP)
        wait_for(f"the server says {says!r}", lambda: self.said(says) > before)

    def said(self, what: str) -> int:
        lines = [json.loads(line) for line in self.log.read_text().splitlines()]
        return sum(what in line["message"] for line in lines)


@pytest.fixture
def tls(tmp_path: pathlib.Path) -> Iterator[TlsServer]:
    server = TlsServer(tmp_path)
    server.start()
    yield server
    for sandbox in server.ids():
        server.call("DELETE", f"/v1/sandboxes/{sandbox}")
    server.stop()


def connection(server: TlsServer, http2: bool) -> ConnectionConfigSync:
    return ConnectionConfigSync(
        domain=server.domain,
        api_key=server.key,
        protocol="https",
        transport=httpx.HTTPTransport(verify=server.context(), http2=http2),
    )


@pytest.mark.parametrize("http2", [False, True], ids=["http1", "http2"])
def test_commands_and_files_over_tls(tls: TlsServer, http2: bool) -> None:
    options = {"timeout": timedelta(minutes=10), "connection_config": connection(tls, http2)}
    sandbox = SandboxSync.create("host", **options)
    with sandbox:
        execution = sandbox.commands.run("for i in 1 2 3; do echo $i; sleep 0.1; done")
        assert [line.text for line in execution.logs.stdout] == ["1", "2", "3"]
        large = "x" * (3 << 20)
        sandbox.files.write_files([WriteEntry(path="/tmp/large", data=large)])
        assert sandbox.files.read_file("/tmp/large") == large
        sandbox.kill()
        assert sandbox.id not in tls.ids()


def test_certificate_and_key_change_while_a_command_runs(tls: TlsServer) -> None:
    options = {"timeout": timedelta(minutes=10), "connection_config": connection(tls, True)}
    sandbox = SandboxSync.create("host", **options)
    with sandbox:
        certify(tls.place, "second")

        seen: list[str] = []

        def change(message: OutputMessage) -> None:
            if not seen:
                tls.show("second")
                tls.key = "the-second-key"
                tls.write("[audit]\nkeep-days = 3")
                tls.reread("audit.keep-days has changed")
            seen.append(message.text)

        done = sandbox.commands.run(
            "echo on; sleep 1; echo off", handlers=ExecutionHandlersSync(on_stdout=change)
        )
        assert (seen, done.exit_code) == (["on", "off"], 0)

    with pytest.raises(ssl.SSLError):
        tls.call("GET", "/health")
    tls.trusted = tls.place / "second.pem"
    assert tls.call("GET", "/v1/sandboxes", key="the-first-key").status == 401
    assert tls.call("GET", "/v1/sandboxes").status == 200


def test_a_file_that_cannot_be_used_changes_nothing(tls: TlsServer) -> None:
    tls.key = "the-second-key"
    tls.write("[log]\nlevl = 'debug'")
    tls.reread("the settings cannot be used")
    tls.key = "the-first-key"
    assert tls.call("GET", "/v1/sandboxes").status == 200
    environment = os.environ | {"SANDBOX_CONFIG_PATH": str(tls.file)}
    command = [osb(), "server", "config", "check"]
    checked = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert checked.returncode == 2
    assert "line 2: log.levl is no setting: did you mean `level`?" in checked.stderr
