"""Ways out by name: questions that carry messages, resolvers of others, and names that lead astray."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from conftest import policy_of, shared
from internet import METADATA, OTHER, PRIVATE, PUBLIC, RESOLVER
from served import Server, wait_for
from ways import Inmate, listening
from witness import Witness

NO_SUCH_NAME, REFUSED, BAD_FORMAT = "3", "5", "1"


@pytest.fixture(scope="module")
def led(server: Server, seen: Witness) -> Iterator[Inmate]:
    """A sandbox that reaches all names of a domain, whose owner leads them where he likes."""
    yield from shared(server, seen, policy_of("*.example.com"))


def unanswered(inmate: Inmate, text: str, code: str, **entry: object) -> None:
    """Questions that are answered with this code and no record, are in the log, and are asked of nobody."""
    before, asked = inmate.times(protocol="dns", **entry), inmate.witness.packets[RESOLVER, 53]
    said = inmate.says(text)
    assert said and all(line.split()[:2] == [code, "0"] for line in said), said
    assert inmate.times(protocol="dns", **entry) == before + len(said)
    assert inmate.witness.packets[RESOLVER, 53] == asked


def astray(inmate: Inmate, name: str, place: tuple[str, int], guarded: str) -> None:
    entry = {"protocol": "tcp", "name": name, "reason": "guard", "guarded": guarded}
    inmate.refused(f"web({name!r}, {place[1]})", unseen=place, **entry)


# Questions.


def test_a_forbidden_name_does_not_exist_and_nobody_is_asked(closed, seen):
    unanswered(closed, "ask('secret.other.org', 1)", NO_SUCH_NAME, name="secret.other.org", reason="default")
    assert not seen.questions["secret.other.org"]


def test_another_resolver_is_not_reached(closed, seen):
    unanswered(closed, "ask('other.org', 1, '8.8.8.8')", NO_SUCH_NAME, name="other.org")
    assert not seen.packets["8.8.8.8", 53]


def test_another_resolver_by_stream_is_not_reached(closed, seen):
    unanswered(closed, "ask('other.org', 1, '8.8.8.8', tcp=True)", NO_SUCH_NAME, name="other.org")
    assert not seen.packets["8.8.8.8", 53]


def test_another_resolver_by_ipv6_is_not_reached(closed, seen):
    before = closed.times(protocol="dns", name="other.org")
    (said,) = closed.says("udp('2001:4860:4860::8888', 53, query('other.org'), socket.AF_INET6)")
    answer = bytes.fromhex(said.removeprefix("heard "))
    assert answer[3] & 15 == 3 and closed.times(protocol="dns", name="other.org") == before + 1
    assert not seen.packets["2001:4860:4860::8888", 53]


def test_a_resolver_over_tls_is_refused(closed):
    closed.refused("raw('9.9.9.9', 853)", address="9.9.9.9", port=853, reason="default")


def test_a_resolver_over_quic_is_refused(closed):
    closed.refused("udp('94.140.14.14', 853)", protocol="udp", address="94.140.14.14", port=853)


def test_a_resolver_over_https_by_address_is_refused(closed):
    closed.refused("raw('8.8.8.8', 443, hello('dns.google'))", address="8.8.8.8", port=443)


def test_a_resolver_over_https_by_name_is_refused(closed):
    closed.refused("get('https://dns.google/')", protocol="dns", name="dns.google", unseen=("8.8.8.8", 443))


def test_every_kind_of_question_for_a_forbidden_name_is_refused(closed):
    kinds = "(1, 2, 5, 6, 10, 12, 15, 16, 28, 33, 35, 43, 48, 52, 64, 65, 256, 257, 65280)"
    text = f"for kind in {kinds}: ask('x.other.org', kind)"
    unanswered(closed, text, NO_SUCH_NAME, name="x.other.org", reason="default")


def test_a_transfer_of_a_domain_is_refused(closed):
    text = "ask('a.example.com', 252); ask('a.example.com', 251); ask('a.example.com', 252, tcp=True)"
    unanswered(closed, text, REFUSED, name="a.example.com")


def test_a_question_for_everything_is_refused(closed):
    unanswered(closed, "ask('a.example.com', 255)", REFUSED, name="a.example.com")


def test_no_record_leads_past_the_address_of_a_name(closed):
    # HTTPS and SVCB have addresses in them, and keys with which names in handshakes are hidden.
    said = closed.says("ask('a.example.com', 65); ask('a.example.com', 64)")
    assert [line.split()[:2] for line in said] == [["0", "0"], ["0", "0"]]


def test_a_long_message_in_a_name_is_refused(closed, seen):
    name = ".".join(["m" * 50, "n" * 50, "wild.example.com"])
    unanswered(closed, f"ask({name!r}, 1); ask({name!r}, 16)", REFUSED, name=name, reason="limit")
    assert not seen.questions[name]


def test_many_messages_in_names_are_refused(inmate, seen):
    prisoner = inmate("*.wild.example.com")
    said = prisoner.says("for n in range(300): ask(f'm{n}.wild.example.com', 16 if n % 2 else 1)")
    passed = sum(line.split()[0] == "0" for line in said)
    asked = {it for it in seen.questions if it.startswith("m") and it.endswith(".wild.example.com")}
    # What came back with time while it ran is little.
    assert len(said) == 300 and passed < 280 and len(asked) <= passed
    assert prisoner.times(protocol="dns", reason="limit") >= 20


def test_messages_of_unusual_kinds_are_counted_too(inmate, seen):
    prisoner = inmate("*.wild.example.com")
    said = prisoner.says("for n in range(300): ask('same.wild.example.com', 10)")
    refused = prisoner.times(protocol="dns", reason="limit")
    assert refused >= 20, said
    assert 0 < seen.questions["same.wild.example.com"] <= 300 - refused


def test_the_spelling_of_a_name_carries_no_message(closed, seen):
    closed.says("ask('a.EXAMple.CoM', 16)")
    asked = {it for it in seen.questions if it.lower() == "a.example.com"}
    assert asked == {"a.example.com"}


def test_options_of_a_question_carry_no_message(closed, seen):
    said = closed.says(
        """
        option = struct.pack("!HH", 65001, 16) + b"osb-ways-message"
        extra = b"\\0" + struct.pack("!HHIH", 41, 1232, 0, len(option)) + option
        asked = query("a.example.com", 16)
        udp("1.1.1.1", 53, asked[:10] + b"\\0\\1" + asked[12:] + extra)
        """
    )
    assert b"hello".hex() in said[0]
    assert b"osb-ways-message" not in seen.heard


def test_what_follows_a_question_carries_no_message(closed, seen):
    said = closed.says("udp('1.1.1.1', 53, query('a.example.com', 16, tail=b'osb-ways-tail'))")
    assert b"hello".hex() in said[0]
    assert b"osb-ways-tail" not in seen.heard


def malformed(inmate: Inmate, question: str) -> None:
    before, asked = inmate.times(protocol="dns"), inmate.witness.packets[RESOLVER, 53]
    (said,) = inmate.says(f"udp('1.1.1.1', 53, {question})")
    if said != "TimeoutError":
        answer = bytes.fromhex(said.removeprefix("heard "))
        assert answer[3] & 15 != 0 and answer[6:8] == b"\0\0", said
    assert inmate.times(protocol="dns") == before + 1
    assert inmate.witness.packets[RESOLVER, 53] == asked


def test_two_questions_in_one_are_refused(closed, seen):
    more = r"tail=b'\5other\3org\0\0\1\0\1'"
    malformed(closed, f"query('a.example.com', count=2, {more})")


def test_a_name_that_refers_to_itself_is_refused(closed):
    malformed(closed, r"struct.pack('!HHHHHH', 7, 0x100, 1, 0, 0, 0) + b'\xc0\x0c\0\1\0\1'")


def test_a_name_with_a_dot_in_a_label_is_refused(closed):
    # Written with dots it looks like a name that is allowed.
    malformed(closed, r"struct.pack('!HHHHHH', 7, 0x100, 1, 0, 0, 0) + b'\x0da.example.com\0\0\1\0\1'")


def test_a_name_with_a_zero_in_it_is_refused(closed):
    malformed(closed, r"struct.pack('!HHHHHH', 7, 0x100, 1, 0, 0, 0) + b'\3a\0b\7example\3com\0\0\1\0\1'")


def test_a_name_of_another_class_is_refused(closed):
    malformed(closed, "query('a.example.com')[:-1] + b'\\3'")


def test_an_update_is_refused(closed):
    malformed(closed, "b'\\0\\7\\x28\\0' + query('a.example.com')[4:]")


def test_a_message_that_is_cut_off_is_refused(closed):
    malformed(closed, "query('a.example.com')[:-5]")


def test_an_answer_instead_of_a_question_is_passed_over(closed):
    malformed(closed, "b'\\0\\7\\x81\\x80' + query('a.example.com')[4:]")


# Names that lead astray, although they are allowed.


def test_a_name_that_leads_to_a_private_address_is_refused(led):
    astray(led, "private.example.com", (PRIVATE, 80), "private")


def test_a_name_that_leads_to_the_metadata_service_is_refused(led):
    astray(led, "metadata.example.com", (METADATA, 80), "metadata")


def test_an_alias_of_a_name_that_leads_there_is_refused(led):
    astray(led, "alias.example.com", (METADATA, 80), "metadata")


def test_a_name_that_leads_to_a_loopback_is_refused(led):
    with listening("127.0.0.1", 7914) as came:
        astray(led, "loopback.example.com", ("127.0.0.1", 7914), "host")
        assert not came


def test_a_name_that_leads_to_the_host_is_refused(led):
    with listening("45.77.0.1", 7914) as came:
        astray(led, "home.example.com", ("45.77.0.1", 7914), "host")
        assert not came


def test_a_name_that_leads_to_a_link_local_address_is_refused(led):
    astray(led, "link.example.com", ("169.254.7.7", 80), "link-local")


def test_a_name_that_leads_to_a_shared_address_is_refused(led):
    astray(led, "shared.example.com", ("100.64.0.10", 80), "private")


def test_a_name_that_leads_to_no_address_is_refused(led):
    with listening("127.0.0.1", 7914) as came:
        astray(led, "zero.example.com", ("0.0.0.0", 7914), "host")
        assert not came


def test_a_name_that_leads_to_everybody_is_refused(led):
    astray(led, "everybody.example.com", ("255.255.255.255", 80), "host")


def test_a_name_that_leads_to_a_group_is_refused(led):
    astray(led, "group.example.com", ("224.0.0.251", 80), "special")


def test_a_name_that_leads_to_an_address_for_names_is_refused(led):
    astray(led, "synthetic.example.com", ("198.18.1.0", 80), "special")


def test_a_name_that_leads_to_a_written_out_private_address_is_refused(led):
    astray(led, "mapped.example.com", (PRIVATE, 80), "private")


def test_a_name_that_leads_behind_a_translator_is_refused(led):
    astray(led, "translated.example.com", ("64:ff9b::a9fe:a9fe", 80), "metadata")


def test_a_name_that_leads_to_the_metadata_service_of_ipv6_is_refused(led):
    astray(led, "unique.example.com", ("fd00:ec2::254", 80), "metadata")


def test_a_name_that_leads_elsewhere_later_is_refused_then(led, seen):
    name = "rebinding.example.com"
    before = seen.packets[METADATA, 80]
    led.passes(f"get('http://{name}/')", f"{PUBLIC} {name} /")
    address = led.says(f"lookup({name!r}, socket.AF_INET)")[0]

    def judged() -> bool:
        # By the address that stands for the name, so that no question is asked inside.
        led.says(f"web({address!r}, name={name!r})")
        return led.times(protocol="tcp", name=name, reason="guard", guarded="metadata") > 0

    wait_for("the second answer is there", judged)
    assert seen.packets[METADATA, 80] == before


def test_an_answer_about_another_name_is_none(led, seen):
    before = seen.packets[OTHER, 80]
    assert led.says("web('stranger.example.com')") == ["gaierror"]
    assert seen.packets[OTHER, 80] == before


def test_an_alias_of_a_forbidden_name_is_refused(inmate):
    prisoner = inmate("*.example.com", deny=("other.org",))
    entry = {"name": "denied-alias.example.com", "port": 80, "reason": "rule", "rule": "other.org"}
    prisoner.refused("web('denied-alias.example.com')", unseen=(OTHER, 80), **entry)


def test_a_redirect_to_the_metadata_service_is_refused(opened):
    entry = {"address": METADATA, "port": 80, "guarded": "metadata"}
    opened.refused(f"get('http://a.example.com/to/http://{METADATA}/')", **entry)


def test_a_redirect_to_a_forbidden_name_is_refused(closed):
    entry = {"protocol": "dns", "name": "other.org", "reason": "default"}
    closed.refused("get('http://a.example.com/to/http://other.org/')", unseen=(OTHER, 80), **entry)


def test_a_redirect_to_a_forbidden_address_is_refused(closed):
    entry = {"address": OTHER, "port": 80, "reason": "default"}
    closed.refused(f"get('http://a.example.com/to/http://{OTHER}/')", **entry)


# Addresses that stand for names.


@pytest.mark.parametrize("address", ["198.18.77.77", "198.19.255.255", "fd53:0:0:1::7777", "fd53:0:0:1:8000::"])
def test_an_address_for_a_name_that_was_never_asked_for_is_refused(closed, address):
    closed.refused(f"web({address!r})", address=address, port=80, reason="default")


def test_the_addresses_of_another_sandboxs_names_are_no_way_out(inmate):
    one, other = inmate("a.example.com"), inmate("b.example.com")
    (address,) = one.says("lookup('a.example.com', socket.AF_INET)")
    other.refused(f"web({address!r}, name='a.example.com')", address=address, port=80, reason="default")


def test_the_address_of_a_name_is_void_once_the_name_is_forbidden(inmate):
    prisoner = inmate("a.example.com")
    (address,) = prisoner.says("lookup('a.example.com', socket.AF_INET)")
    prisoner.sandbox.delete_egress_rules(["a.example.com"])
    entry = {"protocol": "tcp", "name": "a.example.com", "port": 80, "reason": "default"}
    prisoner.refused(f"web({address!r}, name='a.example.com')", unseen=(PUBLIC, 80), **entry)


def test_a_change_of_the_policy_gives_no_address_to_another_name(inmate):
    prisoner = inmate("a.example.com", "b.example.com")
    before = prisoner.says("lookup('a.example.com', socket.AF_INET)")
    prisoner.sandbox.delete_egress_rules(["b.example.com"])
    text = f"get('http://{before[0]}/', Host='a.example.com')"
    prisoner.passes(text, f"{PUBLIC} a.example.com /")
