"""Templates, with every method that both published clients have for them."""

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
from opensandbox.exceptions import SandboxApiException, SandboxException
from opensandbox.models.sandboxes import NetworkPolicy, NetworkRule, SandboxFilter, SnapshotFilter
from opensandbox.models.templates import CreateTemplateRequest, TemplateFilter, TemplateReadiness
from served import Server, serving, wait_for

PUBLISH = "s3://bucket/prefix"


class Client:
    """A manager of either kind, and the sandboxes and templates that were made with it."""

    def __init__(self, server: Server, kind: str) -> None:
        self.server, self.kind = server, kind
        self.runner = asyncio.Runner() if kind == "async" else None
        config = ConnectionConfig if kind == "async" else ConnectionConfigSync
        self.config = config(domain=server.domain, api_key=server.api_key)
        manager_class = SandboxManager if kind == "async" else SandboxManagerSync
        manager = self.wait(manager_class.create(self.config))
        self.manager = Blocking(kind, "manager", manager, self.wait)
        self.sandboxes: list[str] = []
        self.templates: list[str] = []

    def wait(self, result: Any) -> Any:
        return self.runner.run(result) if inspect.isawaitable(result) else result

    def build(self, **options: Any) -> Any:
        options = {"image": "host", "publish": PUBLISH} | options
        template = self.manager.create_template(CreateTemplateRequest(**options))
        self.templates.append(template.template_id)
        return template

    def built(self, template: Any) -> Any:
        """The template once it is built, or has failed."""

        def finished() -> Any:
            found = self.manager.get_template(template.template_id)
            return found if found.status.phase in ("Succeeded", "Failed") else None

        return wait_for("the template is built", finished, 60)

    def start(self, template: Any, **options: Any) -> Any:
        sandbox_class = Sandbox if self.kind == "async" else SandboxSync
        options.setdefault("timeout", timedelta(minutes=10))
        CALLED.add((self.kind, "sandbox", "create_from_template"))
        made = sandbox_class.create_from_template(
            template.template_id, connection_config=self.config, **options
        )
        return self.known(self.wait(made))

    def connect(self, sandbox: str) -> Any:
        sandbox_class = Sandbox if self.kind == "async" else SandboxSync
        return self.known(self.wait(sandbox_class.connect(sandbox, connection_config=self.config)))

    def known(self, sandbox: Any) -> Any:
        self.sandboxes.append(sandbox.id)
        return Blocking(self.kind, "sandbox", sandbox, self.wait)

    def run(self, sandbox: Any, command: str) -> list[str]:
        execution = self.wait(sandbox.service.commands.run(command))
        assert execution.exit_code == 0, execution
        return [line.text for line in execution.logs.stdout]

    def close(self) -> None:
        for sandbox in set(self.sandboxes) & set(self.server.ids()):
            self.server.call("DELETE", f"/v1/sandboxes/{sandbox}")
        for template in self.manager.list_templates(TemplateFilter(page_size=200)).template_infos:
            self.built(template)
            self.manager.delete_template(template.template_id)
        self.wait(self.manager.service.close())
        if self.runner:
            self.runner.close()


@pytest.fixture(params=KINDS)
def client(server: Server, request: pytest.FixtureRequest) -> Iterator[Client]:
    client = Client(server, request.param)
    yield client
    client.close()


def refused(status: int, code: str, call: Callable[[], Any]) -> None:
    with pytest.raises(SandboxApiException) as refusal:
        call()
    assert refusal.value.status_code == status, refusal.value
    assert code in str(refusal.value) or refusal.value.error.code == code, refusal.value


def test_a_template_is_prepared_once_and_started_many_times(client: Client):
    prepare = "sleep 0.5; mkdir -p /srv/lib; echo $RANDOM > /srv/lib/seed; exec sleep infinity"
    template = client.build(
        entrypoint=["bash", "-c", prepare],
        env={"LEVEL": "info"},
        metadata={"team": "a"},
        resource_limits={"memory": "256Mi"},
        readiness=TemplateReadiness(probe="cmd://test -s /srv/lib/seed", warmup_seconds=0),
        format="native",
    )
    assert template.template_id.startswith("tpl-")
    assert (template.status.phase, template.image, template.publish) == ("Pending", "host", PUBLISH)
    assert (template.format, template.env, template.metadata) == (
        "native",
        {"LEVEL": "info"},
        {"team": "a"},
    )
    template = client.built(template)
    assert template.status.phase == "Succeeded", template
    assert template.status.manifest_ref.startswith("snapshot:")
    assert client.manager.list_snapshots(SnapshotFilter()).snapshot_infos == []
    assert client.manager.list_sandbox_infos(SandboxFilter()).sandbox_infos == []

    one, other = client.start(template, metadata={"job": "1"}), client.start(template)
    info = one.get_info()
    assert (info.entrypoint, info.metadata) == (["bash", "-c", prepare], {"job": "1"})
    # Its entrypoint runs again, on files that are there before it does anything.
    for sandbox in (one, other):
        assert client.run(sandbox, "echo $LEVEL; test -s /srv/lib/seed && echo there") == [
            "info",
            "there",
        ]
    client.run(one, "touch /srv/lib/mine")
    assert client.run(other, "ls /srv/lib") == ["seed"]

    client.manager.delete_template(template.template_id)
    gone = template.template_id
    refused(404, "FSB::TEMPLATE_NOT_FOUND", lambda: client.manager.get_template(gone))
    refused(404, "FSB::TEMPLATE_NOT_FOUND", lambda: client.start(template))
    assert client.run(other, "ls /srv/lib") == ["seed"]


def test_the_policy_of_such_a_sandbox_is_asked_for_by_its_id(client: Client):
    template = client.built(client.build(readiness=TemplateReadiness(probe="tcp://127.0.0.1:44772")))
    policy = NetworkPolicy(
        default_action="deny", egress=[NetworkRule(action="allow", target="example.com")]
    )
    made = client.start(template, network_policy=policy)
    for sandbox in (made, client.connect(made.id)):
        assert sandbox.service.origin == "template"
        with pytest.raises(SandboxException):
            _ = sandbox.service.credential_vault
        assert [rule.target for rule in sandbox.get_egress_policy().egress] == ["example.com"]
    made.patch_egress_rules([NetworkRule(action="allow", target="example.org")])
    made.delete_egress_rules(["example.com"])
    assert [rule.target for rule in made.get_egress_policy().egress] == ["example.org"]


def test_templates_are_listed_and_filtered(client: Client):
    first = client.build(metadata={"team": "a"})
    second = client.build(metadata={"team": "b", "x": "y"})
    third = client.build(metadata={"team": "a", "x": "y"})

    def listed(**filters: Any) -> list[str]:
        page = client.manager.list_templates(TemplateFilter(**filters))
        return [template.template_id for template in page.template_infos]

    ids = [template.template_id for template in (third, second, first)]
    assert listed() == ids
    assert listed(metadata={"team": "a", "x": "y"}) == ids[:1]
    assert listed(page=2, page_size=2) == ids[2:]


def test_one_that_fails_says_why(client: Client):
    failed = client.built(
        client.build(
            entrypoint=["sh", "-c", "exit 3"], readiness=TemplateReadiness(probe="test -e /never")
        )
    )
    assert failed.status.phase == "Failed"
    assert "ended" in failed.status.message, failed
    refused(409, "FSB::TEMPLATE_CONFLICT", lambda: client.start(failed))
    # It is never ready, and ends after a while.
    waiting = client.build(
        entrypoint=["sleep", "8"], readiness=TemplateReadiness(probe="test -e /never")
    )
    path = f"/v1/templates/{waiting.template_id}"
    wait_for("it is being built", lambda: status(client.server, path)["phase"] == "Building")
    refused(
        409,
        "FSB::TEMPLATE_CONFLICT",
        lambda: client.manager.delete_template(waiting.template_id),
    )
    waiting = client.built(waiting)
    assert waiting.status.phase == "Failed"
    assert "before it was ready" in waiting.status.message, waiting


def shelf(server: Server) -> set[str]:
    """The snapshots that the runtime has."""
    return {entry.name for entry in (server.data_dir / "native" / "snapshots").iterdir()}


def status(server: Server, path: str) -> dict[str, Any]:
    return server.call("GET", path).json()["status"]


def test_one_that_a_killed_server_was_building_is_built_again():
    with serving() as server:
        client = Client(server, "sync")
        finished = client.built(client.build())
        probe = TemplateReadiness(probe="sleep 2")
        template = client.build(readiness=probe)
        path = f"/v1/templates/{template.template_id}"
        wait_for("it is being built", lambda: status(server, path)["phase"] == "Building")
        server.kill()
        server.start()
        assert client.built(template).status.phase == "Succeeded"
        for each in (finished, template):
            assert client.run(client.start(each), "echo here") == ["here"]
        # Nothing is left of the first try.
        kept = [client.manager.get_template(each.template_id) for each in (finished, template)]
        names = {each.status.manifest_ref.removeprefix("snapshot:") for each in kept}
        wait_for("only what is needed is kept", lambda: shelf(server) == names)
        client.close()


@pytest.mark.parametrize("kind", KINDS)
def test_no_method_for_templates_is_without_a_test(kind: str):
    for who, service in (("sandbox", Sandbox), ("manager", SandboxManager)):
        offered = {name for name in dir(service) if "template" in name and name[0] != "_"}
        assert offered
        assert offered - {method for k, w, method in CALLED if (k, w) == (kind, who)} == set()
