"""The network: one test per sentence of SECURITY.md, named after it."""

from __future__ import annotations

import os
import socket

from attack import fails, lines, script
from served import wait_for


def test_a_sandbox_has_no_wire(sandbox):
    assert lines(sandbox, "ls /sys/class/net") == ["lo"]
    # Addresses that nobody has, by RFC 5737 and RFC 3849, and the metadata address of clouds.
    for address in ("192.0.2.1", "2001:db8::1", "169.254.169.254"):
        hear = f"exec 3<>/dev/tcp/{address}/80; echo >&3; timeout 5 head -c 1 <&3 | grep ."
        fails(sandbox, f"bash -c '{hear}'")


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


def test_root_in_a_sandbox_neither_makes_nor_marks_nor_takes_packets(sandbox):
    attempts = {
        "raw IPv4": "socket.socket(socket.AF_INET, socket.SOCK_RAW, 255)",
        "raw UDP": "socket.socket(socket.AF_INET, socket.SOCK_RAW, 17)",
        "raw IPv6": "socket.socket(socket.AF_INET6, socket.SOCK_RAW, 255)",
        "ICMP": "socket.socket(socket.AF_INET, socket.SOCK_DGRAM, 1)",
        "ICMPv6": "socket.socket(socket.AF_INET6, socket.SOCK_DGRAM, 58)",
        "packets": "socket.socket(17, socket.SOCK_RAW, 0x300)",
        "marks": "socket.socket().setsockopt(socket.SOL_SOCKET, 36, 1)",
        "devices": "socket.socket(socket.AF_INET6).setsockopt(socket.SOL_SOCKET, 25, b'eth0')",
        "transparent IPv4": "socket.socket().setsockopt(socket.SOL_IP, 19, 1)",
        "transparent IPv6": "socket.socket(socket.AF_INET6).setsockopt(41, 75, 1)",
        "headers": "socket.socket(socket.AF_INET6).setsockopt(41, 36, 1)",
        "the port of the outlets": "socket.socket().bind(('127.0.0.1', 1))",
        "the port for datagrams": "socket.socket(10, 2).bind(('::1', 1))",
    }
    printed = script(
        sandbox,
        "import socket\n"
        f"for name, attempt in {attempts!r}.items():\n"
        "    try:\n"
        "        eval(attempt)\n"
        "        print('done:', name)\n"
        "    except OSError as error:\n"
        "        print('refused:', name)\n",
    )
    assert printed == [f"refused: {name}" for name in attempts]


def test_nobody_inside_changes_the_network_of_a_sandbox(sandbox):
    # Requests to the kernel, byte by byte: a link goes down, an address, a route and a table of the
    # packet filter are added or deleted, and a link is made.
    printed = script(
        sandbox,
        "import socket, struct\n"
        "def ask(protocol, kind, flags, body):\n"
        "    with socket.socket(16, socket.SOCK_RAW, protocol) as kernel:\n"
        "        kernel.settimeout(5)\n"
        "        kernel.send(struct.pack('IHHII', 16 + len(body), kind, flags | 5, 1, 0) + body)\n"
        "        return struct.unpack_from('i', kernel.recv(4096), 16)[0]\n"
        "address = struct.pack('HH4s', 8, 2, bytes([9, 9, 9, 9]))\n"
        "lo = struct.pack('HHI', 8, 4, 1)\n"
        "default = struct.pack('BBBBBBBBI', 2, 0, 0, 0, 254, 4, 254, 2, 0) + lo\n"
        "print(ask(0, 16, 0, struct.pack('BBHIII', 0, 0, 0, 1, 0, 1)))\n"
        "print(ask(0, 20, 0x600, struct.pack('BBBBI', 2, 32, 0, 0, 1) + address))\n"
        "print(ask(0, 21, 0, struct.pack('BBBBI', 2, 32, 0, 0, 1) + address))\n"
        "print(ask(0, 24, 0x600, default))\n"
        "print(ask(0, 25, 0, default))\n"
        "print(ask(0, 16, 0x600, struct.pack('BBHIII', 0, 0, 0, 0, 0, 0)))\n"
        "print(ask(12, 0x10, 0, struct.pack('BBH', 0, 0, 0x0a00)))\n"
        "print(ask(12, 0xa02, 0, struct.pack('BBH', 1, 0, 0)))\n",
    )
    # EPERM, each of them.
    assert printed == ["-1"] * 8
    settings = "/proc/sys/net/ipv4/ip_unprivileged_port_start /proc/sys/net/ipv4/ip_forward"
    fails(sandbox, f"for setting in {settings}; do echo 0 >$setting && exit 0; done; exit 1")


def test_what_is_neither_a_stream_nor_a_datagram_goes_nowhere(sandbox):
    # UDP-Lite, SCTP and DCCP, as far as the kernel has them, and whatever comes from an address
    # that somebody has only bound.
    printed = script(
        sandbox,
        "import socket\n"
        "def attempt(name, *kind, bound=None):\n"
        "    try:\n"
        "        with socket.socket(*kind) as sender:\n"
        "            sender.settimeout(2)\n"
        "            if bound:\n"
        "                sender.bind((bound, 0))\n"
        "            sender.connect(('192.0.2.1', 7))\n"
        "            sender.send(b'x')\n"
        "            print(name, 'heard', sender.recv(1))\n"
        "    except OSError as error:\n"
        "        print(name, 'silent')\n"
        "attempt('UDP-Lite', socket.AF_INET, socket.SOCK_DGRAM, 136)\n"
        "attempt('SCTP', socket.AF_INET, socket.SOCK_STREAM, 132)\n"
        "attempt('DCCP', socket.AF_INET, 6, 33)\n"
        "attempt('bound', socket.AF_INET, socket.SOCK_STREAM, bound='5.5.5.5')\n"
        "attempt('bound datagram', socket.AF_INET, socket.SOCK_DGRAM, bound='5.5.5.5')\n",
    )
    names = ["UDP-Lite", "SCTP", "DCCP", "bound", "bound datagram"]
    assert printed == [f"{name} silent" for name in names]


def test_a_sandbox_talks_to_itself_as_it_likes(sandbox):
    printed = script(
        sandbox,
        "import socket\n"
        "own = ['127.0.0.1', '127.0.0.53', '198.18.0.1', '::1', 'fd53::1', socket.gethostname()]\n"
        "for name in own:\n"
        "    family, _, _, _, address = socket.getaddrinfo(name, 53)[0]\n"
        "    with socket.socket(family, 2) as server, socket.socket(family, 2) as client:\n"
        "        server.bind(address)\n"
        "        client.sendto(b'question', address)\n"
        "        question, asker = server.recvfrom(100)\n"
        "        server.sendto(b'answer', asker)\n"
        "        print(client.recv(100).decode())\n"
        "    with socket.create_server(address, family=family) as server:\n"
        "        socket.create_connection(address[:2], 5).close()\n"
        "        print('connected')\n",
    )
    assert printed == ["answer", "connected"] * 6
