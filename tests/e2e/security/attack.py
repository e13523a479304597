"""How the tests attack: as root in a sandbox, with the tools that are there and with bare system calls."""

from __future__ import annotations

import platform

from opensandbox import SandboxSync

# The numbers of the calls that the tests make, on x86-64 and on arm64.
NUMBERS = {
    "add_key": (248, 217),
    "bpf": (321, 280),
    "clock_settime": (227, 112),
    "clone3": (435, 435),
    "finit_module": (313, 273),
    "fsopen": (430, 430),
    "init_module": (175, 105),
    "io_setup": (206, 0),
    "io_uring_setup": (425, 425),
    "kcmp": (312, 272),
    "kexec_load": (246, 104),
    "keyctl": (250, 219),
    "mount": (165, 40),
    "mount_setattr": (442, 442),
    "open_by_handle_at": (304, 265),
    "open_tree": (428, 428),
    "perf_event_open": (298, 241),
    "personality": (135, 92),
    "pidfd_getfd": (438, 438),
    "pidfd_open": (434, 434),
    "pivot_root": (155, 41),
    "process_vm_readv": (310, 270),
    "ptrace": (101, 117),
    "reboot": (169, 142),
    "request_key": (249, 218),
    "setdomainname": (171, 162),
    "setns": (308, 268),
    "settimeofday": (164, 170),
    "swapon": (167, 224),
    "syslog": (103, 116),
    "umount2": (166, 39),
    "unshare": (272, 97),
    "userfaultfd": (323, 282),
}


def lines(sandbox: SandboxSync, command: str) -> list[str]:
    """What a command printed on both streams."""
    execution = sandbox.commands.run(f"{{ {command}\n}} 2>&1")
    return [line.text for line in execution.logs.stdout]


def fails(sandbox: SandboxSync, command: str) -> None:
    execution = sandbox.commands.run(command)
    output = [line.text for line in execution.logs.stdout + execution.logs.stderr]
    assert execution.exit_code not in (0, None), f"{command} succeeded: {output}"


def number(name: str) -> int:
    return NUMBERS[name][0 if platform.machine() == "x86_64" else 1]


def script(sandbox: SandboxSync, code: str) -> list[str]:
    """What a Python program printed. It finds `call(number, …)`, which answers with the result and
    the error of a system call."""
    prelude = (
        "import ctypes, os, sys\n"
        "def call(number, *arguments):\n"
        "    libc = ctypes.CDLL(None, use_errno=True)\n"
        "    libc.syscall.restype = ctypes.c_long\n"
        "    wide = [a if isinstance(a, bytes) else ctypes.c_ulong(a) for a in arguments]\n"
        "    ctypes.set_errno(0)\n"
        "    return libc.syscall(ctypes.c_long(number), *wide), ctypes.get_errno()\n"
    )
    sandbox.files.write_file("/tmp/attack.py", prelude + code)
    return lines(sandbox, "python3 /tmp/attack.py")


def calls(sandbox: SandboxSync, attempts: list[tuple]) -> dict[str, tuple[int, int]]:
    """The result and the error of each call, given as a name and its arguments."""
    numbered = [(name, number(name), *arguments) for name, *arguments in attempts]
    printed = script(
        sandbox,
        f"for name, *numbers in {numbered!r}:\n    print(name, *call(*numbers), flush=True)\n",
    )
    answers = {}
    for line in printed:
        name, result, error = line.split()
        answers[name] = (int(result), int(error))
    assert set(answers) == {name for name, *_ in attempts}, printed
    return answers
