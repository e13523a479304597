"""Ways out by address: those that no rule names, and those that nobody reaches by chance."""

from __future__ import annotations

import pytest
from internet import METADATA, OTHER, PRIVATE, PUBLIC, PUBLIC6, RESOLVER
from ways import Inmate, listening


def guarded(inmate: Inmate, address: str, kind: str, *, logged: str | None = None, port: int = 80) -> None:
    entry = {"address": logged or address, "port": port, "reason": "guard", "guarded": kind}
    inmate.refused(f"web({address!r}, {port})", protocol="tcp", **entry)


# By a policy.


def test_the_address_of_an_allowed_host_is_no_way_to_it(closed):
    closed.passes("get('http://a.example.com/')", f"{PUBLIC} a.example.com /")
    closed.refused(f"web({PUBLIC!r}, name='a.example.com')", address=PUBLIC, port=80, reason="default")


def test_a_public_address_that_no_rule_names_is_refused(closed):
    closed.refused(f"web({OTHER!r})", address=OTHER, port=80, reason="default")


@pytest.mark.parametrize("port", [21, 22, 25, 443, 853, 8080, 65535])
def test_no_other_port_of_a_forbidden_address_is_open(closed, port):
    closed.refused(f"raw({OTHER!r}, {port})", address=OTHER, port=port, reason="default")


def test_a_rule_with_a_port_opens_no_other(inmate, server, create):
    prisoner = inmate("a.example.com")
    rules = [{"action": "allow", "target": "a.example.com", "ports": [80]}]
    place = f"/v1/sandboxes/{prisoner.sandbox.id}/networkpolicy"
    assert server.call("PUT", place, {"egress": rules}).status == 200
    prisoner.passes("get('http://a.example.com/')", f"{PUBLIC} a.example.com /")
    prisoner.refused("web('a.example.com', 8080)", unseen=(PUBLIC, 8080), name="a.example.com", port=8080)


def test_a_name_does_not_open_other_protocols_than_streams(closed):
    entry = {"protocol": "udp", "name": "a.example.com", "port": 7000, "reason": "default"}
    closed.refused("udp('a.example.com', 7000)", unseen=(PUBLIC, 7000), **entry)


def test_datagrams_to_a_forbidden_address_vanish(closed):
    closed.refused(f"udp({OTHER!r}, 7000)", protocol="udp", address=OTHER, port=7000, reason="default")


def test_without_a_policy_datagrams_go_nowhere_either(opened):
    opened.refused(f"udp({OTHER!r}, 7000)", protocol="udp", address=OTHER, port=7000, reason="default")


def test_quic_is_not_passed_on(closed):
    entry = {"protocol": "udp", "name": "a.example.com", "port": 443}
    closed.refused("udp('a.example.com', 443, b'\\xc0' + bytes(1199))", unseen=(PUBLIC, 443), **entry)


def test_another_user_inside_reaches_no_more(closed):
    entry = {"address": OTHER, "port": 80, "reason": "default"}
    closed.refused(f"os.setgid(10042); os.setuid(10042); web({OTHER!r})", **entry)


def test_a_public_address_of_ipv6_is_judged_too(closed):
    closed.refused(f"web({PUBLIC6!r}, name='a.example.com')", address=PUBLIC6, port=80, reason="default")


def test_datagrams_of_ipv6_are_judged_too(closed):
    entry = {"protocol": "udp", "address": PUBLIC6, "port": 7000, "reason": "default"}
    closed.refused(f"udp({PUBLIC6!r}, 7000, family=socket.AF_INET6)", **entry)


def test_an_address_written_as_one_of_ipv6_is_the_same(closed):
    closed.refused(f"web('::ffff:{OTHER}')", address=OTHER, port=80, reason="default")


def test_a_wide_rule_opens_no_guarded_address(inmate):
    prisoner = inmate("0.0.0.0/0", "::/0")
    prisoner.passes(f"get('http://{OTHER}/')", f"{OTHER} {OTHER} /")
    guarded(prisoner, METADATA, "metadata")
    guarded(prisoner, PRIVATE, "private")
    guarded(prisoner, "45.77.0.1", "host")


def test_a_rule_that_denies_an_address_holds_for_names_that_lead_there(inmate):
    prisoner = inmate("*.example.com", deny=(f"{PUBLIC}/32",))
    entry = {"name": "a.example.com", "port": 80, "reason": "rule", "rule": f"{PUBLIC}/32"}
    prisoner.refused("web('a.example.com')", unseen=(PUBLIC, 80), **entry)


# Without a policy: the public Internet, and nothing else.


def test_the_metadata_service_is_refused(opened):
    opened.passes(f"get('http://{OTHER}/')", f"{OTHER} {OTHER} /")
    guarded(opened, METADATA, "metadata")


@pytest.mark.parametrize("address", ["100.100.100.200", "168.63.129.16", "192.0.0.192", "169.254.170.2"])
def test_the_metadata_services_of_other_clouds_are_refused(opened, address):
    guarded(opened, address, "metadata")


@pytest.mark.parametrize("address", ["fd00:ec2::254", "fd20:ce::254"])
def test_the_metadata_service_by_ipv6_is_refused(opened, address):
    guarded(opened, address, "metadata")


@pytest.mark.parametrize("address", [PRIVATE, "172.16.0.1", "192.168.1.1", "10.255.255.255"])
def test_a_private_address_is_refused(opened, address):
    guarded(opened, address, "private")


def test_an_address_that_a_provider_shares_is_refused(opened):
    guarded(opened, "100.64.0.10", "private")


def test_a_link_local_address_is_refused(opened):
    guarded(opened, "169.254.7.7", "link-local")


def test_a_link_local_address_of_ipv6_without_a_zone_is_no_address(opened):
    opened.stopped("web('fe80::1')", "EINVAL")


def test_a_link_local_address_with_a_zone_is_refused(opened):
    opened.refused("web('fe80::1%lo', name='x')", address="fe80::1", port=80, guarded="link-local")


def test_a_unique_local_address_of_ipv6_is_refused(opened):
    guarded(opened, "fd12:3456::1", "private")


def test_a_site_local_address_of_ipv6_is_refused(opened):
    guarded(opened, "fec0::1", "private")


def test_a_private_address_written_as_one_of_ipv6_is_refused(opened):
    guarded(opened, f"::ffff:{PRIVATE}", "private", logged=PRIVATE)


def test_a_private_address_in_the_old_form_of_ipv6_is_refused(opened):
    guarded(opened, "::10.77.0.10", "special", logged="::a4d:a")


def test_a_private_address_behind_6to4_is_refused(opened):
    guarded(opened, "2002:a4d:a::1", "special")


def test_a_private_address_behind_teredo_is_refused(opened):
    guarded(opened, "2001:0:a4d:a::1", "special")


def test_the_metadata_service_behind_a_translator_is_refused(opened):
    guarded(opened, "64:ff9b::a9fe:a9fe", "metadata")


def test_a_private_address_behind_a_translator_of_the_network_is_refused(opened):
    guarded(opened, "64:ff9b:1::a4d:a", "special")


def test_a_group_of_hosts_is_not_reached(opened, seen):
    # The kernel has no way there: nothing of it arrives at the server.
    text = "udp('224.0.0.251', 5353); udp('ff02::fb', 5353, family=socket.AF_INET6)"
    opened.stopped(text, "TimeoutError", "EINVAL")
    assert not seen.packets["224.0.0.251", 5353] and not seen.packets["ff02::fb", 5353]


def test_everybody_at_once_is_refused(opened):
    opened.refused("udp('255.255.255.255', 7000)", protocol="udp", address="255.255.255.255", port=7000)


def test_reserved_addresses_are_refused(opened):
    guarded(opened, "240.0.0.1", "special")


@pytest.mark.parametrize("address", ["0.0.0.0", "::"])
def test_no_address_at_all_is_the_sandbox_itself(opened, address):
    with listening("0.0.0.0", 7911) as came:
        opened.stopped(f"raw({address!r}, 7911)", "ECONNREFUSED")
        assert not came


def test_addresses_of_this_network_are_refused(opened):
    guarded(opened, "0.1.2.3", "special")


# The host.


@pytest.mark.parametrize("address", ["45.77.0.1", "2a0e:77::1", "172.17.0.1"])
def test_a_service_of_the_host_is_refused_at_every_address_of_the_host(opened, address):
    with listening("::" if ":" in address else "0.0.0.0", 7912) as came:
        guarded(opened, address, "host", port=7912)
        assert not came


def test_the_loopback_of_the_host_is_not_that_of_the_sandbox(opened):
    with listening("127.0.0.1", 7913) as came:
        text = "raw('127.0.0.1', 7913); raw('127.1.2.3', 7913); raw('localhost', 7913)"
        opened.stopped(text, "ECONNREFUSED")
        assert not came


def test_the_loopback_of_the_host_by_ipv6_is_not_either(opened):
    with listening("::1", 7913) as came:
        opened.stopped("raw('::1', 7913); raw('::ffff:127.0.0.1', 7913)", "ECONNREFUSED")
        assert not came


def test_a_container_beside_is_refused(opened):
    guarded(opened, "172.17.0.2", "private")


def test_the_servers_own_api_is_refused(opened, server):
    guarded(opened, "45.77.0.1", "host", port=server.port)
    opened.stopped(f"raw('127.0.0.1', {server.port})", "ECONNREFUSED")


def test_the_servers_resolver_is_no_way_out_at_other_ports(closed):
    closed.refused(f"web({RESOLVER!r})", address=RESOLVER, port=80, reason="default")


def test_the_sandboxs_resolver_is_no_way_out_at_other_ports(closed):
    closed.refused("web('198.18.0.2')", address="198.18.0.2", port=80, guarded="special")
