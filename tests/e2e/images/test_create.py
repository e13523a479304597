"""Sandboxes of images that the server gets from registries, made with the published client."""

from __future__ import annotations

import contextlib
import sqlite3
import threading
from datetime import timedelta

import pytest
from opensandbox import SandboxSync
from opensandbox.exceptions import SandboxApiException
from opensandbox.models.sandboxes import SandboxImageAuth, SandboxImageSpec
from served import Server, wait_for
from store import Store

LOGIN = SandboxImageAuth(username="me", password="secret")


def lines(sandbox: SandboxSync, command: str) -> list[str]:
    execution = sandbox.commands.run(command)
    assert execution.error is None, execution.error
    return [line.text for line in execution.logs.stdout]


def status(server: Server, sandbox: str) -> dict[str, str]:
    return server.call("GET", f"/v1/sandboxes/{sandbox}").json()["status"]


def raw(server: Server, image: str) -> dict[str, object]:
    """Asks for a sandbox of an image that says itself what runs."""
    body = {"image": {"uri": image}, "resourceLimits": {}, "timeout": 600}
    answer = server.call("POST", "/v1/sandboxes", body, timeout=60)
    assert answer.status == 202, answer
    return answer.json()


def test_a_private_image_is_pulled_with_the_login_of_the_request(private, connection):
    image = SandboxImageSpec(f"{private.name}/app:1", auth=LOGIN)
    with SandboxSync.create(image, connection_config=connection) as sandbox:
        assert lines(sandbox, "cat /srv/hello") == ["hello"]
        assert lines(sandbox, "ls /bin/cat") == ["/bin/cat"]
        sandbox.kill()


def test_a_sandbox_begins_as_its_image_says(server, public, connection):
    made = raw(server, f"{public.name}/app:1")
    assert made["status"]["state"] == "Running"
    assert made["entrypoint"][:2] == ["/bin/sh", "-c"]
    with SandboxSync.connect(made["id"], connection_config=connection) as sandbox:
        wait_for("its entrypoint", lambda: lines(sandbox, "cat /tmp/begun || true") == ["begun"])
        assert lines(sandbox, "echo $FROM_IMAGE $BOTH") == ["yes image"]
        assert lines(sandbox, "id -u; pwd") == ["1234", "/srv"]
        sandbox.kill()


def test_a_request_says_more_than_its_image(public, connection):
    with SandboxSync.create(
        f"{public.name}/app:1",
        env={"BOTH": "request"},
        entrypoint=["/bin/sh", "-c", "echo $BOTH $FROM_IMAGE > /tmp/said; exec tail -f /dev/null"],
        connection_config=connection,
    ) as sandbox:
        wait_for(
            "the entrypoint", lambda: lines(sandbox, "cat /tmp/said || true") == ["request yes"]
        )
        sandbox.kill()


def test_a_name_that_clients_know_is_what_the_operator_says(server, public, connection):
    name = "opensandbox/code-interpreter:v1.0.1"
    with SandboxSync.create(name, connection_config=connection) as sandbox:
        assert lines(sandbox, "cat /srv/hello") == ["hello"]
        assert sandbox.get_info().image.image == name
        sandbox.kill()
    assert Store(server).names() == [f"{public.name}/app:1"]


@pytest.mark.parametrize(
    ("image", "code"),
    [
        ("{public}/none:1", "SANDBOX::IMAGE_NOT_FOUND"),
        ("{private}/app:1", "SANDBOX::IMAGE_ACCESS_DENIED"),
        ("127.0.0.1:1/app:1", "SANDBOX::REGISTRY_NOT_ALLOWED"),
        ("Not a name", "SANDBOX::INVALID_PARAMETER"),
    ],
)
def test_what_cannot_be_had_is_said(server, public, private, connection, image, code):
    image = image.format(public=public.name, private=private.name)
    with pytest.raises(SandboxApiException) as failure:
        SandboxSync.create(image, connection_config=connection)
    assert failure.value.error.code == code, failure.value
    assert failure.value.status_code in (400, 403)
    assert server.ids() == []


def test_a_wrong_login_is_said_and_not_repeated(server, private, connection):
    wrong = SandboxImageAuth(username="me", password="hunter2")
    image = SandboxImageSpec(f"{private.name}/app:1", auth=wrong)
    with pytest.raises(SandboxApiException) as failure:
        SandboxSync.create(image, connection_config=connection)
    assert failure.value.error.code == "SANDBOX::IMAGE_ACCESS_DENIED"
    assert "hunter2" not in str(failure.value)
    assert "hunter2" not in server.log.read_text()


def test_a_slow_pull_is_pending_until_it_runs_or_fails(server, slow, torn, connection):
    """The client gives up on a request after 30 seconds, and on a sandbox when it is told to."""
    made: list[SandboxSync] = []
    answers: list[dict[str, object]] = []

    def create() -> None:
        patience = timedelta(minutes=3)
        image = f"{slow.name}/large:1"
        made.append(
            SandboxSync.create(image, ready_timeout=patience, connection_config=connection)
        )

    creation = threading.Thread(target=create)
    creation.start()
    identity = wait_for("a sandbox", server.ids)[0]
    doomed = threading.Thread(target=lambda: answers.append(raw(server, f"{torn.name}/large:1")))
    doomed.start()
    told = f"pulling {slow.name}/large:1: 1 of 2 layers, "
    wait_for("progress", lambda: status(server, identity)["message"].startswith(told), 60)
    shown = status(server, identity)
    assert (shown["state"], shown["reason"]) == ("Pending", "IMAGE_PULLING")
    assert not is_announced(server, identity), "the answer waits for the patience of the server"
    wait_for("an answer", lambda: is_announced(server, identity), 60)
    slow.open()
    creation.join(120)
    assert made, "the client gave up"
    with made[0] as sandbox:
        assert lines(sandbox, "ls /large") == ["/large"]
        assert sandbox.get_info().status.state == "Running"
        sandbox.kill()

    doomed.join(60)
    assert answers[0]["status"]["state"] == "Pending"
    failed = answers[0]["id"]
    torn.cut()
    wait_for("its end", lambda: status(server, failed)["state"] == "Failed", 120)
    assert status(server, failed)["reason"] == "IMAGE_PULL_FAILED"
    assert "cannot reach" in status(server, failed)["message"]
    assert server.call("DELETE", f"/v1/sandboxes/{failed}").status == 204


def is_announced(server: Server, sandbox: str) -> bool:
    """Whether anybody was told of the sandbox; before that it is not even written down."""
    place = f"file:{server.data_dir / 'opensandbox.db'}?mode=ro"
    with contextlib.closing(sqlite3.connect(place, uri=True)) as database:
        found = database.execute("SELECT announced FROM sandboxes WHERE id = ?", [sandbox])
        return found.fetchone() == (1,)
