"""Ways out below TCP and UDP, and through the kernel. Nothing of it arrives anywhere, so that there is
nothing to log: what fails is the call itself, or nobody answers."""

from __future__ import annotations

import os
import socket

from internet import OTHER


def test_a_raw_socket_is_refused(closed):
    closed.stopped(
        """
        attempt(lambda: socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_RAW))
        attempt(lambda: socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_UDP))
        attempt(lambda: socket.socket(socket.AF_INET6, socket.SOCK_RAW, socket.IPPROTO_TCP))
        """,
        "EPERM",
    )


def test_a_packet_socket_is_refused(closed):
    closed.stopped(
        """
        attempt(lambda: socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0x300))
        attempt(lambda: socket.socket(socket.AF_PACKET, socket.SOCK_DGRAM, 0x300))
        """,
        "EPERM",
    )


def test_a_mark_on_a_socket_is_refused(closed):
    closed.stopped("attempt(lambda: socket.socket().setsockopt(socket.SOL_SOCKET, socket.SO_MARK, 1))", "EPERM")


def test_a_priority_that_needs_power_over_the_network_is_refused(closed):
    closed.stopped("attempt(lambda: socket.socket().setsockopt(socket.SOL_SOCKET, 12, 7))", "EPERM")


def test_a_socket_is_bound_to_no_other_device(closed):
    closed.stopped(
        """
        for name in (b"eth0", b"net0", b"docker0"):
            attempt(lambda: socket.socket().setsockopt(socket.SOL_SOCKET, socket.SO_BINDTODEVICE, name))
        """,
        "ENODEV",
    )


def test_a_socket_bound_to_the_only_device_is_judged_like_any(closed):
    closed.refused(
        f"""
        def work():
            with socket.socket() as s:
                s.setsockopt(socket.SOL_SOCKET, socket.SO_BINDTODEVICE, b"lo")
                s.connect(({OTHER!r}, 80))
                s.sendall(b"GET / HTTP/1.0\\r\\n\\r\\n")
                return s.recv(100).decode() or "closed"
        tell(work)
        """,
        address=OTHER,
        port=80,
        reason="default",
    )


def test_a_transparent_socket_is_refused(closed):
    closed.stopped(
        """
        attempt(lambda: socket.socket().setsockopt(socket.SOL_IP, 19, 1))
        attempt(lambda: socket.socket(socket.AF_INET6).setsockopt(socket.IPPROTO_IPV6, 75, 1))
        """,
        "EPERM",
    )


def test_a_socket_bound_to_somebody_elses_address_hears_nothing(closed, seen):
    before = seen.packets[OTHER, 80]
    closed.stopped(
        f"""
        def work(own):
            with socket.socket() as s:
                s.setsockopt(socket.SOL_IP, 15, 1)
                s.bind((own, 0))
                s.settimeout(2)
                s.connect(({OTHER!r}, 80))
                s.sendall(b"GET / HTTP/1.0\\r\\n\\r\\n")
                return s.recv(100).decode() or "closed"
        tell(lambda: work("5.5.5.5"))
        tell(lambda: work("127.0.0.1"))
        tell(lambda: work("45.77.0.1"))
        """,
        *("TimeoutError", "ECONNREFUSED", "TimeoutError"),
    )
    assert seen.packets[OTHER, 80] == before


def test_a_program_writes_no_headers_of_its_own(closed):
    closed.stopped(
        """
        attempt(lambda: socket.socket(socket.AF_INET, socket.SOCK_RAW, 255).setsockopt(socket.SOL_IP, 3, 1))
        attempt(lambda: socket.socket(socket.AF_INET6, socket.SOCK_RAW, 255).setsockopt(socket.IPPROTO_IPV6, 36, 1))
        attempt(lambda: socket.socket(socket.AF_INET6).setsockopt(socket.IPPROTO_IPV6, 36, 1))
        """,
        *("EPERM", "EPERM", "ENOPROTOOPT"),
    )


def test_a_route_in_the_header_is_refused(closed, seen):
    # Loose source route by way of a host that is allowed.
    before = seen.packets[OTHER, 80]
    closed.stopped(
        f"""
        def work():
            with socket.socket() as s:
                s.settimeout(2)
                s.setsockopt(socket.SOL_IP, socket.IP_OPTIONS, b"\\x83\\x07\\x04" + socket.inet_aton({OTHER!r}) + b"\\0")
                s.connect(({OTHER!r}, 80))
                s.sendall(b"GET / HTTP/1.0\\r\\n\\r\\n")
                return s.recv(100).decode() or "closed"
        tell(work)
        """,
        "EPERM",
    )
    assert seen.packets[OTHER, 80] == before


def test_an_echo_request_is_refused(closed):
    closed.stopped(
        """
        attempt(lambda: socket.socket(socket.AF_INET, socket.SOCK_DGRAM, socket.IPPROTO_ICMP))
        attempt(lambda: socket.socket(socket.AF_INET6, socket.SOCK_DGRAM, socket.IPPROTO_ICMPV6))
        attempt(lambda: socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_ICMP))
        """,
        *("EACCES", "EACCES", "EPERM"),
    )


def other_protocol(inmate, seen, kind: int, protocol: int, missing: str) -> None:
    """The kernel may have it or not; if it has, nobody answers."""
    before = seen.packets[OTHER, None]
    inmate.stopped(
        f"""
        def work():
            with socket.socket(socket.AF_INET, {kind}, {protocol}) as s:
                s.settimeout(1)
                s.connect(({OTHER!r}, 7000))
                s.send(b"x")
                return "heard " + s.recv(100).hex()
        attempt(work)
        """,
        f"{missing}|TimeoutError",
    )
    assert seen.packets[OTHER, None] == before


def test_sctp_goes_nowhere(closed, seen):
    other_protocol(closed, seen, 1, 132, "EPROTONOSUPPORT")


def test_dccp_goes_nowhere(closed, seen):
    other_protocol(closed, seen, 6, 33, "ESOCKTNOSUPPORT")


def test_udp_lite_goes_nowhere(closed, seen):
    other_protocol(closed, seen, 2, 136, "EPROTONOSUPPORT")


def test_multipath_tcp_is_judged_like_any(closed):
    closed.refused(
        f"""
        def work():
            try:
                s = socket.socket(socket.AF_INET, socket.SOCK_STREAM, 262)
            except OSError:
                s = socket.socket()
            with s:
                s.settimeout(2)
                s.connect(({OTHER!r}, 80))
                s.sendall(b"GET / HTTP/1.0\\r\\n\\r\\n")
                return s.recv(100).decode() or "closed"
        tell(work)
        """,
        address=OTHER,
        port=80,
        reason="default",
    )


def test_data_in_the_first_packet_is_not_faster_than_the_judgement(closed):
    closed.refused(
        f"""
        def work():
            with socket.socket() as s:
                s.settimeout(None)
                s.sendto(b"GET / HTTP/1.0\\r\\n\\r\\n", 0x20000000, ({OTHER!r}, 80))
                return s.recv(100).decode() or "closed"
        tell(work)
        """,
        address=OTHER,
        port=80,
        reason="default",
    )


def test_sockets_of_other_families_are_refused(closed):
    # The hypervisor, ciphers, express data paths, Bluetooth, CAN, TIPC, RDS, KCM, MCTP.
    closed.stopped(
        """
        for family in (40, 38, 44, 31, 29, 30, 21, 41, 45):
            for kind in (1, 2, 3, 5):
                attempt(lambda: socket.socket(family, kind))
        """,
        "EPERM",
    )


NETLINK = '''
def kernel(protocol, kind, flags, body):
    with socket.socket(16, socket.SOCK_RAW, protocol) as s:
        s.settimeout(5)
        s.send(struct.pack("IHHII", 16 + len(body), kind, flags | 5, 1, 0) + body)
        error = struct.unpack_from("i", s.recv(4096), 16)[0]
        if error:
            raise OSError(-error, "refused")
def text(kind, value):
    value = value.encode() + b"\\0"
    return struct.pack("HH", 4 + len(value), kind) + value + bytes(-len(value) % 4)
def nest(kind, value):
    return struct.pack("HH", 4 + len(value), kind) + value
address = struct.pack("HH4s", 8, 2, bytes([9, 9, 9, 9]))
lo = struct.pack("HHI", 8, 4, 1)
route = struct.pack("BBBBBBBBI", 2, 0, 0, 0, 254, 4, 254, 2, 0) + lo
def device(kind):
    body = struct.pack("BBHIII", 0, 0, 0, 0, 0, 0) + text(3, "way") + nest(18, text(1, kind))
    return lambda: kernel(0, 16, 0x600, body)
'''


def test_no_route_is_changed(closed):
    closed.stopped(
        f"{NETLINK}\nattempt(lambda: kernel(0, 24, 0x600, route))\nattempt(lambda: kernel(0, 25, 0, route))",
        "EPERM",
    )


def test_no_address_is_changed(closed):
    body = "struct.pack('BBBBI', 2, 32, 0, 0, 1) + address"
    closed.stopped(
        f"{NETLINK}\nattempt(lambda: kernel(0, 20, 0x600, {body}))\nattempt(lambda: kernel(0, 21, 0, {body}))",
        "EPERM",
    )


def test_the_packet_filter_is_not_changed(closed):
    closed.stopped(
        f"""{NETLINK}
attempt(lambda: kernel(12, 0x10, 0, struct.pack("BBH", 0, 0, 0x0a00)))
attempt(lambda: kernel(12, 0xa02, 0, struct.pack("BBH", 1, 0, 0)))
""",
        "EPERM",
    )


def test_no_device_is_made(closed):
    kinds = ["dummy", "veth", "macvlan", "ipvlan", "vlan", "vxlan", "gre", "ipip", "sit", "wireguard", "bridge"]
    closed.stopped(f"{NETLINK}\nfor kind in {kinds}:\n    attempt(device(kind))", "EPERM")


def test_no_tunnel_is_made(closed):
    closed.stopped(
        """
        import fcntl
        def work():
            tunnel = os.open("/dev/net/tun", os.O_RDWR)
            fcntl.ioctl(tunnel, 0x400454ca, struct.pack("16sH22x", b"tun0", 1))
        attempt(work)
        attempt(lambda: os.mknod("/tmp/tun", 0o20666, os.makedev(10, 200)))
        """,
        *("ENOENT", "EPERM"),
    )


def test_settings_of_the_network_are_not_changed(closed):
    names = ["ip_forward", "conf/all/route_localnet", "conf/lo/accept_local", "ip_unprivileged_port_start"]
    closed.stopped(
        f"""
        def write(name):
            with open("/proc/sys/net/ipv4/" + name, "w") as setting:
                setting.write("1")
        for name in {names}:
            attempt(lambda: write(name))
        """,
        "EROFS",
    )


def test_a_namespace_of_its_own_leads_nowhere(closed):
    # New namespaces with power over them, in which everything would be allowed.
    closed.stopped(
        """
        libc = ctypes.CDLL(None, use_errno=True)
        def unshare(flags):
            if libc.unshare(flags) != 0:
                raise OSError(ctypes.get_errno(), "unshare")
        attempt(lambda: unshare(0x40000000))
        attempt(lambda: unshare(0x10000000 | 0x40000000))
        """,
        "EPERM",
    )


def test_the_namespace_of_another_is_not_entered(closed):
    # Every process that can be seen is in the namespace of the sandbox, and none is entered.
    said = closed.says(
        """
        import glob
        libc = ctypes.CDLL(None, use_errno=True)
        seen = set()
        entered = 0
        for place in glob.glob("/proc/[0-9]*/ns/net"):
            try:
                seen.add(os.readlink(place))
                entered += libc.setns(os.open(place, os.O_RDONLY), 0x40000000) == 0
            except OSError:
                pass
        seen.add(os.readlink("/proc/self/ns/net"))
        print(len(seen), entered)
        """
    )
    assert said == ["1 0"]


def test_an_abstract_socket_of_the_host_is_not_there(closed):
    name = f"osb-ways-{os.getpid()}"
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind("\0" + name)
        listener.listen()
        closed.stopped(
            f"""
            def work():
                with socket.socket(socket.AF_UNIX) as s:
                    s.connect("\\0{name}")
            attempt(work)
            """,
            "ECONNREFUSED",
        )


def test_no_socket_file_of_the_host_is_there(closed, server):
    places = [str(it) for it in server.data_dir.rglob("*") if it.is_socket()]
    places += ["/run/docker.sock", "/var/run/docker.sock", "/run/containerd/containerd.sock"]
    places += ["/run/systemd/private", "/run/dbus/system_bus_socket", "/run/nscd/socket"]
    closed.stopped(
        f"""
        def work(place):
            with socket.socket(socket.AF_UNIX) as s:
                s.connect(place)
        for place in {places}:
            attempt(lambda: work(place))
        """,
        "ENOENT",
    )


def test_nobody_takes_the_port_of_the_outlets(closed):
    closed.stopped(
        """
        for family, own in ((socket.AF_INET, "0.0.0.0"), (socket.AF_INET6, "::"), (socket.AF_INET, "198.18.0.1")):
            for kind in (socket.SOCK_STREAM, socket.SOCK_DGRAM):
                attempt(lambda: socket.socket(family, kind).bind((own, 1)))
        """,
        "EACCES",
    )


def test_the_port_of_the_outlets_is_no_way_to_them(closed):
    closed.stopped("raw('198.18.0.1', 1); raw('127.0.0.1', 1); raw('fd53::1', 1); raw('::1', 1)", "ECONNREFUSED")


def test_whoever_sits_on_port_53_hears_no_question_of_others(closed):
    said = closed.says(
        """
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as squatter:
            squatter.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            squatter.bind(("0.0.0.0", 53))
            squatter.settimeout(1)
            lookup("a.example.com")
            tell(lambda: squatter.recv(100).hex())
        """
    )
    assert said[0].startswith(("198.18.", "198.19.")) and said[1] == "TimeoutError", said


def test_no_descriptor_of_the_outlets_is_inside(closed):
    # Whatever the first process of the sandbox holds, none of it is a transparent socket.
    said = closed.says(
        """
        import glob
        ports = set()
        for table in ("tcp", "tcp6", "udp", "udp6"):
            with open("/proc/net/" + table) as lines:
                ports |= {line.split()[9] for line in lines if ":0001 " in line}
        held = set()
        for place in glob.glob("/proc/[0-9]*/fd/*"):
            try:
                held.add(os.readlink(place))
            except OSError:
                pass
        print(len(ports), sum(f"socket:[{it}]" in held for it in ports))
        """
    )
    count, held = said[0].split()
    assert int(count) > 0 and held == "0", said
