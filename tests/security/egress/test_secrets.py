"""Ways out for secrets: to other hosts, in answers, and into the sandbox."""

from __future__ import annotations

import json
import urllib.parse
from collections.abc import Callable

import pytest
from internet import OTHER
from opensandbox.models.sandboxes import CredentialProxyConfig
from peers import EXPIRED, GOOD, IMPOSTOR, NAMESAKE, Peer
from served import Server, wait_for
from ways import Inmate, search
from witness import Witness

SECRET = "correct/horse+battery=staple-31337"
#: What the program inside has instead of it.
PLACEHOLDER = "__PEER_TOKEN__"
HOSTS = [GOOD, IMPOSTOR, EXPIRED, NAMESAKE]


@pytest.fixture
def holder(inmate: Callable[..., Inmate], peer: Peer) -> Inmate:
    """A sandbox with a secret for hosts that are what they say, or not."""
    made = inmate(*HOSTS, "a.example.com", credential_proxy=CredentialProxyConfig(enabled=True))
    places = [{"credential": "t", "placeholder": PLACEHOLDER, "in": ["query", "header"]}]
    auth = {"type": "bearer", "credential": "t", "substitutions": places}
    made.sandbox.credential_vault.create(
        credentials=[{"name": "t", "source": {"value": SECRET}}],
        bindings=[{"name": "b", "match": {"hosts": HOSTS, "paths": ["/bound/*"]}, "auth": auth}],
    )
    return made


def curl(holder: Inmate, *words: str) -> tuple[int, str]:
    """The end of curl, and everything that it printed."""
    done = holder.sandbox.commands.run("curl -sSi --max-time 10 " + " ".join(words))
    said = [line.text for line in done.logs.stdout + done.logs.stderr]
    return done.exit_code or 0, "\n".join(said)


def sent(peer: Peer) -> dict[str, str]:
    """The headers of the last request."""
    return {name.lower(): value for name, value in peer.seen[-1][1].items()}


def gives_nothing(holder: Inmate, peer: Peer, seen: Witness, *words: str) -> str:
    """Whatever comes of it, the secret is neither sent nor shown."""
    before, heard = len(peer.seen), len(seen.heard)
    _, said = curl(holder, *words)
    assert SECRET not in said
    assert SECRET not in json.dumps(peer.seen[before:], default=str)
    assert SECRET.encode() not in seen.heard[heard:]
    return said


def test_a_secret_reaches_the_host_that_it_is_for(holder, peer):
    code, said = curl(holder, f"https://{GOOD}/bound/whole")
    assert code == 0 and "[REDACTED]" in said and SECRET not in said
    assert sent(peer)["authorization"] == f"Bearer {SECRET}"


# To others.


def test_a_host_with_a_certificate_of_its_own_making_gets_no_secret(holder, peer, seen):
    before = len(peer.seen)
    assert "no trusted connection" in gives_nothing(holder, peer, seen, f"https://{IMPOSTOR}/bound/x")
    assert len(peer.seen) == before


def test_a_host_with_a_certificate_that_has_ended_gets_no_secret(holder, peer, seen):
    before = len(peer.seen)
    assert "no trusted connection" in gives_nothing(holder, peer, seen, f"https://{EXPIRED}/bound/x")
    assert len(peer.seen) == before


def test_a_host_with_the_certificate_of_another_gets_no_secret(holder, peer, seen):
    before = len(peer.seen)
    assert "no trusted connection" in gives_nothing(holder, peer, seen, f"https://{NAMESAKE}/bound/x")
    assert len(peer.seen) == before


def test_a_program_that_trusts_everybody_changes_nothing_about_that(holder, peer, seen):
    before = len(peer.seen)
    gives_nothing(holder, peer, seen, "-k", f"https://{IMPOSTOR}/bound/x")
    assert len(peer.seen) == before


def test_another_host_gets_no_secret(holder, peer, seen):
    said = gives_nothing(holder, peer, seen, f"'http://a.example.com/bound/x?{PLACEHOLDER}'")
    assert PLACEHOLDER in said


def test_a_request_for_the_host_on_a_connection_to_another_gets_no_secret(holder, peer, seen):
    entry = {"name": "a.example.com", "port": 80, "reason": "mismatch"}
    before = holder.times(**entry)
    gives_nothing(holder, peer, seen, f"-H 'Host: {GOOD}' http://a.example.com/bound/x")
    wait_for("it is in the log", lambda: holder.times(**entry) > before)


def test_a_request_for_another_host_on_a_connection_to_the_host_gets_no_secret(holder, peer, seen):
    before = len(peer.seen)
    said = gives_nothing(holder, peer, seen, f"-H 'Host: a.example.com' https://{GOOD}/bound/x")
    assert " 421" in said and len(peer.seen) == before


def test_the_name_of_the_host_at_an_address_of_choice_gets_no_secret(holder, peer, seen):
    to = f"--resolve {GOOD}:443:{OTHER}"
    gives_nothing(holder, peer, seen, "-k", to, f"https://{GOOD}/bound/x")
    wait_for("it is in the log", lambda: holder.times(address=OTHER, port=443, reason="default"))


def test_the_host_at_another_port_gets_no_secret(holder, peer, seen):
    said = gives_nothing(holder, peer, seen, f"'http://{GOOD}:8080/bound/x?{PLACEHOLDER}'")
    assert PLACEHOLDER in said


def test_the_host_without_tls_gets_no_secret(holder, peer, seen):
    said = gives_nothing(holder, peer, seen, f"'http://{GOOD}/bound/x?{PLACEHOLDER}'")
    assert PLACEHOLDER in said


def test_a_path_that_is_not_bound_gets_no_secret(holder, peer, seen):
    gives_nothing(holder, peer, seen, f"https://{GOOD}/other/x")
    assert "authorization" not in sent(peer)


def test_a_path_that_leads_out_of_the_bound_one_gets_no_secret(holder, peer, seen):
    before = len(peer.seen)
    for path in (
        "bound/../other", "bound/%2e%2e/other", "bound/..%2fother", "bound/%252e%252e/other",
        "bound/%%32%65%%32%65/other", "bound/..%3bx/other", "bound/%c0%ae%c0%ae/other", "bound/..%20/other",
    ):
        said = gives_nothing(holder, peer, seen, "--path-as-is", f"https://{GOOD}/{path}")
        assert " 403" in said, said
    assert len(peer.seen) == before


def test_a_method_that_is_not_bound_gets_no_secret(holder, peer, seen):
    gives_nothing(holder, peer, seen, "-I", f"https://{GOOD}/bound/x")
    said = gives_nothing(holder, peer, seen, "-X TRACE", f"https://{GOOD}/bound/x")
    assert " 405" in said


def test_a_redirect_to_another_host_takes_no_secret_along(holder, peer, seen):
    heard = len(seen.heard)
    _, said = curl(holder, "-L", f"https://{GOOD}/bound/redirect")
    assert "a.example.com /[REDACTED]" in said or "%5BREDACTED%5D" in said, said
    assert SECRET not in said and SECRET.encode() not in seen.heard[heard:]


def test_a_placeholder_in_a_place_that_is_not_bound_stays(holder, peer, seen):
    gives_nothing(holder, peer, seen, f"-d '{PLACEHOLDER}' https://{GOOD}/other/{PLACEHOLDER}")
    path, _, body = peer.seen[-1]
    assert path.endswith(PLACEHOLDER) and body == PLACEHOLDER.encode()


# Back into the sandbox.


@pytest.mark.parametrize("place", ["headers", "whole", "split", "trailers", "encoded", "redirect"])
def test_a_secret_that_a_host_repeats_is_taken_out(holder, place):
    code, said = curl(holder, f"-H 'TE: trailers' https://{GOOD}/bound/{place}")
    assert code == 0 and "REDACTED" in said, said
    assert SECRET[:12] not in said and urllib.parse.quote(SECRET, safe="")[:12] not in said


def test_repeated_headers_stay_repeated_without_their_secret(holder):
    _, said = curl(holder, f"https://{GOOD}/bound/headers")
    cookies = [line for line in said.lower().splitlines() if line.startswith("set-cookie")]
    assert len(cookies) == 2, said


def test_a_request_for_a_compressed_answer_asks_for_none(holder, peer):
    curl(holder, f"--compressed https://{GOOD}/bound/whole")
    assert sent(peer).get("accept-encoding", "identity") == "identity"


def test_a_secret_in_a_query_that_a_host_repeats_is_taken_out(holder, peer):
    code, said = curl(holder, f"'https://{GOOD}/bound/path?q={PLACEHOLDER}'")
    written = urllib.parse.quote(SECRET, safe="")
    assert peer.seen[-1][0].endswith(f"q={written}")
    assert code == 0 and SECRET not in said and written not in said, said


def test_no_place_inside_has_the_secret(holder):
    curl(holder, f"https://{GOOD}/bound/whole")
    assert holder.says(search(SECRET)) == ["[]"]


def test_no_key_of_the_authority_is_inside(holder):
    said = holder.says(
        """
        found = []
        for top in ("/etc", "/run", "/tmp", "/opt", "/root", "/home"):
            for directory, _, names in os.walk(top):
                for name in names:
                    place = os.path.join(directory, name)
                    try:
                        if os.path.isfile(place) and b"PRIVATE " + b"KEY" in open(place, "rb").read(1 << 20):
                            found.append(place)
                    except OSError:
                        pass
        print(found)
        """
    )
    assert said == ["[]"]


def test_the_authority_of_one_sandbox_vouches_for_nobody_in_another(inmate, holder):
    other = inmate(GOOD, credential_proxy=CredentialProxyConfig(enabled=True))
    ours = "print(sorted(it.hex() for it in ssl.create_default_context().get_ca_certs(True)))"
    one, two = holder.says(ours)[0], other.says(ours)[0]
    assert one != two


def test_no_answer_of_the_api_has_the_secret(holder, server):
    place = f"/v1/sandboxes/{holder.sandbox.id}/proxy/18080/credential-vault"
    endpoint = server.call("GET", f"/v1/sandboxes/{holder.sandbox.id}/endpoints/18080").json()
    for rest in ("", "/credentials", "/credentials/t", "/bindings", "/bindings/b", "/_active"):
        answer = server.call("GET", place + rest, headers=endpoint["headers"])
        assert SECRET.encode() not in answer.body, rest
    for path in (f"/v1/sandboxes/{holder.sandbox.id}", f"/v1/sandboxes/{holder.sandbox.id}/egress/log"):
        assert SECRET.encode() not in server.call("GET", path).body


def test_no_file_of_the_server_and_no_log_has_the_secret(holder, server: Server):
    curl(holder, f"https://{GOOD}/bound/whole")
    for place in server.data_dir.iterdir():
        if place.is_file():
            assert SECRET.encode() not in place.read_bytes(), place
    assert SECRET not in server.log.read_text()


def test_a_snapshot_has_no_secret_of_the_vault(holder, server, create, seen):
    kept = holder.sandbox.create_snapshot()
    place = f"/v1/snapshots/{kept.id}"
    state = lambda: server.call("GET", place).json()["status"]["state"]
    wait_for("the snapshot is ready", lambda: state() == "Ready")
    made = create(snapshot_id=kept.id)
    assert Inmate(made, server, seen).says(search(SECRET)) == ["[]"]
    made.kill()
    assert server.call("DELETE", place).status == 204


# At moments when somebody might not be looking.


def test_a_vault_that_is_deleted_gives_nothing_to_the_next_request(holder, peer, seen):
    curl(holder, f"https://{GOOD}/bound/whole")
    holder.sandbox.credential_vault.delete()
    gives_nothing(holder, peer, seen, "-k", f"'https://{GOOD}/bound/x?{PLACEHOLDER}'")


def test_a_server_that_died_gives_nothing_afterwards(holder, peer, seen, server):
    curl(holder, f"https://{GOOD}/bound/whole")
    server.kill()
    server.start()
    gives_nothing(holder, peer, seen, "-k", f"'https://{GOOD}/bound/x?{PLACEHOLDER}'")


def test_a_bound_host_that_the_policy_takes_away_is_refused(holder, server):
    place = f"/v1/sandboxes/{holder.sandbox.id}/networkpolicy"
    answer = server.call("DELETE", place, [GOOD])
    assert answer.status == 400, answer
