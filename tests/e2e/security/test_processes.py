"""Processes: one test per sentence of SECURITY.md, named after it."""

from __future__ import annotations

import fcntl
import os
import pathlib
import secrets

import pytest
from attack import calls, fails, lines, number, script
from served import wait_for


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


def test_nobody_traces_the_first_process(sandbox):
    fails(sandbox, "strace -p 1")
    # PTRACE_ATTACH and PTRACE_SEIZE.
    for request in (16, 0x4206):
        result, _ = calls(sandbox, [("ptrace", request, 1, 0, 0)])["ptrace"]
        assert result == -1
    code = (
        f"process, _ = call({number('pidfd_open')}, 1, 0)\n"
        f"for descriptor in range(8):\n"
        f"    print(call({number('pidfd_getfd')}, process, descriptor, 0)[0])\n"
        "buffer = ctypes.create_string_buffer(8)\n"
        "class Span(ctypes.Structure):\n"
        "    _fields_ = [('base', ctypes.c_void_p), ('length', ctypes.c_size_t)]\n"
        "here, there = Span(ctypes.addressof(buffer), 8), Span(0x400000, 8)\n"
        "spans = ctypes.addressof(here), 1, ctypes.addressof(there), 1\n"
        f"print(call({number('process_vm_readv')}, 1, *spans, 0)[0])\n"
    )
    assert script(sandbox, code) == ["-1"] * 9
    # A program may trace what it starts.
    assert script(sandbox, f"print(*call({number('ptrace')}, 0, 0, 0, 0))") == ["0 0"]


F_GET_SEALS, F_SEAL_SHRINK, F_SEAL_GROW, F_SEAL_WRITE = 1034, 2, 4, 8


def first_process(sandbox: str) -> int:
    """The number that the first process of a sandbox has on the host."""
    for status in pathlib.Path("/proc").glob("[0-9]*/status"):
        try:
            found = dict(line.split(":\t", 1) for line in status.read_text().splitlines() if ":\t" in line)
            group = status.with_name("cgroup").read_text()
        except (FileNotFoundError, ProcessLookupError):
            continue
        if sandbox in group and found["NSpid"].split()[-1] == "1":
            return int(status.parent.name)
    raise AssertionError("it is not there")


def test_nobody_overwrites_the_program_of_the_first_process(sandbox):
    for flags in ("os.O_RDONLY", "os.O_WRONLY", "os.O_RDWR"):
        code = f"try:\n    os.open('/proc/1/exe', {flags})\nexcept OSError:\n    print('refused')\n"
        assert script(sandbox, code) == ["refused"], flags
    # Also whoever gets hold of it by another way finds it sealed: even root of the host does.
    descriptor = os.open(f"/proc/{first_process(sandbox.id)}/exe", os.O_RDONLY)
    try:
        seals = fcntl.fcntl(descriptor, F_GET_SEALS)
        assert seals & F_SEAL_WRITE and seals & F_SEAL_SHRINK and seals & F_SEAL_GROW
        with pytest.raises(OSError):
            os.open(f"/proc/self/fd/{descriptor}", os.O_WRONLY)
    finally:
        os.close(descriptor)
