"""What a sandbox can ask of the kernel: one test per sentence of SECURITY.md, named after it."""

from __future__ import annotations

import errno
import pathlib
import platform

import pytest
from attack import calls, fails, lines, number, script

EPERM, ENOSYS = errno.EPERM, errno.ENOSYS


def test_calls_that_have_served_escapes_are_refused(sandbox):
    names = ("add_key", "bpf", "io_uring_setup", "kcmp", "keyctl", "perf_event_open", "request_key", "userfaultfd")
    for name, answer in calls(sandbox, [(name, 0, 0, 0, 0, 0) for name in names]).items():
        assert answer == (-1, EPERM), name


def test_a_call_that_is_not_on_the_list_does_not_exist(sandbox):
    known = number("bpf")
    # A call of tomorrow, one whose flags no filter sees, and the numbers of the x32 interface.
    for unknown in (999, number("clone3"), known | 0x4000_0000, 0x4000_0000):
        assert script(sandbox, f"print(*call({unknown}, 0, 0))") == [f"-1 {ENOSYS}"], unknown


@pytest.mark.skipif(platform.machine() != "x86_64", reason="other machines have no such interface")
def test_a_32_bit_call_does_not_pass_the_filter(sandbox):
    # mov eax, 20 (getpid); int 0x80; ret
    code = (
        "import mmap\n"
        "page = mmap.mmap(-1, 4096, prot=7)\n"
        "page.write(bytes.fromhex('b814000000cd80c3'))\n"
        "at = ctypes.addressof(ctypes.c_char.from_buffer(page))\n"
        "print(ctypes.CFUNCTYPE(ctypes.c_int)(at)(), flush=True)\n"
    )
    # A kernel without that interface ends the program.
    assert script(sandbox, code)[:1] in ([], [str(-ENOSYS)], ["Segmentation fault"])


def test_a_sandbox_cannot_make_or_enter_namespaces(sandbox):
    fails(sandbox, "unshare --user true")
    fails(sandbox, "unshare --user --map-root-user --mount true")
    fails(sandbox, "echo 9 > /proc/sys/user/max_user_namespaces")
    for kind in ("mount", "uts", "ipc", "net", "pid", "cgroup", "time"):
        fails(sandbox, f"unshare --{kind} true")
    code = (
        "for kind in ('mnt', 'net', 'pid', 'user', 'uts', 'ipc', 'cgroup'):\n"
        "    own = os.open(f'/proc/self/ns/{kind}', os.O_RDONLY)\n"
        f"    print(*call({number('setns')}, own, 0))\n"
    )
    assert script(sandbox, code) == [f"-1 {EPERM}"] * 7
    fails(sandbox, "nsenter --target 1 --mount true")


def test_a_sandbox_has_no_power_over_the_kernel(sandbox):
    fails(sandbox, "date -s '2001-01-01'")
    fails(sandbox, "hostname changed")
    fails(sandbox, "dmesg")
    attempts = [
        ("clock_settime", 0, 0),
        ("finit_module", 0, 0, 0),
        ("init_module", 0, 0, 0),
        ("kexec_load", 0, 0, 0, 0),
        # LINUX_REBOOT_CMD_CAD_OFF, which harms nobody if it is not refused.
        ("reboot", 0xFEE1_DEAD, 672_274_793, 0),
        ("setdomainname", 0, 0),
        ("settimeofday", 0, 0),
        ("swapon", 0, 0),
        ("syslog", 10, 0, 0),
    ]
    for name, answer in calls(sandbox, attempts).items():
        assert answer == (-1, EPERM), name
    bounding = next(line for line in lines(sandbox, "cat /proc/self/status") if "CapBnd" in line)
    powers = int(bounding.split()[1], 16)
    beyond = {"dac_read_search": 2, "net_admin": 12, "sys_module": 16, "sys_rawio": 17, "sys_ptrace": 19}
    beyond |= {"sys_admin": 21, "sys_boot": 22, "sys_resource": 24, "sys_time": 25, "syslog": 34, "bpf": 39}
    for name, bit in beyond.items():
        assert not powers & (1 << bit), name


def test_the_kernels_settings_are_read_only(sandbox):
    before = pathlib.Path("/proc/sys/kernel/core_pattern").read_text()
    for setting in ("kernel/core_pattern", "kernel/modprobe", "kernel/panic", "vm/overcommit_memory", "fs/file-max"):
        fails(sandbox, f"cat /proc/sys/{setting} > /proc/sys/{setting}")
    fails(sandbox, "echo '|/tmp/x' > /proc/sys/kernel/core_pattern")
    assert lines(sandbox, "find /proc/sys -type f -writable") == []
    fails(sandbox, "echo 1 > /proc/sys/net/ipv4/ip_forward")
    fails(sandbox, "mount -o remount,rw /proc/sys")
    fails(sandbox, "echo h > /proc/sysrq-trigger")
    assert pathlib.Path("/proc/sys/kernel/core_pattern").read_text() == before


def test_what_tells_of_the_host_as_a_whole_is_covered(sandbox):
    for place in ("/proc/acpi", "/proc/bus", "/proc/fs", "/proc/irq", "/proc/pressure", "/proc/scsi", "/sys/firmware"):
        # All sandboxes have the same cover: it can be neither opened, nor locked, nor watched.
        fails(sandbox, f"ls -A {place}")
    for file in ("interrupts", "kcore", "keys", "latency_stats", "sched_debug", "timer_list"):
        fails(sandbox, f"head -c 1 /proc/{file}")
        fails(sandbox, f"flock -n /proc/{file} true")
    fails(sandbox, "chmod 644 /proc/keys")
    for place in ("/proc/keys", "/proc/acpi", "/proc/sys", "/sys/firmware"):
        fails(sandbox, f"umount {place} || umount -l {place}")
    assert lines(sandbox, "find /sys -type f -writable 2>/dev/null") == []
    fails(sandbox, "mount -o remount,rw /sys")


def test_no_memory_of_a_program_is_dumped_for_the_host(sandbox):
    assert lines(sandbox, "ulimit -c; ulimit -Hc") == ["0", "0"]
    fails(sandbox, "ulimit -c 1")


def test_nobody_types_on_the_terminal_of_another(sandbox):
    # TIOCSTI and TIOCLINUX, also with bits above those that the kernel looks at.
    code = (
        "import pty\n"
        "terminal, _ = pty.openpty()\n"
        "number = 16 if os.uname().machine == 'x86_64' else 29\n"
        "for request in (0x5412, 0x541c, 0x1_0000_5412):\n"
        "    print(*call(number, terminal, request, b'x'))\n"
    )
    assert script(sandbox, code) == [f"-1 {EPERM}"] * 3


def test_a_program_chooses_how_its_own_memory_lies_and_no_other(sandbox):
    own = lines(sandbox, "setarch -R cat /proc/self/personality; cat /proc/self/personality")
    assert own == ["00040000", "00000000"]
    # READ_IMPLIES_EXEC, and a page at address zero.
    for persona in (0x040_0000, 0x010_0000):
        assert calls(sandbox, [("personality", persona)]) == {"personality": (-1, EPERM)}
