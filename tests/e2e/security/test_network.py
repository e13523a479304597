"""The network: one test per sentence of SECURITY.md, named after it."""

from __future__ import annotations

import os
import socket

from attack import fails, lines, script
from served import wait_for


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


def test_no_abstract_socket_of_another_is_reached(create):
    one, two = create(), create()
    name = f"osb-test-{os.getpid()}-abstract"
    serve = f"import socket,time; s=socket.socket(socket.AF_UNIX); s.bind('\\0{name}'); s.listen(); time.sleep(60)"
    one.commands.run(f'python3 -c "{serve}" & echo')
    knock = f"import socket; socket.socket(socket.AF_UNIX).connect('\\0{name}'); print('in')"
    wait_for("it is reached from inside", lambda: script(one, knock)[-1:] == ["in"])
    assert "ConnectionRefusedError" in script(two, knock)[-1]
    with socket.socket(socket.AF_UNIX) as caller, socket.socket(socket.AF_UNIX) as listener:
        try:
            caller.connect("\0" + name)
            raise AssertionError("the host reached it")
        except ConnectionRefusedError:
            pass
        listener.bind("\0" + name)
        listener.listen()
        assert "ConnectionRefusedError" in script(two, knock)[-1]
