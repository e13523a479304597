"""Ways out for secrets: to other hosts, in answers, and into the sandbox."""

from __future__ import annotations

import contextlib
import json
import struct
import urllib.parse
import uuid
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from internet import OTHER
from leaks import holds
from opensandbox.models.sandboxes import PVC, CredentialProxyConfig, NetworkPolicy, NetworkRule, Volume
from peers import ELSEWHERE, EXPIRED, GOOD, IMPOSTOR, MUCH, NAMESAKE, Certificates, Echo, Peer, Pieces
from served import Server, wait_for
from ways import Inmate, search
from witness import Witness

SECRET = "correct/horse+battery=staple-31337"
#: Where, and how, a host repeats it.
PLACES = [
    *("headers", "whole", "split", "trailers", "redirect"),
    *("encoded", "quoted", "twice", "escaped", "page"),
]
#: What the program inside has instead of it.
PLACEHOLDER = "__PEER_TOKEN__"
HOSTS = [GOOD, IMPOSTOR, EXPIRED, NAMESAKE]
#: A vault with the secret for one host, whatever is asked of it.
VAULT = {
    "credentials": [{"name": "t", "source": {"value": SECRET}}],
    "bindings": [{"name": "b", "match": {"hosts": [GOOD]}, "auth": {"type": "bearer", "credential": "t"}}],
}
#: Where programs look for authorities, and where those of a sandbox are installed.
SYSTEM = "/etc/ssl/certs/ca-certificates.crt"
OURS = "/opt/opensandbox"
BUNDLES = ("mitmproxy-ca-cert.pem", "merged-ca-certificates.pem")


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


@pytest.fixture
def ruled(inmate: Callable[..., Inmate], peer: Peer, server: Server) -> Inmate:
    """A sandbox with a secret for a host, at another port of which a rule is about requests."""
    made = inmate(GOOD, credential_proxy=CredentialProxyConfig(enabled=True))
    places = [{"credential": "t", "placeholder": PLACEHOLDER, "in": ["query", "header"]}]
    auth = {"type": "bearer", "credential": "t", "substitutions": places}
    made.sandbox.credential_vault.create(
        credentials=VAULT["credentials"], bindings=[{"name": "b", "match": {"hosts": [GOOD]}, "auth": auth}]
    )
    rules = [
        {"action": "allow", "target": GOOD, "ports": [ELSEWHERE], "methods": ["GET"]},
        {"action": "allow", "target": GOOD},
    ]
    policy = {"defaultAction": "deny", "egress": rules}
    answer = server.call("PUT", f"/v1/sandboxes/{made.sandbox.id}/networkpolicy", policy)
    assert answer.status == 200, answer
    return made


@pytest.fixture
def repeater(inmate: Callable[..., Inmate], peer: Peer) -> Iterator[Inmate]:
    """A sandbox with a secret for a host that repeats piece by piece."""
    made = inmate(GOOD, credential_proxy=CredentialProxyConfig(enabled=True))
    made.sandbox.credential_vault.create(**VAULT)
    peer.RequestHandlerClass = Pieces
    yield made
    peer.RequestHandlerClass = Echo


@pytest.fixture
def leaving(inmate: Callable[..., Inmate], peer: Peer, certificates: Certificates) -> Iterator[Inmate]:
    """A sandbox with a secret for a host that speaks HTTP/2, and goes away with what it was sent."""
    made = inmate(GOOD, credential_proxy=CredentialProxyConfig(enabled=True))
    made.sandbox.credential_vault.create(**VAULT)
    context = certificates.context(GOOD)
    context.set_alpn_protocols(["h2"])

    def frame(kind: int, payload: bytes = b"", flags: int = 0) -> bytes:
        return struct.pack("!I", len(payload))[1:] + struct.pack("!BBI", kind, flags, 0) + payload

    def leave(request: Any, _: Any) -> None:
        settings, headers, goaway, ack = 4, 1, 7, 1
        with context.wrap_socket(request, server_side=True) as stream, stream.makefile("rb") as heard:
            stream.sendall(frame(settings) + frame(settings, flags=ack))
            heard.read(len(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"))
            kind = None
            while kind != headers:
                length, kind = struct.unpack("!IB", b"\0" + heard.read(4))
                heard.read(5 + length)
            calm = struct.pack("!II", 0, 11)
            stream.sendall(frame(goaway, calm + f"bad header: Bearer {SECRET}".encode()))
            while heard.read(1):
                pass

    usual, peer.finish_request = peer.finish_request, leave
    yield made
    peer.finish_request = usual


@pytest.fixture
def prepared(create, server: Server, seen) -> Iterator[Callable[..., Inmate]]:
    """Makes a sandbox with a vault from a snapshot of one in which a command was run."""
    kept: list[str] = []

    def make(command: str, **options: object) -> Inmate:
        first = create(**options)
        done = first.commands.run(command)
        assert done.exit_code == 0, done.logs.stderr
        snapshot = first.create_snapshot().id
        place = f"/v1/snapshots/{snapshot}"
        kept.append(place)
        state = lambda: server.call("GET", place).json()["status"]["state"]
        wait_for("the snapshot is ready", lambda: state() == "Ready")
        first.kill()
        policy = NetworkPolicy(egress=[NetworkRule(action="allow", target=GOOD)])
        proxy = CredentialProxyConfig(enabled=True)
        made = create(snapshot_id=snapshot, network_policy=policy, credential_proxy=proxy, **options)
        made.credential_vault.create(**VAULT)
        return Inmate(made, server, seen)

    yield make
    for place in kept:
        with contextlib.suppress(OSError):
            server.call("DELETE", place)


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


def arrives_without(holder: Inmate, peer: Peer, seen: Witness) -> None:
    """What would get the secret in two places arrives as it was written, and has it in none."""
    before = len(peer.seen)
    said = gives_nothing(holder, peer, seen, "-k", f"'https://{GOOD}/bound/x?{PLACEHOLDER}'")
    assert " 200" in said, said
    ((path, headers, _),) = peer.seen[before:]
    assert path == f"/bound/x?{PLACEHOLDER}"
    assert "authorization" not in {name.lower() for name in headers}


def test_a_secret_reaches_the_host_that_it_is_for(holder, peer):
    code, said = curl(holder, f"https://{GOOD}/bound/whole")
    assert code == 0 and "[REDACTED]" in said and SECRET not in said
    assert sent(peer)["authorization"] == f"Bearer {SECRET}"


def test_the_log_tells_which_host_did_not_prove_who_it_is(holder, peer, seen):
    for name in HOSTS:
        curl(holder, f"https://{name}/bound/x")

    def ends() -> dict[str, str]:
        streams = [entry for entry in holder.log() if entry["protocol"] == "tcp" and "end" in entry]
        return {entry["name"]: entry["end"]["outcome"] for entry in streams}

    expected = dict.fromkeys(HOSTS, "unverified") | {GOOD: "done"}
    wait_for("all have ended", lambda: ends() == expected)


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
    assert "no trusted connection" in gives_nothing(holder, peer, seen, "-k", f"https://{IMPOSTOR}/bound/x")
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


def test_the_host_at_another_port_that_is_looked_into_gets_no_secret(ruled, peer, elsewhere):
    ask = f"curl -sS --max-time 10 -H 'X-Mine: {PLACEHOLDER}' 'https://{GOOD}%s/?{PLACEHOLDER}'"
    assert ruled.sandbox.commands.run(ask % f":{ELSEWHERE}").exit_code == 0
    path, headers, _ = elsewhere.seen[-1]
    assert path == f"/?{PLACEHOLDER}" and headers["X-Mine"] == PLACEHOLDER
    assert "Authorization" not in headers and SECRET not in str(elsewhere.seen)
    # It was read on its way, and at its own port the same request gets what it is bound to.
    asked = lambda: [it for it in ruled.log() if it["protocol"] == "http" and it["port"] == ELSEWHERE]
    wait_for("the request is in the log", asked)
    assert ruled.sandbox.commands.run(ask % "").exit_code == 0
    assert peer.seen[-1][1]["Authorization"] == f"Bearer {SECRET}"


@pytest.mark.parametrize("host", [GOOD, f"{GOOD}:443"])
def test_a_request_at_another_port_that_says_it_is_for_the_bound_one_goes_nowhere(ruled, elsewhere, host):
    _, said = curl(ruled, f"-H 'Host: {host}' https://{GOOD}:{ELSEWHERE}/")
    assert " 421" in said and not elsewhere.seen


def test_the_host_without_tls_gets_no_secret(holder, peer, seen):
    said = gives_nothing(holder, peer, seen, f"'http://{GOOD}/bound/x?{PLACEHOLDER}'")
    assert PLACEHOLDER in said


def test_a_path_that_is_not_bound_gets_no_secret(holder, peer, seen):
    before = len(peer.seen)
    gives_nothing(holder, peer, seen, f"https://{GOOD}/other/x")
    assert len(peer.seen) == before + 1 and "authorization" not in sent(peer)


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
    before = len(peer.seen)
    assert " 200" in gives_nothing(holder, peer, seen, "-I", f"https://{GOOD}/bound/x")
    assert len(peer.seen) == before + 1 and "authorization" not in sent(peer)
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


@pytest.mark.parametrize("place", PLACES)
def test_a_secret_that_a_host_repeats_is_taken_out(holder, place):
    code, said = curl(holder, f"-H 'TE: trailers' https://{GOOD}/bound/{place}")
    assert code == 0 and "REDACTED" in said, said
    assert SECRET[:12] not in said and urllib.parse.quote(SECRET, safe="")[:12] not in said
    assert "horse" not in said and "staple" not in said and "\\u" not in said


def test_a_secret_that_a_host_repeats_at_another_port_is_taken_out(ruled, elsewhere):
    """If somebody looks into what it says there."""
    assert curl(ruled, f"https://{GOOD}/")[0] == 0
    code, said = curl(ruled, f"'https://{GOOD}:{ELSEWHERE}/{urllib.parse.quote(SECRET)}'")
    assert code == 0 and "[REDACTED]" in said and "horse" not in said, said


def sizes(inside: Inmate, pieces: list[str]) -> list[str]:
    """In what chunks an answer comes that repeats each piece: the first before there is more to come,
    then all others."""
    return inside.says(
        f"""
        def chunk(lines):
            size = int(lines.readline(), 16)
            lines.read(size + 2)
            return size
        for piece in {pieces!r}:
            context = ssl.create_default_context()
            with socket.create_connection(("{GOOD}", 443)) as stream:
                stream = context.wrap_socket(stream, server_hostname="{GOOD}")
                lines = stream.makefile("rb")
                head = "POST / HTTP/1.1\\r\\nHost: {GOOD}\\r\\nTransfer-Encoding: chunked\\r\\n\\r\\n"
                stream.sendall(f"{{head}}{{len(piece):x}}\\r\\n{{piece}}\\r\\n".encode())
                while lines.readline().strip():
                    pass
                first = chunk(lines)
                stream.sendall(b"0\\r\\n\\r\\n")
                rest = []
                while size := chunk(lines):
                    rest.append(size)
                print(first, *rest)
        """
    )


def test_what_a_host_says_when_it_goes_away_shows_no_secret(leaving):
    code, said = curl(leaving, "--http2", f"https://{GOOD}/bound/x")
    assert code == 0 and "HTTP/2 502" in said and f"{GOOD} did not answer" in said, said
    assert SECRET not in said and "bad header" not in said


@pytest.mark.parametrize("right", [1, 7, 20, len(SECRET) - 1])
def test_nobody_learns_from_the_pieces_of_an_answer_how_a_secret_begins(repeater, right):
    """The beginning of the secret is passed on, and held back, as anything else is."""
    before = "x" * 400
    guesses = [before + SECRET[:right], before + "!" * right, before + SECRET[: right - 1] + "!"]
    said = sizes(repeater, guesses)
    assert len(said) == 3 and len(set(said)) == 1, said


def test_a_line_is_passed_on_at_once_whatever_it_ends_in(repeater):
    """What follows waits, and neither depends on the secret."""
    said = sizes(repeater, [f"{line}\n{line}" for line in ("x" * 40, "x" * 20 + SECRET[:20])])
    assert said == ["41 40", "41 40"], said


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
    text = f"""
        import hashlib
        def show(certificate):
            print(hashlib.sha256(certificate).hexdigest())
        show(ssl.PEM_cert_to_DER_cert(open("{OURS}/{BUNDLES[0]}").read()))
        for certificate in ssl.create_default_context().get_ca_certs(True):
            show(certificate)
        """
    (one, *trusted), (two, *trusted_by_the_other) = holder.says(text), other.says(text)
    assert one in trusted and two in trusted_by_the_other
    assert one not in trusted_by_the_other and two not in trusted


def works(inmate: Inmate, peer: Peer) -> None:
    """Programs trust the authority all the same."""
    before = len(peer.seen)
    assert curl(inmate, f"https://{GOOD}/")[0] == 0
    assert peer.seen[before][1]["Authorization"] == f"Bearer {SECRET}"


@pytest.mark.parametrize("to", ["/proc/self/maps", "/proc/1/maps", "/proc/self/fd/0", "/dev/zero"])
def test_a_link_in_place_of_the_authorities_shows_nothing_of_the_first_process(prepared, peer, to):
    inmate = prepared(f"rm -f {SYSTEM} && ln -s {to} {SYSTEM}")
    said = inmate.says(
        f"""
        for name in {BUNDLES!r}:
            inner = False
            for line in open("{OURS}/" + name, errors="replace").read().splitlines():
                if "CERTIFICATE-----" in line:
                    inner = "BEGIN" in line
                elif line and not inner:
                    print(name, line)
        print("looked")
        """
    )
    assert said == ["looked"]
    works(inmate, peer)


def test_a_pipe_in_place_of_the_authorities_holds_nobody_up(prepared, peer):
    places = f"{SYSTEM} /etc/ssl/cert.pem /etc/ssl/ca-bundle.pem"
    works(prepared(f"rm -f {places} && mkfifo {places}"), peer)


def test_nothing_is_written_through_links_in_place_of_the_authorities(prepared, peer):
    """Not in the sandbox, and not in a volume that others have."""
    volume = Volume(name="v", pvc=PVC(claimName=f"links-{uuid.uuid4().hex[:12]}"), mount_path="/data")
    links = " && ".join(f"ln -sf /data/precious {OURS}/{name}" for name in (*BUNDLES, ".authorities.partial"))
    inmate = prepared(f"echo precious > /data/precious && mkdir -p {OURS} && {links}", volumes=[volume])
    said = inmate.says('print(open("/data/precious").read().strip(), os.listdir("/data"))')
    assert said == ["precious ['precious']"]
    works(inmate, peer)


def test_no_answer_of_the_api_has_the_secret(holder, server):
    place = f"/v1/sandboxes/{holder.sandbox.id}/proxy/18080/credential-vault"
    endpoint = server.call("GET", f"/v1/sandboxes/{holder.sandbox.id}/endpoints/18080").json()
    for rest in ("", "/credentials", "/credentials/t", "/bindings", "/bindings/b", "/_active"):
        answer = server.call("GET", place + rest, headers=endpoint["headers"])
        assert SECRET.encode() not in answer.body, rest
    for path in (f"/v1/sandboxes/{holder.sandbox.id}", f"/v1/sandboxes/{holder.sandbox.id}/egress/log"):
        assert SECRET.encode() not in server.call("GET", path).body


def test_no_file_of_the_server_and_no_log_has_the_secret(holder, server: Server):
    assert curl(holder, f"https://{GOOD}/bound/whole")[0] == 0
    # Also what is written down for good, the sandboxes' disks, and the log, which is beside all of them.
    book = server.data_dir / "audit" / holder.sandbox.id
    used = lambda: any('"kind":"credential"' in it.read_text() for it in book.glob("*.jsonl"))
    wait_for("the use of the secret is written down", used)
    assert holds(server.data_dir.parent, SECRET) == []


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
    assert curl(holder, f"https://{GOOD}/bound/whole")[0] == 0
    holder.sandbox.credential_vault.delete()
    arrives_without(holder, peer, seen)


def test_a_server_that_died_gives_nothing_afterwards(holder, peer, seen, server):
    assert curl(holder, f"https://{GOOD}/bound/whole")[0] == 0
    server.kill()
    server.start()
    arrives_without(holder, peer, seen)


def test_a_bound_host_that_the_policy_takes_away_is_refused(holder, server):
    place = f"/v1/sandboxes/{holder.sandbox.id}/networkpolicy"
    answer = server.call("DELETE", place, [GOOD])
    assert answer.status == 400, answer


def test_a_host_that_says_much_and_answers_nothing_is_no_longer_listened_to(holder, peer):
    code, said = curl(holder, f"https://{GOOD}/bound/endless")
    assert code == 0 and " 502" in said
    wait_for("the host has noticed", lambda: peer.hinted)
    assert peer.hinted[-1] < MUCH


@pytest.mark.parametrize("end", [":99999", ":0443", ":", "."])
def test_a_host_that_is_written_strangely_gets_no_secret(holder, peer, seen, end):
    before = len(peer.seen)
    said = gives_nothing(holder, peer, seen, f"-H 'Host: {GOOD}{end}' https://{GOOD}/bound/x")
    assert " 421" in said and len(peer.seen) == before
