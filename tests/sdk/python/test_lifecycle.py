"""Sandboxes as a whole: description, list, expiry, metadata, end."""

from datetime import datetime, timedelta, timezone

import pytest
from opensandbox import SandboxManagerSync, SandboxSync
from opensandbox.exceptions import SandboxApiException
from opensandbox.models.sandboxes import SandboxFilter


def test_a_sandbox_describes_itself(create):
    sandbox = create(metadata={"team": "red"}, entrypoint=["sleep", "infinity"])
    info = sandbox.get_info()
    assert info.id == sandbox.id
    assert info.status.state == "Running"
    assert info.image.image == "host"
    assert info.entrypoint == ["sleep", "infinity"]
    assert info.metadata == {"team": "red"}
    assert info.expires_at - info.created_at == timedelta(minutes=10)


def test_a_sandbox_without_timeout_never_expires(create):
    assert create(timeout=None).get_info().expires_at is None


def test_lists_filter_by_metadata_and_state_and_come_in_pages(create, connection):
    mine = [create(metadata={"list": "mine", "n": str(n)}).id for n in range(3)]
    create(metadata={"list": "other"})
    with SandboxManagerSync.create(connection) as manager:

        def listed(**query):
            found = manager.list_sandbox_infos(SandboxFilter(**query))
            return [info.id for info in found.sandbox_infos], found.pagination

        ids, pagination = listed(metadata={"list": "mine"})
        assert ids == list(reversed(mine))
        assert pagination.total_items == 3

        assert listed(metadata={"list": "mine", "n": "1"})[0] == [mine[1]]
        assert listed(metadata={"list": "mine"}, states=["Paused"])[0] == []
        assert listed(metadata={"list": "mine"}, states=["Paused", "running"])[1].total_items == 3

        ids, pagination = listed(metadata={"list": "mine"}, page=2, page_size=2)
        assert ids == [mine[0]]
        assert (pagination.total_pages, pagination.has_next_page) == (2, False)


def test_renewing_moves_the_expiry(sandbox):
    answer = sandbox.renew(timedelta(hours=1))
    wanted = datetime.now(timezone.utc) + timedelta(hours=1)
    assert abs(answer.expires_at - wanted) < timedelta(seconds=10)
    assert abs(sandbox.get_info().expires_at - answer.expires_at) < timedelta(seconds=1)


def test_metadata_is_merged(create):
    sandbox = create(metadata={"keep": "1", "drop": "2", "change": "3"})
    info = sandbox.patch_metadata({"drop": None, "change": "4", "new": "5"})
    assert info.metadata == {"keep": "1", "change": "4", "new": "5"}
    assert sandbox.get_info().metadata == info.metadata


def test_another_client_can_connect(sandbox, connection):
    sandbox.commands.run("echo kept > /tmp/kept")
    with SandboxSync.connect(sandbox.id, connection_config=connection) as other:
        assert other.files.read_file("/tmp/kept") == "kept\n"


def test_health_is_asked_of_the_sandbox_itself(sandbox):
    assert sandbox.is_healthy()


def test_a_killed_sandbox_is_unknown(create):
    sandbox = create()
    sandbox.kill()
    for call in (sandbox.get_info, sandbox.kill):
        with pytest.raises(SandboxApiException) as raised:
            call()
        assert raised.value.status_code == 404
        assert raised.value.error.code == "DOCKER::SANDBOX_NOT_FOUND"


def test_a_sandbox_whose_program_ends_says_how(create, server):
    from served import wait_for

    sandbox = create(entrypoint=["sh", "-c", "sleep 0.5; exit 3"], skip_health_check=True)
    info = wait_for(
        "the sandbox has ended",
        lambda: (info := sandbox.get_info()).status.state == "Failed" and info,
    )
    assert "3" in info.status.message
