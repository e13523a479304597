"""One test per sentence of SECURITY.md: what a hostile process in a sandbox cannot do.

Everything inside runs as the sandbox's own root, the most that it can be.
"""

from __future__ import annotations

import contextlib
import os
import pathlib
import re
import socket
import uuid
from collections.abc import Callable, Iterator
from datetime import timedelta

import pytest
from opensandbox import SandboxSync
from opensandbox.config import ConnectionConfigSync
from opensandbox.exceptions import SandboxApiException
from served import Server, serving, wait_for

Create = Callable[..., SandboxSync]


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    assert os.geteuid() == 0, "the native runtime needs root here"
    with serving() as server:
        yield server


@pytest.fixture
def create(server: Server) -> Iterator[Create]:
    made: list[SandboxSync] = []

    def create(**options) -> SandboxSync:
        connection = ConnectionConfigSync(domain=server.domain, api_key=server.api_key)
        options.setdefault("timeout", timedelta(minutes=10))
        made.append(SandboxSync.create("host", connection_config=connection, **options))
        return made[-1]

    yield create
    for sandbox in made:
        with sandbox, contextlib.suppress(SandboxApiException):
            sandbox.kill()


@pytest.fixture
def sandbox(create: Create) -> SandboxSync:
    return create()


def run(sandbox: SandboxSync, command: str) -> str:
    """What the command printed on both streams, whatever its exit code."""
    execution = sandbox.commands.run(f"exec 2>&1; {command}")
    return "\n".join(line.text for line in execution.logs.stdout)


def exit_code(sandbox: SandboxSync, command: str) -> int | None:
    return sandbox.commands.run(command).exit_code


def first_process(sandbox: SandboxSync) -> pathlib.Path:
    """The sandbox's PID 1, seen from the host."""
    for hierarchy in (pathlib.Path("/sys/fs/cgroup/pids"), pathlib.Path("/sys/fs/cgroup")):
        procs = hierarchy / "opensandbox" / sandbox.id / "cgroup.procs"
        if procs.exists():
            for pid in procs.read_text().split():
                process = pathlib.Path("/proc") / pid
                if re.search(r"^NSpid:\t\d+\t1$", (process / "status").read_text(), re.M):
                    return process
    raise AssertionError("the sandbox's first process is not in its control group")


def test_it_sees_no_process_but_its_own(sandbox: SandboxSync):
    pids = run(sandbox, "ls -d /proc/[0-9]*; true").split()
    assert "/proc/1" in pids and len(pids) < 10
    commands = run(sandbox, "cat /proc/[0-9]*/cmdline | tr '\\0' ' '")
    assert "osb" not in commands and "python" not in commands


def test_its_root_is_nobody_on_the_host(create: Create):
    ranges = set()
    for sandbox in (create(), create()):
        status = (first_process(sandbox) / "status").read_text()
        uid = int(re.search(r"^Uid:\t(\d+)", status, re.M).group(1))
        assert uid >= 0x4000_0000 and uid % 65536 == 0
        ranges.add(uid)
    assert len(ranges) == 2, "two sandboxes share their users"


def test_it_has_namespaces_of_its_own(sandbox: SandboxSync):
    process = first_process(sandbox)
    for space in ("cgroup", "ipc", "mnt", "net", "pid", "user", "uts"):
        assert os.readlink(process / "ns" / space) != os.readlink(f"/proc/self/ns/{space}"), space


def test_it_sees_no_file_of_the_host_but_its_programs(server: Server, sandbox: SandboxSync):
    usual = (
        "bin dev etc home lib lib32 lib64 libx32 media mnt opt proc root run sbin srv sys tmp usr "
        "var"
    )
    assert set(run(sandbox, "ls -A /").split()) <= set(usual.split())
    for hidden in (server.data_dir, pathlib.Path("/etc/ssh"), pathlib.Path("/etc/ssl/private")):
        assert exit_code(sandbox, f"test -e {hidden}") == 1, f"{hidden} is visible"
    for empty in ("/root", "/home/sandbox", "/tmp", "/opt", "/mnt", "/var/lib"):
        assert run(sandbox, f"ls -A {empty}") == "", f"{empty} is not empty"
    assert len(run(sandbox, "cat /etc/passwd").splitlines()) == 3


def test_it_cannot_change_the_hosts_programs(sandbox: SandboxSync):
    for attempt in (
        "touch /usr/bin/osb-was-here",
        "rm /usr/bin/env",
        "chmod 777 /usr/bin/env",
        "mount -o remount,rw /usr",
        "echo x > /usr/bin/env",
    ):
        assert exit_code(sandbox, attempt) != 0, attempt
    assert not pathlib.Path("/usr/bin/osb-was-here").exists()


def test_it_cannot_read_what_only_the_hosts_root_may_read(sandbox: SandboxSync):
    secret = pathlib.Path("/usr/local/share") / f"osb-test-{uuid.uuid4()}"
    secret.touch(mode=0o600)
    try:
        secret.write_text("the host's secret")
        assert exit_code(sandbox, f"test -e {secret}") == 0
        assert "secret" not in run(sandbox, f"cat {secret} | tr a-z A-Z; cat {secret}").replace(
            str(secret), ""
        )
    finally:
        secret.unlink()


def test_it_cannot_mount(sandbox: SandboxSync):
    for attempt in (
        "mount -t tmpfs none /mnt",
        "mount --bind /etc /mnt",
        "mount -t proc proc /mnt",
        "umount /proc",
        "umount /usr",
    ):
        assert exit_code(sandbox, attempt) not in (0, 127), attempt


def test_it_cannot_look_into_execd(server: Server, sandbox: SandboxSync):
    token = sandbox.get_endpoint(44772).headers["X-EXECD-ACCESS-TOKEN"]
    for name in ("environ", "mem", "maps", "exe", "cwd", "root", "fd/3", "fd/4", "stack"):
        assert exit_code(sandbox, f"head -c1 /proc/1/{name}") != 0, name
    assert exit_code(sandbox, "ls /proc/1/fd/") != 0
    everything = run(sandbox, "cat /proc/[0-9]*/environ /proc/[0-9]*/cmdline | tr '\\0' '\\n'; env")
    assert token not in everything and server.api_key not in everything


def test_it_cannot_end_execd(sandbox: SandboxSync):
    run(sandbox, "kill -9 1; kill -STOP 1; kill -SEGV 1; kill -INT 1; true")
    assert run(sandbox, "echo alive") == "alive"


def test_a_command_inherits_no_descriptor(sandbox: SandboxSync):
    assert set(run(sandbox, "ls /proc/self/fd").split()) <= {"0", "1", "2", "3"}
    opened = run(sandbox, "readlink /proc/self/fd/3 || echo none").splitlines()
    assert opened == ["none"], "a descriptor of execd reached a command"


def test_it_has_no_wire(sandbox: SandboxSync):
    interfaces = run(sandbox, "tail -n +3 /proc/net/dev | cut -d: -f1").split()
    assert interfaces == ["lo"]
    assert run(sandbox, "tail -n +2 /proc/net/route") == ""


def test_it_cannot_reach_a_listener_of_the_host(server: Server, sandbox: SandboxSync):
    assert exit_code(sandbox, f"exec 3<>/dev/tcp/127.0.0.1/{server.port}") != 0
    # Abstract sockets have no path, only a network namespace.
    name = f"osb-test-{uuid.uuid4()}"
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(f"\0{name}")
        listener.listen()
        reach = (
            "import socket,sys; s=socket.socket(socket.AF_UNIX); "
            f"sys.exit(0 if s.connect_ex('\\0{name}') == 0 else 7)"
        )
        assert exit_code(sandbox, f'python3 -c "{reach}"') == 7


def test_it_cannot_reach_another_sandbox(create: Create):
    one, other = create(), create()
    one.commands.run("cd /tmp; nohup python3 -m http.server 8000 >/dev/null 2>&1 &")
    reach = "python3 -c \"import socket; socket.create_connection(('127.0.0.1', 8000), 2)\""
    wait_for("its own service answers", lambda: exit_code(one, reach) == 0)
    assert exit_code(other, reach) != 0
    one.commands.run("echo mine > /tmp/mine; echo mine > /dev/shm/mine")
    assert exit_code(other, "test -e /tmp/mine -o -e /dev/shm/mine") == 1


def test_one_sandboxs_token_does_not_open_another(server: Server, create: Create):
    one, other = create(), create()
    token = one.get_endpoint(44772).headers["X-EXECD-ACCESS-TOKEN"]
    for headers in ({}, {"X-EXECD-ACCESS-TOKEN": token}, {"X-EXECD-ACCESS-TOKEN": ""}):
        path = f"/v1/sandboxes/{other.id}/proxy/44772/ping"
        answer = server.call("GET", path, key=None, headers=headers)
        assert answer.status == 401 and answer.json().keys() >= {"code", "message"}


def test_its_powers_are_few_and_cannot_grow(sandbox: SandboxSync):
    status = run(sandbox, "cat /proc/self/status")
    bounding = int(re.search(r"^CapBnd:\t(\w+)$", status, re.M).group(1), 16)
    effective = int(re.search(r"^CapEff:\t(\w+)$", status, re.M).group(1), 16)
    assert bounding == 0xA80425FB and effective & ~bounding == 0
    assert re.search(r"^NoNewPrivs:\t1$", status, re.M)


def test_it_cannot_make_devices(sandbox: SandboxSync):
    for place in ("/dev", "/tmp"):
        assert exit_code(sandbox, f"mknod {place}/disk b 8 0") not in (0, 127)
        assert exit_code(sandbox, f"mknod {place}/memory c 1 1") not in (0, 127)
    kinds = run(sandbox, "find /dev -type b")
    assert kinds == ""


def test_it_cannot_change_the_kernels_settings(sandbox: SandboxSync):
    for setting in ("kernel/core_pattern", "kernel/hostname", "vm/overcommit_memory"):
        assert exit_code(sandbox, f"echo 1 > /proc/sys/{setting}") != 0, setting
    assert exit_code(sandbox, "echo b > /proc/sysrq-trigger") != 0
    assert exit_code(sandbox, "touch /sys/x") != 0


def test_its_memory_is_bounded(create: Create):
    sandbox = create(resource={"cpu": "1", "memory": "128Mi"})
    greedy = "python3 -c \"x = b'x' * (512 << 20); print('got it')\""
    assert "got it" not in run(sandbox, greedy)
    assert run(sandbox, "echo alive") == "alive"


def test_the_number_of_its_processes_is_bounded(sandbox: SandboxSync):
    crowd = (
        "import os,time\n"
        "n=0\n"
        "try:\n"
        "  while n < 6000:\n"
        "    if os.fork() == 0: time.sleep(60)\n"
        "    n += 1\n"
        "except OSError: pass\n"
        "print(n)\n"
        "os.killpg(0, 9)\n"
    )
    sandbox.files.write_file("/tmp/crowd.py", crowd)
    made = int(run(sandbox, "python3 -u /tmp/crowd.py").splitlines()[0])
    assert 1000 < made < 4200
    assert run(sandbox, "echo alive") == "alive"


def test_a_tree_too_deep_for_any_path_is_removed_with_it(server: Server, create: Create):
    sandbox = create()
    deep = "import os\nfor _ in range(3000):\n  os.mkdir('d'*100); os.chdir('d'*100)\n"
    sandbox.files.write_file("/tmp/deep.py", deep)
    assert exit_code(sandbox, "cd /tmp && python3 deep.py") == 0
    sandbox.kill()
    native = server.data_dir / "native"
    gone = lambda: not list((native / "removed").iterdir())  # noqa: E731
    wait_for("its files are gone", gone)
    assert not (native / "sandboxes" / sandbox.id).exists()
