"""All sandboxes of a user have the same ids on the host: what keeps them from him and from each other."""

from __future__ import annotations

import os
import pathlib
import subprocess

from served import wait_for
from test_rootless import AS_USER, lent, lines, processes


def test_root_in_a_sandbox_is_neither_the_user_nor_root(server, create):
    sandbox = create()
    lines(sandbox, f"sleep 7000 & {AS_USER} sleep 7000 &")
    expected = {lent()[0], lent()[1000]}
    wait_for("both run", lambda: expected <= set(processes().values()))
    assert os.geteuid() not in set(processes().values())


def test_a_sandbox_sees_no_file_of_its_user(server, create):
    secret = pathlib.Path(os.environ["HOME"]) / "secret-of-the-user"
    secret.write_text("secret")
    # Open to everybody, but for the places where they lie.
    secret.chmod(0o666)
    sandbox = create()
    assert lines(sandbox, "find / -xdev -name 'secret-of-the-user' -not -path '/proc/*'") == []
    for way in ("", "/proc/1/root", "/proc/self/root/..", "/proc/1/cwd"):
        assert lines(sandbox, f"cat {way}{secret} && echo reached")[-1] != "reached"
    assert lines(sandbox, "find /root /var/tmp -mindepth 1") == []
    assert secret.read_text() == "secret"


def test_a_sandbox_reaches_no_process_of_its_user(server, create):
    assert server.process is not None
    with subprocess.Popen(["sleep", "7000"]) as own:
        sandbox = create()
        for pid in (own.pid, server.process.pid):
            assert "No such process" in lines(sandbox, f"kill -9 {pid}")[0]
        lines(sandbox, f"{AS_USER} sh -c 'kill -9 -1'")
        seen = lines(sandbox, "cat /proc/[0-9]*/comm")
        assert "osb" not in seen, seen
        assert own.poll() is None and server.answers()
        own.kill()


def test_sandboxes_with_the_same_ids_do_not_reach_each_other(server, create):
    one, other = create(), create()
    one.files.write_file("/srv/secret-of-one", "secret")
    lines(one, "chmod 666 /srv/secret-of-one; sleep 7777 &")
    assert lines(other, "find / -xdev -name secret-of-one") == []
    assert lines(other, "cat /proc/[0-9]*/root/srv/secret-of-one && echo reached")[-1] != "reached"
    assert "sleep\x007777" not in "".join(lines(other, "cat /proc/[0-9]*/cmdline"))
    lines(other, f"{AS_USER} sh -c 'kill -9 -1'")
    assert lines(one, "pgrep -x sleep | wc -l") == ["1"]
    shared = lines(other, "ls /dev/shm /dev/mqueue; ipcs -a | grep -c '^0x'")
    assert shared[-1] == "0", shared


def test_a_sandbox_has_no_power_over_its_walls(server, create):
    sandbox = create()
    for command in (
        "mount -t tmpfs none /mnt",
        "mount --bind /root /mnt",
        "umount /proc",
        "umount /dev/null",
        "mount -o remount,rw /usr",
        "unshare -U true",
        "unshare -m true",
        "mknod /tmp/disk b 254 0",
        "echo 1 > /proc/sys/kernel/sysrq",
        "chmod 600 /dev/null",
        "touch /usr/bin/new",
    ):
        assert lines(sandbox, f"{command} || echo refused")[-1] == "refused", command
    assert pathlib.Path("/dev/null").stat().st_mode & 0o777 == 0o666


def test_a_crowd_of_processes_is_stopped_and_its_neighbours_do_not_notice(server, create):
    bomb, neighbour = create(), create()
    script = (
        "import os, signal, sys, time\n"
        "children = []\n"
        "try:\n"
        "    while len(children) < 3000:\n"
        "        child = os.fork()\n"
        "        if child == 0: time.sleep(600); os._exit(0)\n"
        "        children.append(child)\n"
        "except OSError: pass\n"
        "print(len(children), flush=True)\n"
        "if 'stay' in sys.argv: os._exit(0)\n"
        "for child in children: os.kill(child, signal.SIGKILL); os.waitpid(child, 0)\n"
    )
    bomb.files.write_file("/tmp/bomb.py", script)
    for who in ("", AS_USER):
        count = int(lines(bomb, f"{who} python3 /tmp/bomb.py")[0])
        assert 900 < count < 1024, count
    lines(bomb, "python3 /tmp/bomb.py stay > /tmp/count")
    assert lines(neighbour, "for i in 1 2 3; do (echo $i); done") == ["1", "2", "3"]
    assert lines(create(), "echo new") == ["new"]
    bomb.kill()
    wait_for("the crowd is gone", lambda: len(processes()) < 20)
