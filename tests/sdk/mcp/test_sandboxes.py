"""Sandboxes with the tools of the published MCP server."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta, timezone
from typing import Any

import pytest
from doorman import Doorman
from opensandbox import SandboxSync
from published import PLAIN, Tools, tools
from served import Server


@pytest.fixture(autouse=True)
def tidy(server: Server) -> Iterator[None]:
    """Removes the sandboxes that a test left."""
    yield
    for sandbox in server.ids():
        server.call("DELETE", f"/v1/sandboxes/{sandbox}")


def moment(text: str) -> datetime:
    return datetime.fromisoformat(text)


def test_a_sandbox_is_what_the_arguments_say(mcp: Tools, server: Server):
    steps: list[float] = []

    async def progress(done: float, total: float | None, message: str | None) -> None:
        steps.append(done)

    wanted = {
        "image": "host",
        "timeout_seconds": 1200,
        "ready_timeout_seconds": 20,
        "health_check_polling_interval_ms": 50,
        "env": {"GREETING": "hello"},
        "metadata": {"team": "red"},
        "resource": {"cpu": "1", "memory": "256Mi"},
        "network_policy": {
            "default_action": "deny",
            "egress": [{"action": "allow", "target": "a.example"}],
        },
        "extensions": {"opensandbox.extensions.note": "mine"},
        "entrypoint": ["sleep", "infinity"],
    }
    answer = mcp.ask("sandbox_create", wanted, progress)
    assert not answer.is_error, answer
    assert steps == [0.1, 0.3, 0.8, 1.0]
    told = answer.structured_content
    seen = server.call("GET", f"/v1/sandboxes/{told['sandbox_id']}").json()
    info = told["info"]
    assert info["status"]["state"] == seen["status"]["state"] == "Running"
    assert info["entrypoint"] == seen["entrypoint"] == ["sleep", "infinity"]
    assert info["metadata"] == seen["metadata"] == {"team": "red"}
    assert seen["extensions"] == {"opensandbox.extensions.note": "mine"}
    assert moment(seen["expiresAt"]) - moment(seen["createdAt"]) == timedelta(minutes=20)
    policy = server.call("GET", f"/v1/sandboxes/{told['sandbox_id']}/networkpolicy").json()
    assert [rule["target"] for rule in policy["policy"]["egress"]] == ["a.example"]
    ran = mcp("command_run", sandbox_id=told["sandbox_id"], command="echo $GREETING")
    assert [line["text"] for line in ran["logs"]["stdout"]] == ["hello"]
    metrics = mcp("sandbox_get_metrics", sandbox_id=told["sandbox_id"])
    assert (metrics["cpu_count"], metrics["memory_total_in_mib"]) == (1, 256)


def test_a_login_reaches_the_registry(plain: Tools, registry: Doorman):
    said = plain.refused(
        "sandbox_create",
        image=f"{registry.address}/tool:1",
        auth_username="me",
        auth_password="mcp secret",
    )
    assert "me:mcp secret" in registry.asked
    assert "SANDBOX::IMAGE_ACCESS_DENIED" in said


def test_a_sandbox_need_not_be_waited_for(mcp: Tools, server: Server):
    told = mcp("sandbox_create", image="host", skip_health_check=True)
    assert told["sandbox_id"] in server.ids()


def test_what_a_server_refuses_is_said_and_leaves_nothing(plain: Tools, server: Server):
    assert "timeout must be" in plain.refused("sandbox_create", image="host", timeout_seconds=1)
    assert server.ids() == []


def test_a_sandbox_of_another_is_used_once_it_is_connected(
    mcp: Tools, plain: Tools, box: SandboxSync
):
    assert "registry" in mcp.refused("sandbox_healthcheck", sandbox_id=box.id)
    told = mcp(
        "sandbox_connect",
        sandbox_id=box.id,
        connect_timeout_seconds=20,
        health_check_polling_interval_ms=50,
        skip_health_check=False,
    )
    assert told["info"]["id"] == told["sandbox_id"] == box.id
    healthy = {"sandbox_id": box.id, "healthy": True}
    assert mcp("sandbox_healthcheck", sandbox_id=box.id) == healthy
    box.pause()
    assert mcp("sandbox_healthcheck", sandbox_id=box.id)["healthy"] is False
    box.kill()
    assert "DOCKER::SANDBOX_NOT_FOUND" in plain.refused("sandbox_connect", sandbox_id=box.id)


def test_tools_connect_by_themselves_if_asked(mcp: Tools, create):
    box = create(resource={"cpu": "1", "memory": "256Mi"})
    told = mcp("sandbox_get_metrics", sandbox_id=box.id, connect_if_missing=True)
    assert told["memory_total_in_mib"] == 256
    other = create()
    told = mcp("sandbox_healthcheck", sandbox_id=other.id, connect_if_missing=True)
    assert told["healthy"] is True


@pytest.mark.parametrize("connected", [False, True])
def test_a_sandbox_is_described_renewed_and_killed(
    mcp: Tools, plain: Tools, box: SandboxSync, server: Server, connected: bool
):
    if connected:
        mcp("sandbox_connect", sandbox_id=box.id)
    told = mcp("sandbox_get_info", sandbox_id=box.id)
    seen = box.get_info()
    assert (told["id"], told["status"]["state"]) == (box.id, "Running")
    assert moment(told["created_at"]) == seen.created_at
    assert moment(told["expires_at"]) == seen.expires_at

    expires = moment(mcp("sandbox_renew", sandbox_id=box.id, timeout_seconds=7200)["expires_at"])
    assert abs(expires - datetime.now(timezone.utc) - timedelta(hours=2)) < timedelta(minutes=1)
    assert box.get_info().expires_at == expires

    assert mcp("sandbox_kill", sandbox_id=box.id) == {"status": "killed"}
    assert box.id not in server.ids()
    for tool in ("sandbox_get_info", "sandbox_kill"):
        assert "DOCKER::SANDBOX_NOT_FOUND" in plain.refused(tool, sandbox_id=box.id)


def test_lists_filter_and_come_in_pages(mcp: Tools, create):
    ids = [create(metadata={"list": "mcp", "n": str(n)}).id for n in range(3)]
    create(metadata={"list": "other"})

    def listed(**filters: Any) -> tuple[list[str], dict[str, Any]]:
        page = mcp("sandbox_list", filter={"metadata": {"list": "mcp"}, **filters})
        return [info["id"] for info in page["sandbox_infos"]], page["pagination"]

    assert len(mcp("sandbox_list")["sandbox_infos"]) == 4
    assert listed()[0] == ids[::-1]
    assert listed(states=["Paused"])[0] == []
    found, pagination = listed(page=2, page_size=2)
    assert (found, pagination["total_items"], pagination["has_next_page"]) == ([ids[0]], 3, False)


def test_an_endpoint_leads_to_the_port(mcp: Tools, box: SandboxSync, server: Server):
    told = mcp("sandbox_get_endpoint", sandbox_id=box.id, port=44772, connect_if_missing=True)
    assert told == box.get_endpoint(44772).model_dump(mode="json")
    host, _, path = told["endpoint"].partition("/")
    assert host == server.domain
    assert server.call("GET", f"/{path}/ping", key=None, headers=told["headers"]).status == 200


def test_it_is_told_by_options_too_and_goes_through_the_server(server: Server, box: SandboxSync):
    options = ("--domain", server.domain, "--protocol", "http", "--use-server-proxy")
    options += ("--request-timeout-seconds", "20", "--transport", "stdio")
    with tools(server, "--api-key", "wrong", *options, program=PLAIN) as stranger:
        assert "INVALID_API_KEY" in stranger.refused("sandbox_get_info", sandbox_id=box.id)
    with tools(server, "--api-key", server.api_key, *options) as friend:
        ran = friend("command_run", sandbox_id=box.id, command="echo hi", connect_if_missing=True)
        assert [line["text"] for line in ran["logs"]["stdout"]] == ["hi"]
