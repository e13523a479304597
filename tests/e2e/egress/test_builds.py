"""What steps of builds reach: what a sandbox with the same policy would."""

from __future__ import annotations

from builder import build, make_base, programs
from internet import METADATA, PRIVATE, PUBLIC

#: Asks a host by its name, and says what came.
GET = "curl -sSf -m 5 http://{}/x || echo refused"


def prepare(server) -> None:
    make_base(server)
    files = {"curl.tar": programs("curl")}
    assert build(server, "FROM small\nADD curl.tar /\n", files, names=["curl"]).digest


def allow(*targets: str) -> dict:
    rules = [{"action": "allow", "target": target} for target in targets]
    return {"defaultAction": "deny", "egress": rules}


def said(server, host: str, flags: str = "", **request) -> list[str]:
    dockerfile = f"FROM curl\nRUN {flags} {GET.format(host)}\n"
    outcome = build(server, dockerfile, noCache=True, **request)
    assert outcome.digest, outcome
    return outcome.said("stdout")


def test_a_step_reaches_what_the_policy_of_the_build_names(server):
    prepare(server)
    policy = allow("a.example.com")
    reached = [f"{PUBLIC} a.example.com /x"]
    assert said(server, "a.example.com", networkPolicy=policy) == reached
    assert said(server, "other.org", networkPolicy=policy) == ["refused"]
    assert said(server, PRIVATE, networkPolicy=policy) == ["refused"]
    # Without a policy it is what sandboxes reach that have none.
    assert said(server, "a.example.com") == reached
    for host in (PRIVATE, METADATA, "private.example.com", "loopback.example.com"):
        assert said(server, host) == ["refused"], host


def test_a_step_that_fails_is_told_what_the_network_refused_it(server):
    prepare(server)
    text = "FROM curl\nRUN curl -sSf -m 5 http://other.org/x\n"
    outcome = build(server, text, networkPolicy=allow("a.example.com"))
    assert outcome.code == "IMAGE::BUILD_FAILED", outcome
    assert outcome.error.splitlines()[-2:] == [
        "the network refused: other.org (no rule allows it)",
        "allow it with --allow HOST, or in the networkPolicy of the build",
    ], outcome


def test_a_step_without_network_reaches_nothing(server):
    prepare(server)
    policy = allow("a.example.com")
    assert said(server, "a.example.com", "--network=none", networkPolicy=policy) == ["refused"]


def test_a_policy_that_cannot_be_is_refused_before_anything_is_done(server):
    make_base(server)
    refused = build(server, "FROM small\n", networkPolicy=allow("not a host"))
    assert refused.status == 400 and "not a host" in refused.error


def test_a_file_is_added_by_the_same_policy(server):
    make_base(server)
    dockerfile = "FROM small\nADD http://{}/x /fetched/\nRUN cat /fetched/x; stat -c %a /fetched/x\n"
    text = dockerfile.format("a.example.com")
    outcome = build(server, text, networkPolicy=allow("a.example.com"))
    assert outcome.said("stdout")[-1] == "600" and "a.example.com /x" in outcome.said()[0], outcome
    again = build(server, text, networkPolicy=allow("a.example.com"))
    assert again.cached() == 2
    for host, policy in [
        ("a.example.com", allow("other.org")),
        ("private.example.com", None),
        ("metadata.example.com", None),
        ("loopback.example.com", None),
        (METADATA, None),
        ("127.0.0.1", None),
    ]:
        request = {"networkPolicy": policy} if policy else {}
        refused = build(server, dockerfile.format(host), **request)
        assert "Dockerfile:2: " in refused.error and "may not be reached" in refused.error, refused
