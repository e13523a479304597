"""What a sandbox uses up is its own: one test per sentence of SECURITY.md, named after it."""

from __future__ import annotations

import ctypes
import errno
import os

from attack import calls, fails, lines, script
from opensandbox.models.execd import RunCommandOpts
from served import wait_for

# Takes all that it can of what the kernel counts by user.
EXHAUST = """
import mmap, time
libc = ctypes.CDLL(None, use_errno=True)
libc.mlock.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
instances = 0
while libc.inotify_init1(0) >= 0:
    instances += 1
page = mmap.mmap(-1, 64 << 20)
at = ctypes.addressof(ctypes.c_char.from_buffer(page))
locked = 0
while libc.mlock(at + locked, 4096) == 0:
    locked += 4096
descriptors = []
try:
    while True:
        descriptors.append(os.open("/dev/null", os.O_RDONLY))
except OSError:
    pass
print(instances, locked, flush=True)
time.sleep(600)
"""

# Whether a little of it is left.
NEEDS = """
import mmap
libc = ctypes.CDLL(None, use_errno=True)
libc.mlock.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
watch = libc.inotify_init1(0)
page = mmap.mmap(-1, 1 << 20)
locked = libc.mlock(ctypes.addressof(ctypes.c_char.from_buffer(page)), 1 << 20)
opened = [os.open("/dev/null", os.O_RDONLY) for _ in range(500)]
print(watch >= 0, locked == 0, len(opened))
"""


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
    fails(sandbox, "ulimit -n $(($(ulimit -Hn) + 1))")
    fails(sandbox, "ulimit -l unlimited")


def test_limits_of_processes_do_not_depend_on_who_started_the_server(sandbox):
    soft = lines(sandbox, "ulimit -n -c -l -q -r -s -e | sed 's/.*) *//'")
    assert soft == ["1024", "0", "8192", "819200", "0", "8192", "0"]
    assert int(lines(sandbox, "ulimit -Hn")[0]) <= 524_288


def test_what_the_kernel_counts_by_user_is_counted_by_sandbox(create):
    greedy, neighbour = create(), create()
    greedy.files.write_file("/tmp/greedy.py", "import ctypes, os\n" + EXHAUST)
    greedy.commands.run("ulimit -n $(ulimit -Hn); python3 /tmp/greedy.py > /tmp/taken 2>&1 & echo")

    taken = wait_for("it has taken all", lambda: lines(greedy, "cat /tmp/taken"), seconds=60)
    instances, locked = taken[0].split()
    assert int(instances) >= 1 and int(locked) >= 1 << 20, taken
    assert script(neighbour, NEEDS) == ["True True 500"]
    libc = ctypes.CDLL(None, use_errno=True)
    watch = libc.inotify_init1(0)
    assert watch >= 0, os.strerror(ctypes.get_errno())
    os.close(watch)


def test_a_sandbox_takes_no_asynchronous_requests_of_the_host(sandbox):
    taken = calls(sandbox, [("io_setup", 1, 0)])
    assert taken["io_setup"] == (-1, errno.ENOSYS)


def test_nobody_who_reads_a_file_has_to_signal_a_sandbox(sandbox):
    notify = "fcntl.fcntl(os.open('/usr/bin', os.O_RDONLY), fcntl.F_NOTIFY, fcntl.DN_ACCESS)"
    fails(sandbox, f'python3 -c "import fcntl, os; {notify}"')


def test_a_service_that_only_announces_its_answer_is_cut_off(sandbox, server):
    service = """
import socket
flood = b"HTTP/1.1 103 Early Hints\\r\\n\\r\\n" * 10000
listener = socket.create_server(("127.0.0.1", 7777))
connection, _ = listener.accept()
connection.recv(65536)
try:
    while True:
        connection.sendall(flood)
except OSError:
    open("/srv/over", "w").close()
"""
    sandbox.files.write_file("/tmp/service.py", service)
    sandbox.commands.run("python3 /tmp/service.py > /dev/null 2>&1 & echo")
    listening = f"grep -c ':{7777:04X} 00000000:0000 0A' /proc/net/tcp"
    wait_for("the service listens", lambda: lines(sandbox, listening) == ["1"])
    assert server.call("GET", f"/v1/sandboxes/{sandbox.id}/proxy/7777/").status == 502
    wait_for("nobody reads any more", lambda: lines(sandbox, "ls /srv") == ["over"])
