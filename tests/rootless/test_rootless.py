"""What a server does that its user has started without being root."""

from __future__ import annotations

import os
import pathlib
import re
import subprocess

import pytest
from opensandbox import SandboxSync
from opensandbox.config import ConnectionConfigSync
from opensandbox.exceptions import SandboxApiException
from opensandbox.models.filesystem import WriteEntry
from opensandbox.models.sandboxes import PVC, Host, Volume
from served import Server, osb, wait_for


# How root in a sandbox becomes another user there.
AS_USER = "setpriv --reuid 1000 --regid 1000 --clear-groups"


def lines(sandbox: SandboxSync, command: str) -> list[str]:
    """What a command printed on both streams."""
    execution = sandbox.commands.run(f"{{ {command}\n}} 2>&1")
    return [line.text for line in execution.logs.stdout]


def connect(server: Server, sandbox: str) -> SandboxSync:
    connection = ConnectionConfigSync(domain=server.domain, api_key=server.api_key)
    return SandboxSync.connect(sandbox, connection_config=connection)


def lent() -> range:
    """The ids that the system lends to this user."""
    first = re.search(r"^osb-rootless:(\d+):65536$", pathlib.Path("/etc/subuid").read_text(), re.M)
    assert first is not None
    return range(int(first[1]), int(first[1]) + 65536)


def processes() -> dict[str, int]:
    """The processes of this user's sandboxes, and who they are on the host."""
    found = {}
    for status in pathlib.Path("/proc").glob("[0-9]*/status"):
        try:
            fields = dict(line.split(":", 1) for line in status.read_text().splitlines())
        except OSError:
            continue
        user = int(fields["Uid"].split()[0])
        if user in lent() and "Z" not in fields["State"]:
            found[status.parent.name] = user
    return found


def test_a_user_who_is_not_root_has_sandboxes(server, create):
    sandbox = create()
    assert lines(sandbox, "id -u; hostname; pwd") == ["0", "sandbox", "/"]
    sandbox.files.write_files([WriteEntry(path="/srv/note", data="kept")])
    assert sandbox.files.read_file("/srv/note") == "kept"
    assert lines(sandbox, f"{AS_USER} touch /tmp/his; stat -c %U /tmp/his") == ["sandbox"]
    assert lines(sandbox, "rm -r /var/log && mkdir /var/log && ls -A /var/log; echo $?") == ["0"]
    assert lines(sandbox, "echo x > /dev/null && head -c 4 /dev/zero | wc -c") == ["4"]
    assert lines(sandbox, "mkdir /srv/old && touch /srv/old/file") == []
    refused = sandbox.isolation.run_once("echo no > /etc/motd", workspace="/srv")
    assert "Read-only" in refused.logs.stderr[0].text
    layered = sandbox.isolation.run_once(
        "rm -r old && mkdir old && ls -A old; echo yes > new && cat new",
        workspace="/srv",
        workspace_mode="overlay",
    )
    assert [line.text for line in layered.logs.stdout] == ["yes"]
    assert lines(sandbox, "find /srv -path /srv/note -o -print | sort") == ["/srv", "/srv/old", "/srv/old/file"]
    sandbox.kill()
    wait_for("nothing of it runs", lambda: not processes())


def test_sandboxes_outlive_a_killed_server_and_leave_nothing_when_deleted(server, create):
    sandboxes = [create() for _ in range(3)]
    for number, sandbox in enumerate(sandboxes):
        sandbox.files.write_files([WriteEntry(path="/tmp/kept", data=f"file {number}")])
        sandbox.commands.run("sleep 7000 & echo $! > /tmp/pid")
    before = set(processes())

    server.kill()
    assert before == set(processes())
    server.start()

    assert server.ids() == sorted(sandbox.id for sandbox in sandboxes)
    for number, old in enumerate(sandboxes):
        with connect(server, old.id) as sandbox:
            assert sandbox.files.read_file("/tmp/kept") == f"file {number}"
            assert lines(sandbox, "kill -0 $(cat /tmp/pid) && echo alive") == ["alive"]
    # The new server makes others beside them, in the same namespace.
    later = create()
    assert lines(later, "echo here") == ["here"]
    server.kill()
    server.start()
    assert len(server.ids()) == 4
    for sandbox in [*sandboxes, later]:
        with connect(server, sandbox.id) as found:
            found.kill()
    assert server.ids() == []
    wait_for("nothing of them runs", lambda: not processes())
    native = server.data_dir / "native"
    wait_for(
        "no file of them is left",
        lambda: not any(os.listdir(native / part) for part in ("sandboxes", "removed")),
    )


def test_a_server_whose_sandboxes_have_ended_meanwhile_begins_anew(server, create):
    sandbox = create()
    server.kill()
    first = (server.data_dir / "native" / "sandboxes" / sandbox.id / "alive").read_text().split()[0]
    # As their owner's owner this user has power over them from outside as well.
    subprocess.run(["kill", "-9", first], check=True)
    wait_for("it has ended", lambda: not processes())
    server.start()
    failed = server.call("GET", f"/v1/sandboxes/{sandbox.id}").json()
    assert failed["status"]["state"] == "Failed", failed
    sandbox.kill()
    assert lines(create(), "echo here") == ["here"]


def test_named_volumes_and_memory_are_there_and_host_paths_are_refused(server, create):
    kept = Volume(name="kept", pvc=PVC(claim_name="kept"), mount_path="/kept", sub_path="a/b")
    first = create(volumes=[kept])
    assert lines(first, "echo x > /kept/file && stat -c '%u %g' /kept/file /kept") == ["0 0"] * 2
    first.kill()
    assert lines(create(volumes=[kept]), "cat /kept/file") == ["x"]
    with pytest.raises(SandboxApiException) as raised:
        create(volumes=[Volume(name="home", host=Host(path=os.environ["HOME"]), mount_path="/home")])
    assert "HOST_PATH_NOT_ALLOWED" in str(raised.value.error)


def test_a_disk_limit_is_refused_and_says_why(server, create):
    with pytest.raises(SandboxApiException) as raised:
        create(resource={"cpu": "1", "memory": "256Mi", "disk": "64Mi"})
    assert "root" in str(raised.value.error)
    assert server.ids() == []


def test_what_needs_control_groups_is_there_with_them_and_refused_without(server, create, grouped):
    sandbox = create(resource={"cpu": "1", "memory": "64Mi"})
    sandbox.files.write_files([WriteEntry(path="/srv/note", data="kept")])
    assert lines(sandbox, "rm -r /etc/hosts /etc/ssl && mkdir /etc/ssl && touch /etc/ssl/new") == []
    if not grouped:
        for path in ("pause", "snapshots"):
            answer = server.call("POST", f"/v1/sandboxes/{sandbox.id}/{path}", {})
            assert answer.status in (409, 501), answer
        assert server.call("GET", f"/v1/sandboxes/{sandbox.id}/usage").status in (409, 501)
        return
    greedy = sandbox.commands.run("tail /dev/zero")
    assert greedy.exit_code not in (0, None)
    sandbox.pause()
    wait_for("it stands", lambda: sandbox.get_info().status.state == "Paused")
    sandbox = SandboxSync.resume(
        sandbox.id,
        connection_config=ConnectionConfigSync(domain=server.domain, api_key=server.api_key),
    )
    snapshot = sandbox.create_snapshot()
    ready = f"/v1/snapshots/{snapshot.id}"
    wait_for("it is kept", lambda: server.call("GET", ready).json()["status"]["state"] == "Ready")
    restored = create_from(server, snapshot.id)
    assert restored.files.read_file("/srv/note") == "kept"
    assert lines(restored, "test -e /etc/hosts || echo gone; ls /etc/ssl") == ["gone", "new"]
    assert lines(restored, "stat -c '%U %G' /srv/note /etc/ssl") == ["root root"] * 2


def create_from(server: Server, snapshot: str) -> SandboxSync:
    connection = ConnectionConfigSync(domain=server.domain, api_key=server.api_key)
    return SandboxSync.create(snapshot_id=snapshot, connection_config=connection)


def test_the_doctor_says_what_is_weaker(grouped):
    seen = subprocess.run([osb(), "doctor"], capture_output=True, text=True, check=False)
    assert seen.returncode == 0, seen
    weaker = {line.split("  ")[1].strip() for line in seen.stdout.splitlines() if line.startswith("weaker ")}
    expected = {"ids of sandboxes", "shares of users", "host paths", "disk limits"}
    # What depends on the host, and not on its user.
    assert weaker - {"landlock", "numbers of the host"} == expected | (set() if grouped else {"control groups"}), seen.stdout
    assert re.search(r"^ok +a sandbox starts ", seen.stdout, re.M), seen.stdout
    assert not processes()
