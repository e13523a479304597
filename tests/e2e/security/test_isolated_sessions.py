"""Isolated sessions: one test per sentence of SECURITY.md, named after it."""

from __future__ import annotations

import pytest
from attack import fails, lines
from opensandbox import SandboxSync
from opensandbox.exceptions import SandboxApiException
from opensandbox.models.isolated import CreateIsolatedSessionRequest, IsolatedWorkspaceSpec


def isolated(sandbox: SandboxSync, mode: str = "ro", **more):
    sandbox.files.write_file("/space/file", "content")
    workspace = IsolatedWorkspaceSpec(path="/space", mode=mode)
    return sandbox.isolation.create(CreateIsolatedSessionRequest(workspace=workspace, **more))


def test_an_isolated_session_changes_nothing_but_what_it_was_given(sandbox):
    session = isolated(sandbox, "overlay")
    for path in ("/x", "/etc/passwd", "/var/x", "/opt/x", "/dev/x", "/sys/x", "/proc/sys/vm/swappiness"):
        assert session.run(f"echo 1 >> {path}").exit_code != 0, path
    assert session.run("rm file; echo x > /tmp/x; echo x > /dev/shm/x").exit_code == 0
    assert sandbox.files.read_file("/space/file") == "content"
    assert lines(sandbox, "ls /tmp /dev/shm | grep -c '^x$'") == ["0"]


def test_an_isolated_session_reaches_no_process_of_the_sandbox(sandbox):
    session = isolated(sandbox)
    seen = [line.text for line in session.run("cat /proc/[0-9]*/comm").logs.stdout]
    assert "execd" in seen[0] and "isolator" not in seen and len(seen) < 6, seen
    session.run("kill -9 -1; kill -9 1; kill -TERM 1")
    assert [line.text for line in session.run("echo alive").logs.stdout] == ["alive"]
    for name in ("environ", "mem", "exe", "root/etc", "cwd", "fd/3", "fd/4"):
        assert session.run(f"head -c1 /proc/1/{name} || ls /proc/1/{name}/").exit_code != 0, name
    assert lines(sandbox, "echo alive") == ["alive"]


def test_an_isolated_session_has_no_power_over_its_view(sandbox):
    session = isolated(sandbox)
    for attempt in (
        "mount -t tmpfs none /tmp",
        "mount -o remount,rw /",
        "mount -o remount,rw,bind /space",
        "umount /proc",
        "umount -l /space",
        "unshare --user true",
        "unshare --mount true",
        "nsenter --target 1 --mount true",
        "chroot / umount /tmp",
        "mknod /tmp/disk b 254 0 && head -c1 /tmp/disk",
    ):
        assert session.run(attempt).exit_code != 0, attempt


def test_who_makes_isolated_sessions_cannot_be_touched_from_within(sandbox):
    isolated(sandbox)
    (pid,) = lines(sandbox, "grep -lx isolator /proc/[0-9]*/comm | cut -d/ -f3")
    sandbox.commands.run(f"kill -9 {pid}; kill -STOP {pid}; true")
    for name in ("environ", "mem", "exe", "root", "cwd", "fd/3", "ns/mnt", "stack"):
        fails(sandbox, f"head -c1 /proc/{pid}/{name} || readlink /proc/{pid}/{name}")
    fails(sandbox, f"nsenter --target {pid} --user true")
    assert isolated(sandbox).run("true").exit_code == 0


def test_no_path_leads_an_isolated_session_out_of_its_sandbox(sandbox):
    (pid,) = lines(sandbox, "grep -lx isolator /proc/[0-9]*/comm | cut -d/ -f3")
    sandbox.commands.run(
        f"mkdir /way; ln -s /proc/{pid}/root /way/isolator; ln -s /proc/1/cwd /way/first;"
        "ln -s /proc/self/fd /way/descriptors; ln -s / /way/root; mkfifo /way/fifo"
    )
    sandbox.commands.run("ln -s /proc/sys/kernel /way/kernel; ln -s /sys /way/sys; ln -s /proc /way/proc")
    names = ("isolator", "isolator/etc", "first", "descriptors/3", "fifo", "nowhere")
    for name in (*names, "root", "kernel", "sys", "proc"):
        for mode in ("rw", "overlay"):
            workspace = IsolatedWorkspaceSpec(path=f"/way/{name}", mode=mode)
            with pytest.raises(SandboxApiException) as refusal:
                sandbox.isolation.create(CreateIsolatedSessionRequest(workspace=workspace))
            assert refusal.value.status_code == 400, (name, mode)


def test_an_isolated_session_has_the_filter_and_the_covers_of_its_sandbox(sandbox):
    session = isolated(sandbox)
    status = [line.text for line in session.run("grep Seccomp: /proc/self/status").logs.stdout]
    assert status[0].split() == ["Seccomp:", "2"]
    for attempt in ("unshare --mount true", "unshare --uts true", "keyctl show || false"):
        assert session.run(attempt).exit_code != 0, attempt
    for place in ("/proc/acpi", "/proc/pressure", "/sys/firmware"):
        shown = session.run(f"ls -A {place}")
        assert shown.exit_code != 0 and not shown.logs.stdout, place
    assert session.run("test -s /proc/keys").exit_code != 0
    assert session.run("find /proc/sys -type f -writable | grep .").exit_code != 0


def test_who_makes_isolated_sessions_opens_nothing_in_place_of_a_device(sandbox):
    # A pipe tells its reader whether anybody has it open for writing.
    sandbox.files.write_file(
        "/tmp/trap.py",
        "import os, time\n"
        "os.mkfifo('/srv/trap')\n"
        "trap = os.open('/srv/trap', os.O_RDONLY | os.O_NONBLOCK)\n"
        "os.rename('/dev/null', '/dev/moved'); os.symlink('/srv/trap', '/dev/null')\n"
        "open('/srv/set', 'w').close()\n"
        "while not os.path.exists('/srv/over'):\n"
        "    time.sleep(0.01)\n"
        "os.rename('/dev/moved', '/dev/null')\n"
        "try:\n"
        "    print('nobody' if os.read(trap, 1) == b'' else 'somebody wrote')\n"
        "except BlockingIOError:\n"
        "    print('somebody')\n",
    )
    sandbox.commands.run("python3 /tmp/trap.py > /srv/caught 2>&1 & until [ -e /srv/set ]; do :; done")
    # It has no /dev/null, so that not much works in it.
    isolated(sandbox)
    assert lines(sandbox, "touch /srv/over; until [ -s /srv/caught ]; do :; done; cat /srv/caught") == [
        "nobody"
    ]
    assert [line.text for line in isolated(sandbox).run("echo whole").logs.stdout] == ["whole"]
