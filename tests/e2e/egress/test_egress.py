"""What leaves a sandbox, and what does not: each test is named after what it shows."""

from __future__ import annotations

import json
import os
import subprocess
import threading
import time

import pytest
from internet import METADATA, OTHER, PRIVATE, PUBLIC, PUBLIC6
from opensandbox import SandboxSync
from opensandbox.models.sandboxes import NetworkRule
from served import Server, osb, wait_for
from tries import REFUSED, Watch, one, run


def client(server: Server) -> dict[str, str]:
    """What the command line needs to know."""
    known = {"OPEN_SANDBOX_DOMAIN": server.domain, "OPEN_SANDBOX_API_KEY": server.api_key}
    return os.environ | known


def osb_says(server: Server, *words: str) -> subprocess.CompletedProcess[str]:
    command = [osb(), "egress", *words]
    return subprocess.run(command, env=client(server), check=True, capture_output=True, text=True)


def test_a_name_that_is_allowed_is_reached(policy, log):
    sandbox = policy("a.example.com")
    assert one(sandbox, "get('http://a.example.com/x')") == f"{PUBLIC} a.example.com /x"
    ended = lambda: [it for it in log(sandbox) if it["protocol"] == "tcp" and it.get("end")]
    decision = wait_for("the connection's end is known", ended)[0]
    assert decision["name"] == "a.example.com" and decision["address"] == PUBLIC
    assert decision["action"] == "allow" and decision["rule"] == "a.example.com"
    assert decision["end"]["sentBytes"] > 0 and decision["end"]["receivedBytes"] > 0


def test_a_name_that_is_not_allowed_does_not_exist(policy, log):
    sandbox = policy("a.example.com")
    assert one(sandbox, "get('http://other.org/')") == "gaierror"
    denied = [it for it in log(sandbox) if it.get("name") == "other.org"]
    assert denied and denied[0]["action"] == "deny" and denied[0]["reason"] == "default"


def test_a_domain_allows_what_is_below_and_not_itself(policy):
    sandbox = policy("*.example.com")
    lines = run(sandbox, "get('http://b.example.com/'); get('http://example.com/')")
    assert lines == [f"{PUBLIC} b.example.com /", "gaierror"]


def test_names_have_addresses_that_nobody_has(policy):
    sandbox = policy("a.example.com", "b.example.com")
    first, second = run(sandbox, "lookup('a.example.com'); lookup('b.example.com')")
    assert first != second and first.startswith(("198.18.", "198.19.")) and second.startswith(("198.18.", "198.19."))


def test_addresses_are_reached_only_by_rules_about_addresses(policy):
    closed, opened = policy("a.example.com"), policy(f"{PUBLIC}/32")
    assert one(closed, f"get('http://{PUBLIC}/')") in REFUSED
    assert one(opened, f"get('http://{PUBLIC}/')") == f"{PUBLIC} {PUBLIC} /"
    assert one(opened, f"get('http://{OTHER}/')") in REFUSED


def test_without_a_policy_the_public_is_reached_and_nothing_else(create, server):
    sandbox = create()
    assert one(sandbox, "get('http://other.org/')") == f"{OTHER} other.org /"
    assert one(sandbox, f"get('http://{PUBLIC}/')") == f"{PUBLIC} {PUBLIC} /"
    own = f"45.77.0.1:{server.port}"
    for place in (PRIVATE, METADATA, own, "10.77.0.1", "private.example.com", "metadata.example.com"):
        assert one(sandbox, f"get('http://{place}/')") in REFUSED, place


@pytest.mark.parametrize("name", ["private", "metadata", "loopback", "mapped"])
def test_a_name_leads_to_no_guarded_address(policy, log, name):
    sandbox = policy("*.example.com")
    assert one(sandbox, f"get('http://{name}.example.com/')") in REFUSED
    denied = [it for it in log(sandbox) if it["action"] == "deny"]
    assert [it["reason"] for it in denied] == ["guard"]


def test_of_several_addresses_only_those_are_used_that_are_not_guarded(policy):
    sandbox = policy("mixed.example.com")
    assert one(sandbox, "get('http://mixed.example.com/')") == f"{PUBLIC} mixed.example.com /"


def test_the_operator_may_open_a_private_name(policy):
    sandbox = policy("registry.corp.example")
    expected = f"{PRIVATE} registry.corp.example /"
    assert one(sandbox, "get('http://registry.corp.example/')") == expected


def test_a_request_for_another_host_is_refused(policy, log):
    sandbox = policy("a.example.com")
    assert one(sandbox, "get('http://a.example.com/', Host='b.example.com')") in REFUSED
    mismatch = lambda: [
        it for it in log(sandbox) if it.get("end", {}).get("cutBy", {}).get("reason") == "mismatch"
    ]
    wait_for("the mismatch is told", mismatch)


def test_a_handshake_for_another_host_is_refused(policy, log):
    sandbox = policy("a.example.com")
    lines = run(
        sandbox,
        """
        def shake(name):
            context = ssl._create_unverified_context()
            with socket.create_connection(("a.example.com", 8080)) as stream:
                context.wrap_socket(stream, server_hostname=name)
        tell(lambda: shake("b.example.com"))
        tell(lambda: shake("a.example.com"))
        """,
    )
    # The second reached the server, which does not speak TLS at all.
    assert lines[0] in REFUSED and lines[1] == "SSLError", lines


def test_a_host_that_speaks_first_is_heard(policy):
    sandbox = policy("a.example.com")
    assert one(sandbox, "raw('a.example.com', 22)") == "SSH-2.0-banner"


def test_hosts_of_ipv6_are_reached_by_programs_of_both_families(policy):
    sandbox = policy("six.example.com")
    expected = f"{PUBLIC6} six.example.com /"
    assert one(sandbox, "get('http://six.example.com/')") == expected
    four, six = run(
        sandbox,
        "lookup('six.example.com', socket.AF_INET); lookup('six.example.com', socket.AF_INET6)",
    )
    assert four.startswith(("198.18.", "198.19.")) and six.startswith("fd53:")


def test_literal_addresses_of_ipv6_are_judged_too(policy):
    assert one(policy(PUBLIC6), f"get('http://[{PUBLIC6}]/')").startswith(PUBLIC6)
    assert one(policy("a.example.com"), f"get('http://[{PUBLIC6}]/')") in REFUSED


def test_a_dead_address_does_not_hide_a_live_one(policy):
    sandbox = policy("dead.example.com")
    assert one(sandbox, "get('http://dead.example.com/')") == f"{PUBLIC} dead.example.com /"


def test_questions_are_answered_at_any_address_and_by_stream(policy):
    sandbox = policy("a.example.com")
    lines = run(
        sandbox,
        """
        ask("a.example.com", 1, "1.2.3.4")
        ask("a.example.com", 1, "9.9.9.9", tcp=True)
        ask("a.example.com", 16)
        ask("other.org", 16)
        ask("a.example.com", 255)
        ask("a.example.com", 65)
        """,
    )
    codes = [tuple(line.split()[:2]) for line in lines]
    assert codes == [("0", "1"), ("0", "1"), ("0", "1"), ("3", "0"), ("5", "0"), ("0", "0")]
    assert lines[0] == lines[1] and b"hello".hex() in lines[2]


def test_datagrams_reach_only_addresses_that_a_rule_names(policy, log):
    send = """
        def work(to):
            with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as s:
                s.settimeout(1)
                s.connect((to, 7000))
                s.send(b"hi")
                return s.recv(100).decode()
        """
    sandbox = policy("a.example.com", PUBLIC)
    lines = run(sandbox, send + f"""
        for to in ("{PUBLIC}", "{OTHER}", "a.example.com"):
            tell(lambda: work(to))
        """)
    assert lines == ["echo:hi", "TimeoutError", "TimeoutError"]
    tried = [it for it in log(sandbox) if it["protocol"] == "udp"]
    verdicts = {(it.get("name") or it["address"]): it["action"] for it in tried}
    assert verdicts == {PUBLIC: "allow", OTHER: "deny", "a.example.com": "deny"}


def test_a_change_of_policy_is_in_force_at_once_and_cuts_what_it_does_not_cover(policy, log):
    sandbox = policy("a.example.com", "b.example.com")
    hold = """
        streams = [socket.create_connection((name, 22)) for name in ("a.example.com", "b.example.com")]
        for stream in streams:
            stream.recv(100)
        print("open", flush=True)
        for stream in streams:
            tell(lambda: stream.recv(100) and "?")
        """
    said: list[str] = []
    holder = threading.Thread(target=lambda: said.extend(run(sandbox, hold)))
    holder.start()
    opened = lambda: len([it for it in log(sandbox) if it["protocol"] == "tcp"]) == 2
    wait_for("both are open", opened)
    sandbox.patch_egress_rules([NetworkRule(action="deny", target="a.example.com")])
    assert one(sandbox, "get('http://a.example.com/')") == "gaierror"
    holder.join()
    # The one that is still allowed is silent until the time is over.
    assert said == ["open", "ConnectionResetError", "TimeoutError"]


def test_much_passes_whole(policy):
    sandbox = policy("a.example.com")
    size = 64 << 20
    lines = run(
        sandbox,
        f"""
        tell(lambda: len(urllib.request.urlopen("http://a.example.com/bytes/{size}").read()))
        tell(lambda: urllib.request.urlopen("http://a.example.com/", data=bytes({size})).read().decode().strip())
        """,
    )
    assert lines == [str(size), str(size)]


def test_what_was_tried_is_shown_and_becomes_a_policy(server, policy):
    sandbox = policy(default="allow")
    run(sandbox, "get('http://a.example.com/'); get('http://private.example.com/')")
    table = osb_says(server, "log", sandbox.id).stdout
    assert "a.example.com:80" in table and "guarded private" in table, table
    learnt = osb_says(server, "learn", sandbox.id)
    rules = json.loads(learnt.stdout)
    assert rules["defaultAction"] == "deny"
    assert [rule["target"] for rule in rules["egress"]] == ["a.example.com"]
    assert "private.example.com" in learnt.stderr


def test_decisions_can_be_followed_as_they_are_made(server, policy):
    sandbox = policy("a.example.com")
    command = [osb(), "egress", "log", "-f", "-o", "json", sandbox.id]
    follow = subprocess.Popen(command, env=client(server), stdout=subprocess.PIPE, text=True)
    try:
        run(sandbox, "get('http://a.example.com/')")
        assert follow.stdout is not None
        for line in follow.stdout:
            decision = json.loads(line)
            if decision["protocol"] == "tcp" and "end" in decision:
                break
        assert decision["name"] == "a.example.com"
    finally:
        follow.kill()
        follow.wait()
        follow.stdout.close()


def test_numbers_are_counted(server, policy):
    def decisions(labels: str) -> int:
        lines = server.call("GET", "/metrics").body.decode().splitlines()
        return sum(int(it.rsplit(" ", 1)[1]) for it in lines if labels in it)

    sandbox = policy("a.example.com")
    counted = ('protocol="dns",action="deny",reason="default"', 'protocol="tcp",action="allow"')
    before = [decisions(labels) for labels in counted]
    # Each is exactly one decision, which a request by name would not be.
    run(sandbox, "ask('other.org', 1); raw('a.example.com', 22); raw('a.example.com', 22)")
    assert [decisions(labels) for labels in counted] == [before[0] + 1, before[1] + 2]


def test_a_paused_sandbox_goes_on_where_it_was(policy):
    sandbox = policy("a.example.com")
    sandbox.pause()
    sandbox = SandboxSync.resume(sandbox.id, connection_config=sandbox.connection_config)
    assert one(sandbox, "get('http://a.example.com/')") == f"{PUBLIC} a.example.com /"


def test_nothing_leaves_while_the_server_is_dead_and_the_policy_holds_again_after(server, policy):
    sandbox = policy("a.example.com")
    address = one(sandbox, "lookup('a.example.com', socket.AF_INET)")
    tries = {"name": "page('http://a.example.com/')", "address": f"page('http://{PUBLIC}/')"}
    watch = Watch(sandbox, allowed=f"page('http://{address}/', Host='a.example.com')", **tries)
    allowed = f"{PUBLIC} a.example.com /"
    watch.wait("allowed", allowed)
    watch.wait("name", allowed)
    server.kill()
    began = time.time()
    time.sleep(2)
    ended = time.time()
    server.start()
    watch.wait("name", allowed)
    assert watch.refusals("allowed", began, ended) >= 10
    # This address was never allowed, and was not reached at any time.
    assert watch.refusals("address", 0, time.time()) > watch.refusals("address", began, ended) >= 10
