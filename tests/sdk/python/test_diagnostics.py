"""Logs and events of sandboxes, with every method that both published clients have for them."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any

import pytest
from clients import CALLED, KINDS, Blocking
from opensandbox import Sandbox, SandboxManager, SandboxManagerSync, SandboxSync
from opensandbox.config import ConnectionConfig, ConnectionConfigSync
from opensandbox.exceptions import SandboxApiException
from served import Server, wait_for


class Client:
    """A manager of either kind, and the sandboxes that were made with it."""

    def __init__(self, server: Server, kind: str) -> None:
        self.server, self.kind = server, kind
        self.runner = asyncio.Runner() if kind == "async" else None
        config = ConnectionConfig if kind == "async" else ConnectionConfigSync
        self.config = config(domain=server.domain, api_key=server.api_key)
        manager_class = SandboxManager if kind == "async" else SandboxManagerSync
        manager = self.wait(manager_class.create(self.config))
        self.manager = Blocking(kind, "manager", manager, self.wait)
        self.sandboxes: list[str] = []

    def wait(self, result: Any) -> Any:
        return self.runner.run(result) if inspect.isawaitable(result) else result

    def create(self, script: str, **options: Any) -> Any:
        sandbox_class = Sandbox if self.kind == "async" else SandboxSync
        options.setdefault("timeout", timedelta(minutes=10))
        entrypoint = ["sh", "-c", script]
        made = sandbox_class.create(
            "host", connection_config=self.config, entrypoint=entrypoint, **options
        )
        sandbox = self.wait(made)
        self.sandboxes.append(sandbox.id)
        return Blocking(self.kind, "sandbox", sandbox, self.wait)

    def close(self) -> None:
        for sandbox in set(self.sandboxes) & set(self.server.ids()):
            self.server.call("DELETE", f"/v1/sandboxes/{sandbox}")
        self.wait(self.manager.service.close())
        if self.runner:
            self.runner.close()


@pytest.fixture(params=KINDS)
def client(server: Server, request: pytest.FixtureRequest) -> Iterator[Client]:
    client = Client(server, request.param)
    yield client
    client.close()


def checked(content: Any, kind: str, scope: str) -> str:
    """The text of a descriptor whose fields are right."""
    assert (content.kind, content.scope, content.delivery) == (kind, scope, "inline")
    assert content.content_type == "text/plain; charset=utf-8"
    assert content.content_length == len(content.content.encode())
    return content.content


def words(events: str) -> list[str]:
    return [line.split(" ")[2] for line in events.splitlines()]


def test_the_logs_are_what_the_entrypoint_prints(client: Client):
    sandbox = client.create("echo out; echo err >&2; exec sleep 1000")
    for scope in ("container", "all"):
        for ask in asking(client, sandbox, "logs"):
            shown = lambda ask=ask, scope=scope: set(ask(scope).content.split())  # noqa: E731
            wait_for("the output", lambda shown=shown: shown() == {"out", "err"})
            content = ask(scope)
            assert sorted(checked(content, "logs", scope).splitlines()) == ["err", "out"]
            assert content.sandbox_id == sandbox.id
            assert not content.truncated and not content.warnings
    shown = client.server.call("GET", f"/v1/sandboxes/{sandbox.id}/diagnostics/logs?since=1h")
    assert sorted(shown.body.decode().split()) == ["err", "out"]


def asking(client: Client, sandbox: Any, what: str) -> list[Callable[[str], Any]]:
    """All the ways to ask that the clients have."""
    service = Blocking(
        client.kind, "diagnostics", sandbox.service.diagnostics, sandbox.run_until_done
    )
    by_id = getattr(client.manager, f"get_diagnostic_{what}")
    ask = getattr(service, f"get_{what}")
    return [
        getattr(sandbox, f"get_diagnostic_{what}"),
        lambda scope: by_id(sandbox.id, scope),
        lambda scope: ask(sandbox.id, scope),
    ]


def test_only_the_last_lines_are_shown_and_that_is_said(client: Client):
    sandbox = client.create("seq 1 1000; exec sleep 1000")
    shown = lambda: sandbox.get_diagnostic_logs("container").content  # noqa: E731
    wait_for("the output", lambda: shown().endswith("\n1000\n"))
    content = sandbox.get_diagnostic_logs("container")
    assert content.truncated
    assert checked(content, "logs", "container").split() == [str(n) for n in range(901, 1001)]


def test_what_was_printed_is_there_when_the_sandbox_is_paused_and_when_it_is_over(client: Client):
    waiting = "while [ ! -e /tmp/go ]; do sleep 0.05; done"
    sandbox = client.create(f"echo before; {waiting}; echo after; exit 3")
    wait_for("the output", lambda: sandbox.get_diagnostic_logs("all").content == "before\n")
    sandbox.pause()
    paused = sandbox.get_diagnostic_logs("all")
    assert checked(paused, "logs", "all") == "before\n"
    assert "paused" in paused.warnings[0]
    client.manager.resume_sandbox(sandbox.id)
    client.wait(sandbox.service.commands.run("touch /tmp/go"))
    status = lambda: client.manager.get_sandbox_info(sandbox.id).status  # noqa: E731
    wait_for("the end", lambda: status().state == "Failed")
    over = client.manager.get_diagnostic_logs(sandbox.id, "container")
    assert checked(over, "logs", "container") == "before\nafter\n"
    assert "exit code 3" in over.warnings[0]
    events = client.manager.get_diagnostic_events(sandbox.id, "lifecycle").content
    assert words(events) == [
        "CONTAINER_STARTING",
        "CONTAINER_RUNNING",
        "USER_REQUEST",
        "CONTAINER_PAUSED",
        "USER_REQUEST",
        "CONTAINER_RUNNING",
        "CONTAINER_EXITED_ERROR",
    ]


def test_the_events_tell_what_happened(client: Client):
    sandbox = client.create("exec sleep 1000")
    sandbox.renew(timedelta(minutes=20))
    sandbox.patch_metadata({"team": "blue"})
    for ask in asking(client, sandbox, "events"):
        lifecycle = checked(ask("lifecycle"), "events", "lifecycle")
        assert words(lifecycle)[-2:] == ["RENEWED", "METADATA_CHANGED"]
        runtime = checked(ask("runtime"), "events", "runtime")
        assert words(runtime)[-1] == "CONTAINER_RUNNING"
        assert checked(ask("network"), "events", "network") == ""
        assert checked(ask("ALL"), "events", "all") == lifecycle


def test_the_lack_of_memory_is_an_event(client: Client):
    sandbox = client.create("exec sleep 1000", resource={"cpu": "1", "memory": "64Mi"})
    client.wait(sandbox.service.commands.run("tail /dev/zero"))
    last = lambda: words(sandbox.get_diagnostic_events("runtime").content)[-1]  # noqa: E731
    wait_for("the lack of memory", lambda: last() == "OUT_OF_MEMORY")


def test_an_unknown_scope_and_an_unknown_sandbox_are_refused(client: Client):
    sandbox = client.create("exec sleep 1000")
    all_scopes = {"logs": "container, all", "events": "runtime, lifecycle, network, all"}
    for what, scopes in all_scopes.items():
        for ask in asking(client, sandbox, what):
            with pytest.raises(SandboxApiException) as refused:
                ask("process")
            assert refused.value.status_code == 400
            assert refused.value.error.code == "DIAGNOSTICS_SCOPE_UNSUPPORTED"
            assert refused.value.error.message.endswith(scopes)
        by_id = getattr(client.manager, f"get_diagnostic_{what}")
        with pytest.raises(SandboxApiException) as refused:
            by_id("00000000-0000-4000-8000-000000000000", "all")
        assert refused.value.status_code == 404


def test_inspection_and_summary_are_text_without_secrets(client: Client):
    sandbox = client.create(
        "echo hello; exec sleep 1000", env={"API_TOKEN": "hunter2", "LANG": "C.UTF-8"}
    )
    wait_for("the output", lambda: sandbox.get_diagnostic_logs("all").content == "hello\n")
    for what in ("inspect", "summary?tail=5&event_limit=5"):
        answer = client.server.call("GET", f"/v1/sandboxes/{sandbox.id}/diagnostics/{what}")
        text = answer.body.decode()
        assert answer.status == 200 and "hunter2" not in text
        assert sandbox.id in text and "LANG=C.UTF-8" in text and "API_TOKEN=********" in text
    assert text.endswith("== Logs ==\nhello\n") and "CONTAINER_RUNNING" in text


@pytest.mark.parametrize("kind", KINDS)
def test_no_method_is_without_a_test(kind: str):
    for service in ("sandbox", "manager"):
        for method in ("get_diagnostic_logs", "get_diagnostic_events"):
            assert (kind, service, method) in CALLED
    for method in ("get_logs", "get_events"):
        assert (kind, "diagnostics", method) in CALLED
