"""Ways out through a host that is allowed, by asking it for another one."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from conftest import policy_of, shared
from internet import OTHER, PUBLIC
from peers import GOOD, Peer
from served import Server
from ways import Inmate
from witness import Witness

#: What a hello may look like in which the name of a host is hidden.
ENCRYPTED = r"b'\xfe\x0d\0\x0a\0\0\1\0\1\7\0\0\0\0'"


#: How a request for another is refused at the host that is allowed: its head is in the log, and not a
#: byte of it on the wire.
AT_ANOTHER = {"name": "a.example.com", "port": 80, "reason": "mismatch", "untold": (PUBLIC, 80)}


@pytest.fixture(scope="module")
def guest(server: Server, seen: Witness, peer: Peer) -> Iterator[Inmate]:
    """A sandbox that reaches a host that speaks TLS, and one that does not."""
    yield from shared(server, seen, policy_of(GOOD, "a.example.com"))


def shaken(guest: Inmate, peer: Peer, hello: str, *, port: int = 443) -> None:
    """A hello to the host that is allowed, for another: it is refused, and never arrives."""
    asked = len(peer.asked)
    text = f"raw({GOOD!r}, {port}, {hello})"
    entry = {"protocol": "tcp", "name": GOOD, "port": port, "reason": "mismatch"}
    guest.refused(text, untold=(OTHER, port), **entry)
    assert len(peer.asked) == asked, peer.asked[asked:]


def asked_for(guest: Inmate, head: str) -> None:
    """The head of a request to the host that is allowed, for another."""
    text = f"raw('a.example.com', 80, {head.encode()!r})"
    guest.refused(text, protocol="tcp", **AT_ANOTHER)


def test_the_host_itself_is_reached(guest, peer, seen):
    asked, told = len(peer.asked), seen.told[OTHER, 443]
    guest.says(f"raw({GOOD!r}, 443, hello({GOOD!r}))")
    assert peer.asked[asked:] == [GOOD] and seen.told[OTHER, 443] > told


def test_a_handshake_for_a_forbidden_host_is_refused(guest, peer):
    shaken(guest, peer, "hello('other.org')")


def test_a_handshake_for_another_allowed_host_is_refused(guest, peer):
    shaken(guest, peer, "hello('a.example.com')")


def test_a_handshake_without_a_name_at_a_forbidden_address_is_refused(guest, peer):
    asked = len(peer.asked)
    entry = {"address": OTHER, "port": 443, "reason": "default"}
    guest.refused(f"raw({OTHER!r}, 443, hello(None))", **entry)
    assert len(peer.asked) == asked


def test_a_handshake_with_a_hidden_name_is_judged_by_the_open_one(guest, peer):
    shaken(guest, peer, f"extended('cloudflare-ech.com', {ENCRYPTED})")


@pytest.mark.parametrize("name", ["OTHER.org", "other.org.", "xn--n3h.example.com", "peer.example.com.evil.org"])
def test_other_spellings_of_a_forbidden_host_are_refused(guest, peer, name):
    shaken(guest, peer, f"hello('x' * {len(name)}).replace(b'x' * {len(name)}, {name.encode()!r})")


def test_a_name_with_a_zero_in_a_handshake_is_refused(guest, peer):
    shaken(guest, peer, r"hello('x' * 26).replace(b'x' * 26, b'peer.example.com\0.other.org')")


def test_an_address_in_a_handshake_is_refused(guest, peer):
    shaken(guest, peer, "hello('x' * 10).replace(b'x' * 10, b'45.77.0.11')")


def test_two_names_in_a_handshake_are_refused(guest, peer):
    second = r"b'\0\0\0\x0e\0\x0c\0\0\x09other.org'"
    shaken(guest, peer, f"extended({GOOD!r}, {second})")


def test_a_handshake_in_many_pieces_is_put_together(guest, peer):
    asked = len(peer.asked)
    guest.refused(
        f"""
        def work():
            with socket.create_connection(({GOOD!r}, 443)) as s:
                s.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                whole = hello("other.org")
                for at in range(0, len(whole), 16):
                    s.sendall(whole[at:at + 16])
                    time.sleep(0.005)
                return s.recv(100) and "heard"
        tell(work)
        """,
        untold=(OTHER, 443),
        name=GOOD,
        port=443,
        reason="mismatch",
    )
    assert len(peer.asked) == asked


def test_a_handshake_in_many_records_is_put_together(guest, peer):
    pieces = "b''.join(b'\\x16\\3\\1' + struct.pack('!H', len(w[i:i+9])) + w[i:i+9] for i in range(0, len(w), 9))"
    shaken(guest, peer, f"(lambda w: {pieces})(hello('other.org')[5:])")


def test_a_handshake_behind_another_record_is_refused(guest, peer):
    # A warning, or the change of a cipher: some servers pass over what comes too early.
    shaken(guest, peer, r"b'\x15\3\1\0\2\1\x5a' + hello('other.org')")
    shaken(guest, peer, r"b'\x14\3\1\0\1\1' + hello('other.org')")


def test_a_handshake_without_end_is_refused(guest, peer):
    shaken(guest, peer, r"b'\x16\3\1\x3f\xff\1\0\x3f\xfb\3\3' + bytes(20000)")


def test_a_handshake_of_an_old_version_is_read_too(guest, peer):
    shaken(guest, peer, r"b'\x16\3\0' + hello('other.org')[3:9] + b'\3\1' + hello('other.org')[11:]")


def test_a_handshake_on_the_port_of_http_is_read_too(guest):
    guest.refused("raw('a.example.com', 80, hello('other.org'))", **AT_ANOTHER)


def test_a_request_on_the_port_of_tls_is_read_too(guest, peer):
    entry = {"name": GOOD, "port": 443, "reason": "mismatch"}
    guest.refused(f"web({GOOD!r}, 443, 'other.org')", untold=(OTHER, 443), **entry)


def test_a_handshake_on_any_port_is_read_too(guest):
    entry = {"name": "a.example.com", "port": 8080, "reason": "mismatch"}
    guest.refused("raw('a.example.com', 8080, hello('other.org'))", untold=(PUBLIC, 8080), **entry)


# Requests.


def test_a_request_for_the_host_itself_is_passed_on(guest, seen):
    head = b"GET /as-it-should-be HTTP/1.1\r\nHost: a.example.com\r\n\r\n"
    heard, told = len(seen.heard), seen.told[PUBLIC, 80]
    guest.says(f"raw('a.example.com', 80, {head!r})")
    # So that whoever asks the witness whether others arrived learns something.
    assert seen.told[PUBLIC, 80] == told + len(head) and head in seen.heard[heard:]


def test_a_request_for_a_forbidden_host_is_refused(guest):
    asked_for(guest, "GET / HTTP/1.1\r\nHost: other.org\r\n\r\n")


def test_a_request_for_another_allowed_host_is_refused(guest):
    asked_for(guest, f"GET / HTTP/1.1\r\nHost: {GOOD}\r\n\r\n")


def test_a_request_for_an_address_is_refused(guest):
    asked_for(guest, f"GET / HTTP/1.1\r\nHost: {OTHER}\r\n\r\n")


def test_a_request_with_two_hosts_is_refused(guest):
    asked_for(guest, "GET / HTTP/1.1\r\nHost: a.example.com\r\nHost: other.org\r\n\r\n")


def test_a_request_whose_target_names_another_host_is_refused(guest):
    asked_for(guest, "GET http://other.org/ HTTP/1.1\r\nHost: a.example.com\r\n\r\n")


def test_a_tunnel_to_a_forbidden_host_is_refused(guest):
    asked_for(guest, "CONNECT other.org:443 HTTP/1.1\r\nHost: other.org:443\r\n\r\n")


def test_an_allowed_host_is_no_proxy_to_a_forbidden_one(guest):
    text = (
        "handler = urllib.request.ProxyHandler({'http': 'http://a.example.com:80'})\n"
        "tell(lambda: urllib.request.build_opener(handler).open('http://other.org/').read())\n"
    )
    guest.refused(text, **AT_ANOTHER)


def test_a_websocket_to_a_forbidden_host_is_refused(guest):
    more = "Upgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Key: x\r\n"
    asked_for(guest, f"GET / HTTP/1.1\r\nHost: other.org\r\n{more}\r\n")


def test_a_host_whose_name_ends_in_a_blank_is_refused(guest):
    asked_for(guest, "GET / HTTP/1.1\r\nHost : other.org\r\nHost: a.example.com\r\n\r\n")


def test_a_host_in_a_continued_line_is_refused(guest):
    asked_for(guest, "GET / HTTP/1.1\r\nX: y\r\n Host: other.org\r\nHost: a.example.com\r\n\r\n")


def test_blank_lines_before_a_request_hide_nothing(guest):
    asked_for(guest, "\r\n\r\nGET / HTTP/1.1\r\nHost: other.org\r\n\r\n")


def test_other_blanks_in_a_request_hide_nothing(guest):
    asked_for(guest, "GET\t/\tHTTP/1.1\r\nHost: other.org\r\n\r\n")


def test_another_version_in_a_request_hides_nothing(guest):
    asked_for(guest, "GET / HTTP/3.1\r\nHost: other.org\r\n\r\n")


def test_a_request_that_ends_with_its_connection_is_read_too(guest):
    guest.refused(
        """
        def work():
            with socket.create_connection(("a.example.com", 80)) as s:
                s.sendall(b"GET / HTTP/1.1\\r\\nHost: other.org\\r\\n")
                s.shutdown(socket.SHUT_WR)
                return s.recv(100) and "heard"
        tell(work)
        """,
        **AT_ANOTHER,
    )


def test_a_request_in_many_pieces_is_put_together(guest):
    guest.refused(
        """
        def work():
            with socket.create_connection(("a.example.com", 80)) as s:
                for part in (b"G", b"ET / HT", b"TP/1.1\\r\\nHo", b"st: oth", b"er.org\\r\\n\\r", b"\\n"):
                    s.sendall(part)
                    time.sleep(0.02)
                return s.recv(100) and "heard"
        tell(work)
        """,
        **AT_ANOTHER,
    )


def test_a_head_without_end_is_refused(guest):
    asked_for(guest, "GET / HTTP/1.1\r\n" + "X: y\r\n" * 3000 + "Host: other.org\r\n\r\n")


def test_a_forbidden_host_is_not_asked_for_at_an_allowed_address(inmate):
    prisoner = inmate(OTHER, deny=("other.org",))
    prisoner.passes(f"get('http://{OTHER}/')", f"{OTHER} {OTHER} /")
    entry = {"address": OTHER, "port": 80, "reason": "rule", "rule": "other.org"}
    prisoner.refused(f"web({OTHER!r}, name='other.org')", untold=(OTHER, 80), **entry)
