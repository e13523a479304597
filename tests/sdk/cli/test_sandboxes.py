"""Sandboxes with the published command, from their creation to their end."""

from __future__ import annotations

import json
import pathlib
import platform
import secrets
import signal
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta, timezone
from typing import Any

import pytest
import yaml
from doorman import Doorman
from opensandbox import SandboxSync
from published import Published
from served import Server

GONE = "00000000-0000-4000-8000-000000000000"
ARCH = {"x86_64": "amd64", "aarch64": "arm64"}[platform.machine()]


@pytest.fixture
def made(osb: Published, server: Server) -> Iterator[Callable[..., dict[str, Any]]]:
    """Makes sandboxes with the command: what it says, and what the server does."""
    ids: list[str] = []

    def make(*arguments: str, **options: Any) -> dict[str, Any]:
        told = osb.json("sandbox create", *arguments, **options)
        ids.append(told["id"])
        assert told["status"] == "created"
        return told | {"seen": server.call("GET", f"/v1/sandboxes/{told['id']}").json()}

    yield make
    for sandbox in set(ids) & set(server.ids()):
        server.call("DELETE", f"/v1/sandboxes/{sandbox}")


def run(osb: Published, sandbox: str, script: str) -> str:
    return osb("command run", sandbox, "--", "sh", "-c", script).stdout.strip()


def lifetime(seen: dict[str, Any]) -> timedelta:
    return datetime.fromisoformat(seen["expiresAt"]) - datetime.fromisoformat(seen["createdAt"])


def written(tmp_path: pathlib.Path, name: str, content: Any) -> str:
    path = tmp_path / name
    path.write_text(json.dumps(content))
    return str(path)


def test_a_sandbox_is_what_the_flags_say(
    osb: Published, made: Callable[..., dict[str, Any]], tmp_path: pathlib.Path
):
    policy = {"defaultAction": "deny", "egress": [{"action": "allow", "target": "a.example"}]}
    claim = f"cli-{secrets.token_hex(4)}"
    volume = {"name": "kept", "mountPath": "/kept", "pvc": {"claimName": claim}}
    volume["pvc"]["deleteOnSandboxTermination"] = True
    told = made(
        *("--image", "host", "--timeout", "1h30m", "--ready-timeout", "20s"),
        *("--env", "GREETING=hello there", "-e", "OTHER=a=b", "--metadata", "team=red"),
        *("--extension", "opensandbox.extensions.note=mine", "--resource", "memory=256Mi"),
        *("--resource", "cpu=1", "--entrypoint", "sleep", "--entrypoint", "infinity"),
        *("--network-policy-file", written(tmp_path, "policy.json", policy)),
        *("--credential-proxy", "--volumes-file", written(tmp_path, "volumes.json", [volume])),
    )
    assert (told["timeout"], told["image"]) == ("1:30:00", "host")
    seen = told["seen"]
    assert lifetime(seen) == timedelta(minutes=90)
    assert (seen["entrypoint"], seen["metadata"]) == (["sleep", "infinity"], {"team": "red"})
    assert seen["extensions"] == {"opensandbox.extensions.note": "mine"}
    script = 'echo "$GREETING,$OTHER,"; stat -f -c %T /kept > /kept/file && echo kept'
    assert run(osb, told["id"], script) == "hello there,a=b,kept"
    assert osb.json("sandbox metrics", told["id"])["memory_total_in_mib"] == 256
    assert osb.json("egress get", told["id"])["egress"] == [
        {"action": "allow", "target": "a.example"}
    ]


def test_a_sandbox_is_what_the_file_says(
    osb: Published,
    made: Callable[..., dict[str, Any]],
    tmp_path: pathlib.Path,
    server: Server,
):
    request = {
        "image": {"uri": "host"},
        "timeout": 1200,
        "platform": {"os": "linux", "arch": ARCH},
        "resourceLimits": {"cpu": "1", "memory": "512Mi"},
        "resourceRequests": {"cpu": "500m", "memory": "256Mi"},
        "env": {"GREETING": "hello"},
        "metadata": {"team": "blue"},
        "entrypoint": ["sleep", "infinity"],
        "networkPolicy": {
            "defaultAction": "deny",
            "egress": [{"action": "allow", "target": "a.example"}],
        },
        "credentialProxy": {"enabled": True},
        "secureAccess": True,
        "volumes": [],
        "extensions": {"opensandbox.extensions.note": "filed"},
    }
    path = written(tmp_path, "request.json", request)
    told = made("--file", path)
    assert (told["timeout"], told["request_file"]) == ("0:20:00", path)
    seen = told["seen"]
    assert lifetime(seen) == timedelta(minutes=20)
    assert seen["platform"] == {"os": "linux", "arch": ARCH}
    assert (seen["entrypoint"], seen["metadata"]) == (["sleep", "infinity"], {"team": "blue"})
    assert seen["extensions"] == {"opensandbox.extensions.note": "filed"}
    assert run(osb, told["id"], "echo $GREETING") == "hello"
    # Whoever wants to reach a port of it needs what is told with the endpoint.
    endpoint = osb.json("sandbox endpoint", told["id"], "--port", "44772")
    path = endpoint["endpoint"].partition("/")[2]
    assert server.call("GET", f"/{path}/ping", key=None).status == 401
    assert server.call("GET", f"/{path}/ping", key=None, headers=endpoint["headers"]).status == 200


def test_a_login_reaches_the_registry(osb: Published, registry: Doorman):
    said = osb.refused(
        "sandbox create",
        *("-i", f"{registry.address}/tool:1", "-o", "json"),
        *("--image-auth-username", "me", "--image-auth-password", "cli secret"),
    )
    assert "me:cli secret" in registry.asked
    assert "SANDBOX::IMAGE_ACCESS_DENIED" in said


def test_lifetimes(made: Callable[..., dict[str, Any]]):
    assert made("-i", "host", "-t", "none", "--skip-health-check")["seen"].get("expiresAt") is None
    told = made("-i", "host")
    assert (told["timeout"], lifetime(told["seen"])) == ("sdk-default", timedelta(minutes=10))


def test_what_a_server_refuses_leaves_nothing(osb: Published, server: Server):
    before = server.ids()
    said = osb.refused("sandbox create", "-i", "host", "-t", "1s")
    assert "timeout must be" in said, said
    assert server.ids() == before


def test_lists_filter_and_come_in_pages(osb: Published, create):
    ids = [create(metadata={"list": "cli", "n": str(n)}).id for n in range(3)]
    create(metadata={"list": "other"})

    def listed(*arguments: str) -> tuple[list[str], dict[str, Any]]:
        page = osb.json("sandbox list", *arguments)
        return [item["id"] for item in page["items"]], page["pagination"]

    assert listed("--metadata", "list=cli")[0] == ids[::-1]
    assert listed("-m", "list=cli", "-m", "n=1")[0] == [ids[1]]
    found, pagination = listed("-m", "list=cli", "--page", "2", "--page-size", "2")
    assert (found, pagination["total_items"], pagination["has_next_page"]) == ([ids[0]], 3, False)
    assert listed("-m", "list=cli", "--state", "paused", "-s", "Failed")[0] == []
    table = osb("sandbox list", "-m", "list=cli").stdout
    assert all(sandbox in table and "Running" in table for sandbox in ids)


def test_a_sandbox_describes_itself_in_every_format(osb: Published, create):
    box = create(metadata={"team": "red"})
    told = osb.json("sandbox get", box.id)
    assert told == box.get_info().model_dump(mode="json")
    assert (told["id"], told["status"]["state"]) == (box.id, "Running")
    assert yaml.safe_load(osb("sandbox get", box.id, "-o", "yaml").stdout) == told
    table = osb("sandbox get", box.id, "-o", "table").stdout
    assert box.id in table and "Running" in table and "red" in table


def test_a_paused_sandbox_waits_and_goes_on(osb: Published, box: SandboxSync):
    assert osb.json("sandbox health", box.id) == {"sandbox_id": box.id, "healthy": True}
    assert osb.json("sandbox pause", box.id)["status"] == "ok"
    assert box.get_info().status.state == "Paused"
    assert osb.json("sandbox list", "-s", "Paused")["items"][0]["id"] == box.id
    assert "DOCKER::SANDBOX_NOT_RUNNING" in osb.refused("sandbox pause", box.id)
    assert osb.json("sandbox resume", box.id, "--resume-timeout", "20s")["status"] == "ok"
    assert box.get_info().status.state == "Running"
    assert "DOCKER::SANDBOX_NOT_PAUSED" in osb.refused(
        "sandbox resume", box.id, "--skip-health-check"
    )


def test_a_renewal_moves_the_expiry(osb: Published, box: SandboxSync):
    told = osb.json("sandbox renew", box.id, "--timeout", "2h")
    expires = datetime.fromisoformat(told["expires_at"])
    assert abs(expires - datetime.now(timezone.utc) - timedelta(hours=2)) < timedelta(minutes=1)
    assert box.get_info().expires_at == expires


def test_an_endpoint_leads_to_the_port(osb: Published, box: SandboxSync, server: Server):
    serve = "mkdir /srv/web; cd /srv/web; echo found > page; exec python3 -m http.server 8000"
    assert osb.json("command run", box.id, "--background", "--", "sh", "-c", serve)["execution_id"]
    told = osb.json("sandbox endpoint", box.id, "-p", "8000")
    assert told == box.get_endpoint(8000).model_dump(mode="json")
    host, _, path = told["endpoint"].partition("/")
    assert host == server.domain
    answer = "curl -sf --retry 9 --retry-all-errors localhost:8000/page"
    assert run(osb, box.id, answer) == "found"
    assert server.call("GET", f"/{path}/page", headers=told["headers"]).body == b"found\n"


def test_metrics_are_those_of_the_sandbox(osb: Published, create):
    box = create(resource={"cpu": "1", "memory": "256Mi"})
    told = osb.json("sandbox metrics", box.id)
    assert (told["cpu_count"], told["memory_total_in_mib"]) == (1, 256)
    assert 0 < told["memory_used_in_mib"] <= 256
    with osb.start("sandbox metrics", box.id, "--watch", "-o", "json") as watch:
        samples = [json.loads(watch.stdout.readline()) for _ in range(2)]
        watch.send_signal(signal.SIGINT)
        watch.communicate(timeout=60)
    assert watch.returncode == 0
    assert samples[1]["timestamp"] > samples[0]["timestamp"]
    assert all(sample["memory_total_in_mib"] == 256 for sample in samples)


def test_a_killed_sandbox_is_gone(osb: Published, create, server: Server):
    boxes = [create().id, create().id]
    told = osb.json("sandbox kill", *boxes)
    assert told == [{"sandbox_id": box, "status": "terminated"} for box in boxes]
    assert not set(boxes) & set(server.ids())
    for command in ("sandbox get", "sandbox kill", "sandbox health"):
        assert "DOCKER::SANDBOX_NOT_FOUND" in osb.refused(command, boxes[0])
