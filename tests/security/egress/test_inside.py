"""Ways out through others on the same machine, and through what decides about ways out."""

from __future__ import annotations

import contextlib

import pytest
from internet import OTHER, PUBLIC
from opensandbox.exceptions import SandboxApiException
from served import wait_for
from tries import REFUSED
from ways import Inmate, search

SERVE = """
import socket, threading
for family, own in ((socket.AF_INET, "0.0.0.0"), (socket.AF_INET6, "::1")):
    s = socket.create_server((own, 7778), family=family)
    def serve(s=s):
        while True:
            stream, _ = s.accept()
            with open("/tmp/came", "a") as came:
                came.write("x")
            stream.sendall(b"neighbour")
            stream.close()
    threading.Thread(target=serve).start()
"""


def test_a_neighbour_is_reached_at_no_address(inmate):
    one, other = inmate("a.example.com", "b.example.com"), inmate("a.example.com")
    other.sandbox.files.write_file("/tmp/serve.py", SERVE)
    other.sandbox.commands.run("setsid python3 /tmp/serve.py >/dev/null 2>&1 & echo")
    wait_for("it serves itself", lambda: other.says("raw('198.18.0.1', 7778)") == ["neighbour"])
    (name,) = other.says("print(socket.gethostname())")
    places = ["127.0.0.1", "198.18.0.1", "::1", "fd53::1", "0.0.0.0", name]
    with contextlib.suppress(IndexError):
        places += other.says("lookup(socket.gethostname())")[0].split()
    came = lambda: other.says("print(len(open('/tmp/came').read()))")
    before = came()
    one.stopped("\n".join(f"raw({place!r}, 7778)" for place in places), "ECONNREFUSED")
    # And at the addresses that stand for names, in one as in the other. Those of names lead to hosts
    # where nobody listens at this port, and those of none nowhere.
    one.says("lookup('b.example.com')")
    said = one.says("for n in range(4): raw(f'198.18.1.{n}', 7778)")
    assert len(said) == 4 and all(line in REFUSED for line in said), said
    assert one.times(port=7778, reason="default"), one.log()
    assert came() == before


def test_the_daemon_of_a_neighbour_is_reached_at_no_address(inmate):
    one, _other = inmate("a.example.com"), inmate("a.example.com")
    one.stopped("raw('198.18.0.1', 44771); raw('fd53::1', 44771)", "ECONNREFUSED")
    one.refused("raw('198.18.0.3', 44772)", address="198.18.0.3", port=44772, guarded="special")


def test_nothing_inside_answers_at_the_port_of_the_policy(closed):
    text = "raw('127.0.0.1', 18080); raw('198.18.0.1', 18080); raw('::1', 18080)"
    closed.stopped(text, "ECONNREFUSED")


def test_whoever_takes_the_port_of_the_policy_hears_no_token(inmate):
    prisoner = inmate("a.example.com")
    prisoner.sandbox.files.write_file("/tmp/serve.py", SERVE.replace("7778", "18080"))
    prisoner.sandbox.commands.run("setsid python3 /tmp/serve.py >/dev/null 2>&1 & echo")
    wait_for("somebody sits there", lambda: prisoner.says("raw('127.0.0.1', 18080)") == ["neighbour"])
    came = lambda: prisoner.says("print(len(open('/tmp/came').read()))")
    before = came()
    assert prisoner.sandbox.get_egress_policy().egress
    prisoner.sandbox.delete_egress_rules(["b.example.com"])
    with contextlib.suppress(SandboxApiException):
        prisoner.sandbox.credential_vault.get()
    assert came() == before


def test_no_program_inside_finds_the_token_of_the_policy(inmate, server):
    prisoner = inmate("a.example.com")
    endpoint = server.call("GET", f"/v1/sandboxes/{prisoner.sandbox.id}/endpoints/18080").json()
    (token,) = endpoint["headers"].values()
    assert prisoner.says(search(token)) == ["[]"]


def still_refused(prisoner: Inmate) -> None:
    """What nobody has allowed is as closed as before."""
    entry = {"protocol": "dns", "name": "other.org", "reason": "default"}
    prisoner.refused("get('http://other.org/')", unseen=(OTHER, 80), **entry)


def test_the_policy_is_not_changed_without_a_token(inmate, server):
    prisoner = inmate("a.example.com")
    place = f"/v1/sandboxes/{prisoner.sandbox.id}/proxy/18080/policy"
    rules = [{"action": "allow", "target": "other.org"}]
    for headers in ({}, {"OPENSANDBOX-EGRESS-AUTH": ""}, {"OPENSANDBOX-EGRESS-AUTH": "x" * 32}):
        for method, body in (("PATCH", rules), ("PUT", {"egress": rules}), ("DELETE", ["a.example.com"])):
            answer = server.call(method, place, body, key=None, headers=headers)
            assert answer.status == 401, answer
    still_refused(prisoner)


def test_the_policy_is_not_changed_with_the_token_of_another(inmate, server):
    one, other = inmate("a.example.com"), inmate("a.example.com")
    endpoint = server.call("GET", f"/v1/sandboxes/{other.sandbox.id}/endpoints/18080").json()
    place = f"/v1/sandboxes/{one.sandbox.id}/proxy/18080/policy"
    rules = [{"action": "allow", "target": "other.org"}]
    answer = server.call("PATCH", place, rules, key=None, headers=endpoint["headers"])
    assert answer.status == 401, answer
    still_refused(one)


def test_the_vault_is_not_read_without_a_token(inmate, server):
    prisoner = inmate("a.example.com")
    place = f"/v1/sandboxes/{prisoner.sandbox.id}/proxy/18080/credential-vault"
    assert server.call("GET", place, key=None).status == 401
    assert server.call("POST", place, {"credentials": [], "bindings": []}, key=None).status == 401
    # What is in use is told to nobody at all.
    endpoint = server.call("GET", f"/v1/sandboxes/{prisoner.sandbox.id}/endpoints/18080").json()
    assert server.call("GET", f"{place}/_active", headers=endpoint["headers"]).status == 403


@pytest.mark.parametrize("default", ["alow", "allow-all", "none", "*"])
def test_an_unknown_default_is_no_permission(server, default):
    body = {
        "image": {"uri": "host"},
        "entrypoint": ["sleep", "60"],
        "timeout": 60,
        "resourceLimits": {},
        "networkPolicy": {"defaultAction": default, "egress": []},
    }
    answer = server.call("POST", "/v1/sandboxes", body)
    assert answer.status in (400, 422), answer


@pytest.mark.parametrize("target", ["http://other.org", "other.org:443", "*other.org", "*", "127.0.0.1", "böse.org"])
def test_a_rule_that_could_never_match_is_refused(closed, server, target):
    place = f"/v1/sandboxes/{closed.sandbox.id}/networkpolicy"
    answer = server.call("PATCH", place, [{"action": "deny", "target": target}])
    assert answer.status == 400, answer


def test_a_mistake_in_a_change_leaves_the_policy_as_it_was(inmate, server):
    prisoner = inmate("a.example.com")
    place = f"/v1/sandboxes/{prisoner.sandbox.id}/networkpolicy"
    rules = [{"action": "allow", "target": "other.org"}, {"action": "allow", "target": "http://x"}]
    assert server.call("PATCH", place, rules).status == 400
    still_refused(prisoner)
    prisoner.passes("get('http://a.example.com/')", f"{PUBLIC} a.example.com /")


def test_the_enforcement_is_never_by_names_alone(closed, server):
    answer = server.call("GET", f"/v1/sandboxes/{closed.sandbox.id}/networkpolicy")
    assert answer.json()["enforcementMode"] == "dns+nft"


def test_a_crowd_of_connections_has_an_end(inmate, server):
    # Of the connections that are tried at once, more than a sandbox may have are refused and logged.
    prisoner = inmate("a.example.com")
    prisoner.says(
        """
        import resource
        most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
        held = []
        for _ in range(1100):
            s = socket.socket()
            s.settimeout(10)
            try:
                s.connect(("a.example.com", 22))
            except OSError:
                pass
            held.append(s)
        print(len(held))
        """
    )
    assert prisoner.times(name="a.example.com", port=22, reason="limit") > 0
