"""One test per sentence of SECURITY.md, named after it. The attacker is root in the sandbox."""

from __future__ import annotations

import os
import pathlib
import secrets
import socket
import stat
import threading

import pytest
from opensandbox import SandboxSync
from opensandbox.exceptions import SandboxApiException
from opensandbox.models.execd import RunCommandOpts
from opensandbox.models.isolated import CreateIsolatedSessionRequest, IsolatedWorkspaceSpec
from served import Server, wait_for


def lines(sandbox: SandboxSync, command: str) -> list[str]:
    """What a command printed on both streams."""
    execution = sandbox.commands.run(f"{{ {command}\n}} 2>&1")
    return [line.text for line in execution.logs.stdout]


def fails(sandbox: SandboxSync, command: str) -> None:
    execution = sandbox.commands.run(command)
    output = [line.text for line in execution.logs.stdout + execution.logs.stderr]
    assert execution.exit_code not in (0, None), f"{command} succeeded: {output}"


@pytest.fixture
def sandbox(create) -> SandboxSync:
    return create()


# Processes


def test_a_sandbox_sees_no_process_but_its_own(sandbox):
    seen = lines(sandbox, "cat /proc/[0-9]*/comm")
    assert "execd" in seen[0]
    assert len(seen) < 10, seen
    mine = pathlib.Path("/proc/self/comm").read_text().strip()
    assert mine not in seen


def test_root_in_a_sandbox_is_nobody_on_the_host(sandbox):
    assert lines(sandbox, "id -u") == ["0"]
    marker = f"sleep {secrets.randbelow(10**6) + 10**6}"
    sandbox.commands.run(f"{marker} & echo")
    wanted = marker.replace(" ", "\0").encode() + b"\0"
    owners = wait_for("the process is seen from the host", lambda: owners_of(wanted))
    assert min(owners) >= 65536, owners


def owners_of(command: bytes) -> set[int]:
    """The users, as the host knows them, of all processes with this command line."""
    found = set()
    for process in pathlib.Path("/proc").iterdir():
        try:
            if process.name.isdigit() and (process / "cmdline").read_bytes() == command:
                found.add(process.stat().st_uid)
        except (FileNotFoundError, ProcessLookupError):
            continue
    return found


def test_two_sandboxes_have_different_users_on_the_host(create):
    bases = {lines(create(), "cut -c12-22 /proc/self/uid_map")[0] for _ in range(2)}
    assert len(bases) == 2, bases


def test_a_sandbox_cannot_signal_its_first_process_to_death(sandbox):
    sandbox.commands.run("kill -9 1; kill -STOP 1")
    assert lines(sandbox, "echo alive") == ["alive"]


def test_a_sandbox_cannot_look_into_its_first_process(sandbox):
    for name in ("environ", "mem", "maps", "exe", "cwd", "root", "fd/3", "fd/4", "stack"):
        fails(sandbox, f"head -c1 /proc/1/{name}")
    fails(sandbox, "ls /proc/1/fd/")


def test_a_sandbox_cannot_make_user_namespaces(sandbox):
    fails(sandbox, "unshare --user true")
    fails(sandbox, "unshare --user --map-root-user --mount true")
    fails(sandbox, "echo 9 > /proc/sys/user/max_user_namespaces")


def test_calls_that_have_served_escapes_are_refused(sandbox):
    numbers = {"io_uring_setup": 425, "keyctl": 250, "bpf": 321, "userfaultfd": 323}
    for name, number in numbers.items():
        # The same call by the numbers of the x32 interface, where the kernel has it.
        for number in (number, number | 0x4000_0000):
            call = f"ctypes.CDLL(None, use_errno=True).syscall({number}, 0, 0, 0, 0, 0)"
            code = f"import ctypes; print({call}, ctypes.get_errno())"
            result, errno = lines(sandbox, f'python3 -c "{code}"')[0].split()
            assert result == "-1" and errno in ("1", "38"), name


def test_a_sandbox_cannot_stop_its_first_process_from_answering(sandbox):
    fails(sandbox, "prlimit --pid 1 --nofile=3:3")
    # Who opens or executes a file waits for whoever has a lease on it.
    fails(sandbox, "touch /tmp/x; python3 -c 'import fcntl; fcntl.fcntl(open(\"/tmp/x\"), fcntl.F_SETLEASE, fcntl.F_WRLCK)'")
    sandbox.commands.run("rm -f /opt/opensandbox/.env; mkfifo /opt/opensandbox/.env")
    assert lines(sandbox, "echo alive") == ["alive"]
    sandbox.commands.run("rm /opt/opensandbox/.env; ln -s /dev/zero /opt/opensandbox/.env")
    assert lines(sandbox, "echo alive") == ["alive"]
    # From here on a shell would wait for the pipe, but not execd.
    sandbox.commands.run("rm /etc/passwd; mkfifo /etc/passwd")
    assert sandbox.files.get_file_info(["/tmp"])["/tmp"].mode == 1777


def test_no_program_gains_powers_by_its_set_id_bit(sandbox):
    status = "\n".join(lines(sandbox, "cat /proc/self/status"))
    assert "NoNewPrivs:\t1" in status


def test_a_sandbox_has_no_power_over_the_kernel(sandbox):
    fails(sandbox, "echo 1 > /proc/sys/kernel/panic")
    fails(sandbox, "echo c > /proc/sysrq-trigger")
    fails(sandbox, "date -s '2001-01-01'")
    fails(sandbox, "hostname changed")
    fails(sandbox, "dmesg")
    bounding = next(line for line in lines(sandbox, "cat /proc/self/status") if "CapBnd" in line)
    powers = int(bounding.split()[1], 16)
    for name, bit in {"net_admin": 12, "sys_module": 16, "sys_ptrace": 19, "sys_admin": 21}.items():
        assert not powers & (1 << bit), name


# Isolated sessions


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


# Files


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
    fails(sandbox, "umount /usr")
    fails(sandbox, "umount /proc")


def test_a_sandbox_has_no_disk_and_no_memory_device(sandbox):
    assert set(lines(sandbox, "find /dev -type b")) == set()
    fails(sandbox, "mknod /tmp/disk b 8 0 && head -c1 /tmp/disk")
    fails(sandbox, "mknod /dev/mem2 c 1 1 && head -c1 /dev/mem2")
    fails(sandbox, "head -c1 /proc/kcore")


# Network


def test_nothing_leaves_a_sandbox(sandbox):
    assert lines(sandbox, "ls /sys/class/net") == ["lo"]
    # Addresses that nobody has, by RFC 5737 and RFC 3849, and the metadata address of clouds.
    for address in ("192.0.2.1", "2001:db8::1", "169.254.169.254"):
        fails(sandbox, f"timeout 5 bash -c '</dev/tcp/{address}/80'")
    fails(sandbox, "timeout 5 getent hosts example.org")


def test_no_socket_reaches_past_the_network_namespace(sandbox):
    # AF_VSOCK, which reaches the hypervisor, AF_ALG, AF_XDP and AF_PACKET.
    for family in (40, 38, 44, 17):
        for kind in (1, 2, 3, 5):
            fails(sandbox, f'python3 -c "import socket; socket.socket({family}, {kind})"')


def test_a_sandbox_does_not_reach_the_hosts_own_services(sandbox, server):
    fails(sandbox, f"timeout 5 bash -c '</dev/tcp/127.0.0.1/{server.port}'")
    with socket.socket(socket.AF_UNIX) as listener:
        # An abstract socket has no path that could hide it; the network namespace does.
        name = f"osb-test-{os.getpid()}"
        listener.bind("\0" + name)
        listener.listen()
        assert lines(sandbox, f"grep -c {name} /proc/net/unix") == ["0"]


def test_sandboxes_do_not_reach_each_other(create):
    one, two = create(), create()
    one.commands.run("python3 -m http.server 7778 --bind 0.0.0.0 >/dev/null 2>&1 & echo")
    knock = "bash -c '</dev/tcp/127.0.0.1/7778'"
    wait_for("it is reached from inside", lambda: one.commands.run(knock).exit_code == 0)
    fails(two, f"timeout 5 {knock}")
    for sandbox in (one, two):
        assert lines(sandbox, "ls /sys/class/net") == ["lo"]
    ours = lines(one, "readlink /proc/self/ns/net /proc/self/ns/pid /proc/self/ns/ipc")
    theirs = lines(two, "readlink /proc/self/ns/net /proc/self/ns/pid /proc/self/ns/ipc")
    assert not set(ours) & set(theirs)


# Limits


def test_memory_is_limited(create):
    sandbox = create(resource={"cpu": "1", "memory": "64Mi"})
    execution = sandbox.commands.run("head -c 512M /dev/zero | tail -n 1 > /dev/null; echo $?")
    ended = [line.text for line in execution.logs.stdout]
    assert ended != ["0"] or execution.exit_code != 0


def test_the_number_of_processes_is_limited(sandbox, server):
    before = len(os.listdir("/proc"))
    opts = RunCommandOpts(envs={})
    sandbox.commands.run("for i in $(seq 5000); do sleep 30 & done 2>/dev/null; echo", opts=opts)
    assert len(os.listdir("/proc")) - before < 4500
    assert server.call("GET", "/health", key=None).status == 200


def test_a_sandbox_cannot_raise_its_own_limits(sandbox):
    fails(sandbox, "find / -xdev -name memory.limit_in_bytes -o -name memory.max | grep .")
    fails(sandbox, "mkdir -p /tmp/cg && mount -t cgroup2 none /tmp/cg")
    fails(sandbox, "mkdir -p /tmp/cg && mount -t cgroup -o memory none /tmp/cg")


# Secrets


def test_a_sandbox_does_not_see_its_own_token(sandbox, server):
    endpoint = server.call("GET", f"/v1/sandboxes/{sandbox.id}/endpoints/44772").json()
    tokens = list(endpoint["headers"].values())
    assert tokens
    seen = "\n".join(
        lines(sandbox, "env; cat /proc/[0-9]*/environ /proc/[0-9]*/cmdline | tr '\\0' '\\n'")
    )
    for token in tokens:
        assert token not in seen


def test_a_sandbox_is_opened_by_its_own_token_only(create, server):
    one, two = create(), create()
    token = server.call("GET", f"/v1/sandboxes/{two.id}/endpoints/44772").json()["headers"]
    answer = server.call("GET", f"/v1/sandboxes/{one.id}/proxy/44772/ping", key=None, headers=token)
    assert answer.status == 401, answer


def test_a_service_in_a_sandbox_does_not_see_the_callers_key(sandbox, server):
    script = (
        "import socket\n"
        "s = socket.create_server(('127.0.0.1', 7777))\n"
        "c, _ = s.accept()\n"
        "open('/tmp/request', 'wb').write(c.recv(65536))\n"
        "c.sendall(b'HTTP/1.1 200 OK\\r\\ncontent-length: 2\\r\\n\\r\\nok')\n"
    )
    sandbox.files.write_file("/tmp/service.py", script)
    sandbox.commands.run("python3 /tmp/service.py & echo")
    listening = f"grep -c ':{7777:04X} 00000000:0000 0A' /proc/net/tcp"
    wait_for("the service listens", lambda: lines(sandbox, listening) == ["1"])
    answer = server.call("GET", f"/v1/sandboxes/{sandbox.id}/proxy/7777/hello")
    assert (answer.status, answer.body) == (200, b"ok")
    request = sandbox.files.read_file("/tmp/request").lower()
    assert "get /hello" in request
    assert server.api_key.lower() not in request
    assert "api-key" not in request and "execd-access-token" not in request


def test_the_servers_key_and_state_are_readable_by_its_user_only(server: Server):
    key = server.data_dir / "api-key"
    assert stat.S_IMODE(key.stat().st_mode) == 0o600
    assert len(server.api_key) >= 32
    kept = list(server.data_dir.iterdir())
    assert server.data_dir / "native" in kept
    for path in kept:
        assert stat.S_IMODE(path.stat().st_mode) & 0o077 == 0, path


def test_no_secret_is_logged(sandbox, server: Server):
    sandbox.commands.run("true", opts=RunCommandOpts(envs={"SECRET": "hunter2hunter2"}))
    endpoint = server.call("GET", f"/v1/sandboxes/{sandbox.id}/endpoints/44772").json()
    log = server.log.read_text()
    for secret in (server.api_key, "hunter2hunter2", *endpoint["headers"].values()):
        assert secret not in log


def test_the_server_listens_on_loopback_unless_told_otherwise(server: Server):
    local = {f"0100007F:{server.port:04X}"}
    listening = set()
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        for line in pathlib.Path(table).read_text().splitlines()[1:]:
            fields = line.split()
            if fields[3] == "0A" and fields[1].endswith(f":{server.port:04X}"):
                listening.add(fields[1])
    assert listening == local


def test_a_head_without_end_is_cut_off(server: Server):
    with socket.create_connection(("127.0.0.1", server.port), timeout=20) as caller:
        try:
            caller.sendall(b"GET /health HTTP/1.1\r\nX: " + b"x" * 300_000)
            answer = caller.recv(100)
        except (BrokenPipeError, ConnectionResetError):
            answer = b""
    assert answer == b"" or b" 431 " in answer


def test_a_flood_of_requests_without_key_does_not_stop_others(sandbox, server: Server):
    refused: list[int] = []

    def flood() -> None:
        for _ in range(200):
            refused.append(server.call("GET", "/v1/sandboxes", key="wrong").status)

    threads = [threading.Thread(target=flood) for _ in range(4)]
    for thread in threads:
        thread.start()
    assert lines(sandbox, "echo served") == ["served"]
    for thread in threads:
        thread.join()
    # Here and not in the threads, where an assertion that fails is heard by nobody.
    assert refused == [401] * 800
