"""Snapshots and templates with the published command."""

from __future__ import annotations

import json
import pathlib
from collections.abc import Iterator
from typing import Any

import pytest
from opensandbox import SandboxSync
from published import Published
from served import Server, wait_for

PUBLISH = "s3://bucket/prefix"


@pytest.fixture(autouse=True)
def tidy(server: Server) -> Iterator[None]:
    """Removes what a test left."""
    yield
    for sandbox in server.ids():
        server.call("DELETE", f"/v1/sandboxes/{sandbox}")
    for kind, name in (("snapshots", "id"), ("templates", "templateId")):
        for item in server.call("GET", f"/v1/{kind}?pageSize=200").json()["items"]:
            path = f"/v1/{kind}/{item[name]}"
            wait_for("it is deleted", lambda: server.call("DELETE", path).status in (204, 404), 60)


def test_a_snapshot_is_kept_listed_started_from_and_deleted(
    osb: Published, box: SandboxSync, server: Server
):
    assert osb.json("snapshot list")["items"] == []
    box.files.write_file("/srv/file", "then")
    told = osb.json("snapshot create", box.id, "--name", "before")
    assert (told["sandbox_id"], told["name"], told["status"]) == (box.id, "before", "Ready")
    snapshot, other = told["id"], osb.json("snapshot create", box.id)["id"]
    box.files.write_file("/srv/file", "now")

    told = osb.json("snapshot get", snapshot)
    assert (told["id"], told["name"], told["status"]["state"]) == (snapshot, "before", "Ready")
    assert told["sandbox_id"] == box.id

    def listed(*arguments: str) -> list[str]:
        return [item["id"] for item in osb.json("snapshot list", *arguments)["items"]]

    assert listed("--sandbox-id", box.id) == [other, snapshot]
    assert listed("--name", "before", "--state", "Ready", "--state", "Failed") == [snapshot]
    assert listed("--page", "2", "--page-size", "1") == [snapshot]

    started = osb.json("sandbox create", "--snapshot-id", snapshot, "-t", "10m")
    assert started["snapshot_id"] == snapshot
    seen = server.call("GET", f"/v1/sandboxes/{started['id']}").json()
    assert seen["snapshotId"] == snapshot
    assert osb("file cat", started["id"], "/srv/file").stdout == "then"

    assert osb.json("snapshot delete", snapshot)["status"] == "ok"
    assert server.call("GET", f"/v1/snapshots/{snapshot}").status == 404
    assert "SNAPSHOT::NOT_FOUND" in osb.refused("snapshot get", snapshot)


def succeeded(osb: Published, server: Server, template: str) -> dict[str, Any]:
    """The template once it is built."""
    path = f"/v1/templates/{template}"
    phases = ("Succeeded", "Failed")
    wait_for(
        "it is built",
        lambda: server.call("GET", path).json()["status"]["phase"] in phases,
        60,
    )
    told = osb.json("template get", template)
    assert told["status"]["phase"] == "Succeeded", told
    return told


def test_a_template_is_built_and_started_from(
    osb: Published, server: Server, tmp_path: pathlib.Path
):
    told = osb.json(
        "template create",
        *("--image", "host", "--publish", PUBLISH, "--resource", "memory=256Mi"),
        *("--entrypoint", "sh", "--entrypoint", "-c"),
        *("--entrypoint", "touch /srv/ready; exec sleep infinity"),
        *("--env", "LEVEL=info", "--metadata", "team=a", "--format", "native"),
        *("--readiness-probe", "cmd://test -e /srv/ready", "--warmup-seconds", "0"),
    )
    template = told["template_id"]
    assert (told["image"], told["status"]) == ("host", "Pending")
    told = succeeded(osb, server, template)
    assert (told["env"], told["metadata"], told["format"]) == (
        {"LEVEL": "info"},
        {"team": "a"},
        "native",
    )
    assert told["readiness"] == {"probe": "cmd://test -e /srv/ready", "warmup_seconds": 0}

    policy = tmp_path / "policy.json"
    policy.write_text('{"egress": [{"action": "allow", "target": "a.example"}]}')
    started = osb.json(
        "sandbox create",
        *("--template", template, "-t", "10m", "-m", "job=1", "--ready-timeout", "20s"),
        *("--network-policy-file", str(policy)),
    )
    assert started["template"] == template
    ran = osb("command run", started["id"], "--", "sh", "-c", "echo $LEVEL; ls /srv")
    assert ran.stdout == "infoready\n"
    # The package asks the server for the policy of such a sandbox, and not the sandbox.
    osb("egress patch", started["id"], "--rule", "allow=b.example")
    rules = osb.json("egress get", started["id"])["egress"]
    assert [rule["target"] for rule in rules] == ["b.example", "a.example"]

    assert osb.json("template delete", template)["status"] == "ok"
    assert "FSB::TEMPLATE_NOT_FOUND" in osb.refused("template get", template)


def test_templates_come_from_files_and_are_listed(
    osb: Published, server: Server, tmp_path: pathlib.Path
):
    path = tmp_path / "template.json"
    ids = []
    for team in ("a", "b"):
        request = {"image": "host", "publish": PUBLISH, "metadata": {"team": team}}
        request["readiness"] = {"probe": "cmd://true", "warmupSeconds": 0}
        path.write_text(json.dumps(request))
        told = osb.json("template create", "--file", str(path))
        assert told["request_file"] == str(path)
        ids.append(told["template_id"])

    def listed(*arguments: str) -> list[str]:
        return [item["template_id"] for item in osb.json("template list", *arguments)["items"]]

    assert listed() == ids[::-1]
    assert listed("--metadata", "team=a") == ids[:1]
    assert listed("--page", "2", "--page-size", "1") == ids[:1]
    succeeded(osb, server, ids[0])
    path.write_text(json.dumps({"templateId": ids[0], "timeout": 600, "metadata": {"job": "2"}}))
    started = osb.json("sandbox create", "-f", str(path))
    seen = server.call("GET", f"/v1/sandboxes/{started['id']}").json()
    assert (started["template"], seen["metadata"]) == (ids[0], {"job": "2"})
