"""Files: one test per sentence of SECURITY.md, named after it."""

from __future__ import annotations

import errno
import pathlib
import secrets
import stat

from attack import calls, fails, lines, number, script
from served import wait_for


def test_a_sandbox_sees_no_file_of_the_host_but_its_programs(sandbox, server, tmp_path):
    secret = tmp_path / "secret"
    secret.write_text("secret")
    fails(sandbox, f"cat {secret}")
    # Not by its path alone: nothing of this name is to be found anywhere.
    assert lines(sandbox, f"find / -xdev -name {tmp_path.name} 2>/dev/null") == []
    fails(sandbox, f"ls {server.data_dir}")
    host = pathlib.Path("/etc/shadow").read_text()
    assert "\n".join(lines(sandbox, "cat /etc/shadow")) != host.strip()
    for place in ("/root", "/srv", "/mnt", "/media"):
        assert lines(sandbox, f"ls -A {place}") == [], place


def test_a_sandbox_cannot_change_the_hosts_programs(sandbox):
    fails(sandbox, "touch /usr/bin/new-program")
    fails(sandbox, "echo x >> /usr/bin/env")
    fails(sandbox, "mount -o remount,rw /usr")
    assert not pathlib.Path("/usr/bin/new-program").exists()


def test_a_sandbox_cannot_read_what_only_the_hosts_root_may_read(sandbox):
    secret = pathlib.Path("/usr/local/share") / f"osb-test-{secrets.token_hex(8)}"
    secret.touch(mode=0o600)
    try:
        secret.write_text("for root of the host")
        assert lines(sandbox, f"test -e {secret} && echo there") == ["there"]
        fails(sandbox, f"cat {secret}")
    finally:
        secret.unlink()


def test_a_tree_too_deep_for_any_path_goes_with_its_sandbox(create, server):
    sandbox = create()
    deep = "import os\nfor _ in range(3000):\n  os.mkdir('d' * 100); os.chdir('d' * 100)\n"
    sandbox.files.write_file("/tmp/deep.py", deep)
    assert sandbox.commands.run("cd /tmp && python3 deep.py").exit_code == 0
    sandbox.kill()
    removed = server.data_dir / "native" / "removed"
    wait_for("its files are gone", lambda: not (removed / sandbox.id).exists())
    assert not (server.data_dir / "native" / "sandboxes" / sandbox.id).exists()


def test_what_a_sandbox_writes_is_its_own(create):
    one, two = create(), create()
    one.commands.run("echo secret > /tmp/mine; echo secret > /etc/mine")
    fails(two, "cat /tmp/mine || cat /etc/mine")
    assert not pathlib.Path("/etc/mine").exists()


def test_a_sandbox_cannot_mount(sandbox):
    fails(sandbox, "mkdir -p /tmp/m && mount -t tmpfs none /tmp/m")
    fails(sandbox, "mount --bind /tmp /mnt")
    fails(sandbox, "mount -o remount,rw /usr")
    fails(sandbox, "mount -o remount,rw,bind /usr")
    fails(sandbox, "mount --make-rshared /")
    for place in ("/usr", "/proc", "/sys", "/dev/shm"):
        fails(sandbox, f"umount {place}")
        fails(sandbox, f"umount -l {place}")
    attempts = [("fsopen", 0, 0), ("mount", 0, 0, 0, 0, 0), ("mount_setattr", 0, 0, 0, 0, 0)]
    attempts += [("open_tree", 0, 0, 0), ("pivot_root", 0, 0), ("umount2", 0, 0)]
    for name, answer in calls(sandbox, attempts).items():
        assert answer == (-1, errno.EPERM), name


def test_a_sandbox_has_no_disk_and_no_memory_device(sandbox):
    assert set(lines(sandbox, "find /dev -type b")) == set()
    disks = [line.split() for line in pathlib.Path("/proc/partitions").read_text().splitlines()[2:]]
    for major, minor, *_ in [*disks, ("8", "0"), ("254", "0")]:
        for place in ("/tmp/disk", "/dev/disk", "/dev/shm/disk"):
            fails(sandbox, f"mknod {place} b {major} {minor} && head -c1 {place}")
    for minor in (1, 2, 4):
        fails(sandbox, f"mknod /dev/mem2 c 1 {minor} && head -c1 /dev/mem2")
    for device in ("mem", "kmem", "port", "kmsg", "fuse", "kvm", "loop-control", "net/tun"):
        assert lines(sandbox, f"test -e /dev/{device} && echo there") == [], device


def test_no_file_is_opened_by_its_number(sandbox):
    # The root of a file system by its handle, which leads past every directory above a mount.
    code = (
        "where = os.open('/usr', os.O_RDONLY)\n"
        "handle = (8).to_bytes(4, 'little') + (1).to_bytes(4, 'little') + (2).to_bytes(4, 'little') + bytes(4)\n"
        f"print(*call({number('open_by_handle_at')}, where, handle, 0))\n"
    )
    assert script(sandbox, code) == [f"-1 {errno.EPERM}"]


def test_no_control_group_file_is_in_reach(sandbox):
    # Whoever writes a release_agent has the host's kernel start a program of theirs.
    fails(sandbox, "find / -xdev -name release_agent -o -name notify_on_release | grep .")
    assert lines(sandbox, "ls -A /sys/fs/cgroup") == []
    for kind in ("cgroup -o memory", "cgroup -o rdma", "cgroup2"):
        fails(sandbox, f"mkdir -p /tmp/group && mount -t {kind} none /tmp/group")
