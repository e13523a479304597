"""Ways out at moments when somebody might not be looking."""

from __future__ import annotations

import contextlib
import pathlib
import signal
import textwrap
import threading
import time
from collections.abc import Callable, Iterator
from datetime import timedelta

import pytest
from internet import OTHER, PUBLIC, Internet, inside
from opensandbox import SandboxSync
from opensandbox.config import ConnectionConfigSync
from opensandbox.models.sandboxes import NetworkPolicy, NetworkRule
from served import Server, serving, wait_for
from tries import INSIDE, Watch
from ways import Inmate
from witness import Witness

ALLOWED = f"{PUBLIC} a.example.com /"


class Watched(Inmate):
    """A sandbox whose program tries the same all the time: a host that is allowed and one that is not,
    each by name, and by an address, for which nobody has to be asked."""

    def __init__(self, inmate: Inmate) -> None:
        super().__init__(inmate.sandbox, inmate.server, inmate.witness)
        (address,) = self.says("lookup('a.example.com', socket.AF_INET)")
        self.watch = Watch(
            self.sandbox,
            allowed=f"page('http://{address}/', Host='a.example.com')",
            forbidden=f"page('http://{OTHER}/')",
            allowed_name="page('http://a.example.com/')",
            forbidden_name="page('http://other.org/')",
        )
        self.watch.wait("allowed", ALLOWED)
        self.watch.wait("allowed_name", ALLOWED)

    def again(self) -> None:
        """The program goes on, and has not seen what it must not."""
        self.watch.wait("allowed_name", ALLOWED)
        assert not any(OTHER in it.said for it in self.watch.seen())

    def was_silenced(self, began: float, ended: float) -> None:
        """It tried all the time, and in vain."""
        for what in ("allowed", "forbidden"):
            assert self.watch.refusals(what, began, ended) >= 10, what
        for what in ("allowed_name", "forbidden_name"):
            meanwhile = [it for it in self.watch.seen() if it.what == what and began < it.ended and it.began < ended]
            assert meanwhile and not any(it.said == ALLOWED for it in meanwhile if it.ended < ended), meanwhile


@pytest.fixture
def watched(inmate: Callable[..., Inmate]) -> Watched:
    return Watched(inmate("a.example.com"))


def silent(seen: Witness) -> tuple[float, float]:
    """While programs inside go on, nothing at all arrives: not even what is allowed. From when to when."""
    # What the kernel still had to send when the server died is over soon.
    time.sleep(0.5)
    began, packets = time.time(), seen.everything()
    time.sleep(2)
    assert seen.everything() == packets
    return began, time.time()


@contextlib.contextmanager
def restarted(server: Server) -> Iterator[None]:
    """A server that is dead is started again, whatever happens meanwhile."""
    try:
        yield
    finally:
        server.start()


def hold(prisoner: Inmate, port: int) -> tuple[threading.Thread, list[str]]:
    """Somebody inside who connects and then listens."""
    said: list[str] = []
    text = f"""
        with socket.create_connection(("a.example.com", {port})) as stream:
            # Whoever speaks first says no more than that.
            tell(lambda: [stream.recv(100) for _ in range(2 if {port} == 22 else 1)] and "heard")
        """
    holder = threading.Thread(target=lambda: said.extend(prisoner.says(text)))
    holder.start()
    is_open = lambda: [it for it in prisoner.log() if it["protocol"] == "tcp" and it["port"] == port]
    wait_for("it is tried", is_open)
    return holder, said


def cut(prisoner: Inmate, port: int) -> None:
    holder, said = hold(prisoner, port)
    prisoner.sandbox.delete_egress_rules(["a.example.com"])
    holder.join()
    assert said == ["ConnectionResetError"], said
    entry = {"name": "a.example.com", "port": port, "reason": "default"}
    wait_for("the cut is in the log", lambda: prisoner.times(**entry))


def test_an_open_connection_is_cut_when_the_policy_no_longer_covers_it(inmate):
    cut(inmate("a.example.com"), 22)


def test_a_connection_that_is_being_made_is_cut_too(inmate, seen):
    # Nobody answers at this port, so that the server goes on trying.
    cut(inmate("a.example.com"), 81)
    packets = seen.packets[PUBLIC, 81]
    # The kernel would try again after a second.
    time.sleep(1.5)
    assert seen.packets[PUBLIC, 81] == packets, "it was tried again"


def test_datagrams_end_when_the_policy_no_longer_covers_them(inmate, seen):
    prisoner = inmate(PUBLIC)
    said: list[str] = []
    text = f"""
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as s:
            s.settimeout(0.5)
            s.connect(({PUBLIC!r}, 7000))
            while not os.path.exists("/tmp/end"):
                s.send(b"x")
                tell(lambda: s.recv(100).decode())
            s.send(b"x")
            tell(lambda: s.recv(100).decode())
        """
    sender = threading.Thread(target=lambda: said.extend(prisoner.says(text)))
    sender.start()
    wait_for("it flows", lambda: seen.packets[PUBLIC, 7000] > 3)
    prisoner.sandbox.delete_egress_rules([PUBLIC])
    packets = seen.packets[PUBLIC, 7000]
    prisoner.sandbox.files.write_file("/tmp/end", "")
    sender.join()
    assert said[0] == "echo:x" and said[-1] == "TimeoutError", said[-3:]
    assert seen.packets[PUBLIC, 7000] == packets
    assert prisoner.times(protocol="udp", address=PUBLIC, port=7000)


def test_no_change_of_the_policy_opens_a_gap(watched, seen):
    before = seen.packets[OTHER, 80]
    for _ in range(20):
        watched.sandbox.patch_egress_rules([NetworkRule(action="deny", target="b.example.com")])
        watched.sandbox.delete_egress_rules(["b.example.com"])
    watched.again()
    assert seen.packets[OTHER, 80] == before
    assert watched.times(address=OTHER, port=80, reason="default")


def test_a_name_that_is_forbidden_for_a_moment_is_not_reached_in_it(inmate, seen):
    prisoner = inmate("a.example.com")
    for _ in range(5):
        prisoner.sandbox.delete_egress_rules(["a.example.com"])
        prisoner.refused("get('http://a.example.com/')", name="a.example.com", unseen=(PUBLIC, 80))
        prisoner.sandbox.patch_egress_rules([NetworkRule(action="allow", target="a.example.com")])
        prisoner.passes("get('http://a.example.com/')", ALLOWED)


def test_nothing_leaves_while_the_server_is_dead(watched, server, seen):
    before = seen.packets[OTHER, 80]
    server.kill()
    with restarted(server):
        began, ended = silent(seen)
    watched.again()
    watched.was_silenced(began, ended)
    assert seen.packets[OTHER, 80] == before
    wait_for("it is in the new log", lambda: watched.times(address=OTHER, port=80, reason="default"))


def test_nothing_leaves_when_the_server_was_stopped_in_order(watched, server, seen):
    before = seen.packets[OTHER, 80]
    assert server.process is not None
    server.process.send_signal(signal.SIGTERM)
    server.process.wait(20)
    with restarted(server):
        began, ended = silent(seen)
    watched.again()
    watched.was_silenced(began, ended)
    assert seen.packets[OTHER, 80] == before


def test_a_server_that_dies_again_and_again_lets_nothing_out(watched, server, seen):
    before = seen.packets[OTHER, 80]
    for _ in range(3):
        server.kill()
        server.start()
    watched.again()
    assert seen.packets[OTHER, 80] == before


def test_a_policy_that_was_answered_is_in_force_after_the_server_died(inmate, server):
    prisoner = inmate("a.example.com", "b.example.com")
    prisoner.sandbox.delete_egress_rules(["b.example.com"])
    server.kill()
    server.start()
    entry = {"protocol": "dns", "name": "b.example.com", "reason": "default"}
    prisoner.refused("get('http://b.example.com/')", unseen=(PUBLIC, 80), **entry)
    prisoner.passes("get('http://a.example.com/')", ALLOWED)


def test_a_connection_does_not_outlive_the_server(inmate, server):
    prisoner = inmate("a.example.com")
    sandbox = prisoner.sandbox
    text = """
        with socket.create_connection(("a.example.com", 22)) as stream:
            stream.recv(100)
            open("/tmp/open", "w").close()
            sys.stdout = open("/tmp/ended", "w")
            tell(lambda: stream.recv(100).decode() or "closed")
        """
    sandbox.files.write_file("/tmp/hold.py", INSIDE + textwrap.dedent(text))
    sandbox.commands.run("setsid python3 /tmp/hold.py >/dev/null 2>&1 & echo")
    said = lambda place: [line.text for line in sandbox.commands.run(f"cat {place} 2>&1").logs.stdout]
    wait_for("it is open", lambda: said("/tmp/open") == [])
    server.kill()
    server.start()
    wait_for("it is broken", lambda: said("/tmp/ended") in (["ConnectionResetError"], ["closed"]))


def test_whoever_squats_while_the_server_is_dead_gains_nothing(inmate, server):
    prisoner = inmate("a.example.com")
    squat = """
import socket, time
held = []
def take(kind, port):
    s = socket.socket(socket.AF_INET6, kind)
    s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    s.bind(("::", port))
    if kind == socket.SOCK_STREAM:
        s.listen()
    held.append(s)
while True:
    for kind in (socket.SOCK_STREAM, socket.SOCK_DGRAM):
        for port in (1, 53, 15353, 18080, 18081):
            try:
                take(kind, port)
                print(port, flush=True)
            except OSError:
                pass
    time.sleep(0.02)
"""
    prisoner.sandbox.files.write_file("/tmp/squat.py", squat)
    prisoner.sandbox.commands.run("setsid python3 /tmp/squat.py >/tmp/squat 2>&1 & echo")
    def taken() -> set[str]:
        said = prisoner.sandbox.commands.run("cat /tmp/squat").logs.stdout
        return {line for message in said for line in message.text.split()}

    wait_for("it sits on ports", lambda: "53" in taken())
    server.kill()
    server.start()
    assert "1" not in taken()
    prisoner.passes("get('http://a.example.com/')", ALLOWED)
    entry = {"protocol": "dns", "name": "other.org", "reason": "default"}
    prisoner.refused("get('http://other.org/')", unseen=(OTHER, 80), **entry)
    prisoner.refused(f"web({OTHER!r})", address=OTHER, port=80, reason="default")


def test_a_sandbox_that_was_paused_has_its_policy(inmate):
    prisoner = inmate("a.example.com")
    prisoner.sandbox.pause()
    # Also what was changed meanwhile.
    place = f"/v1/sandboxes/{prisoner.sandbox.id}/networkpolicy"
    assert prisoner.server.call("DELETE", place, ["b.example.com"]).status == 200
    resumed = SandboxSync.resume(prisoner.sandbox.id, connection_config=prisoner.sandbox.connection_config)
    prisoner = Inmate(resumed, prisoner.server, prisoner.witness)
    prisoner.passes("get('http://a.example.com/')", ALLOWED)
    prisoner.refused(f"web({OTHER!r})", address=OTHER, port=80, reason="default")


def test_a_policy_that_is_tightened_while_a_sandbox_is_paused_holds_when_it_goes_on(inmate):
    prisoner = inmate("a.example.com", "b.example.com")
    address = prisoner.says("lookup('b.example.com', socket.AF_INET)")[0]
    prisoner.sandbox.pause()
    place = f"/v1/sandboxes/{prisoner.sandbox.id}/networkpolicy"
    assert prisoner.server.call("DELETE", place, ["b.example.com"]).status == 200
    resumed = SandboxSync.resume(prisoner.sandbox.id, connection_config=prisoner.sandbox.connection_config)
    prisoner = Inmate(resumed, prisoner.server, prisoner.witness)
    prisoner.refused(f"web({address!r}, name='b.example.com')", name="b.example.com", port=80, unseen=(PUBLIC, 80))


def test_a_sandbox_from_a_snapshot_has_the_policy_that_it_is_made_with(inmate, server, seen, create):
    prisoner = inmate("a.example.com", "b.example.com")
    kept = prisoner.sandbox.create_snapshot()
    place = f"/v1/snapshots/{kept.id}"
    state = lambda: server.call("GET", place).json()["status"]["state"]
    wait_for("the snapshot is ready", lambda: state() == "Ready")
    rules = [NetworkRule(action="allow", target="a.example.com")]
    made = create(snapshot_id=kept.id, network_policy=NetworkPolicy(egress=rules))
    restored = Inmate(made, server, seen)
    restored.passes("get('http://a.example.com/')", ALLOWED)
    entry = {"protocol": "dns", "name": "b.example.com", "reason": "default"}
    restored.refused("get('http://b.example.com/')", unseen=(PUBLIC, 80), **entry)
    made.kill()
    assert server.call("DELETE", place).status == 204


def first_try(server: Server, seen: Witness, **options: object) -> Inmate:
    """A sandbox whose very first program tries what is forbidden."""
    program = f"exec 3<>/dev/tcp/{OTHER}/80 && echo GET / >&3; cat <&3 >/tmp/first; sleep 600"
    rules = [NetworkRule(action="allow", target="a.example.com")]
    made = SandboxSync.create(
        "host",
        connection_config=ConnectionConfigSync(domain=server.domain, api_key=server.api_key),
        timeout=timedelta(minutes=10),
        entrypoint=["bash", "-c", program],
        network_policy=NetworkPolicy(egress=rules),
        **options,
    )
    return Inmate(made, server, seen)


def test_the_first_program_of_a_sandbox_is_held_already(server, seen):
    before = seen.packets[OTHER, 80]
    prisoner = first_try(server, seen)
    wait_for("it is in the log", lambda: prisoner.times(address=OTHER, port=80, reason="default"))
    assert seen.packets[OTHER, 80] == before
    prisoner.sandbox.kill()


def test_a_sandbox_from_a_pool_has_its_policy_before_its_first_program(
    world: Internet, seen, tmp_path: pathlib.Path
):
    config = tmp_path / "pool.toml"
    config.write_text(world.config.read_text() + '\n[[pool]]\nimage = "host"\nsize = 1\n')
    with inside(world.home), serving("--config", str(config)) as server:
        metric = lambda name: f'opensandbox_pool_{name}{{image="host"}} 1'
        says = lambda name: metric(name) in server.call("GET", "/metrics").body.decode()
        wait_for("the pool is full", lambda: says("ready"))
        before = seen.packets[OTHER, 80]
        prisoner = first_try(server, seen, resource={"cpu": "1", "memory": "256Mi"})
        assert says("claims_total")
        wait_for("it is in the log", lambda: prisoner.times(address=OTHER, port=80, reason="default"))
        prisoner.passes("get('http://a.example.com/')", ALLOWED)
        assert seen.packets[OTHER, 80] == before
        prisoner.sandbox.kill()


def test_what_the_operator_denies_to_all_no_policy_opens(world: Internet, seen, tmp_path: pathlib.Path):
    config = tmp_path / "strict.toml"
    text = world.config.read_text()
    config.write_text(text.replace("[egress]\n", '[egress]\ndefault = "deny"\ndeny = ["other.org"]\n'))
    with inside(world.home), serving("--config", str(config)) as server:
        connection = ConnectionConfigSync(domain=server.domain, api_key=server.api_key)
        rules = [NetworkRule(action="allow", target="other.org")]
        policies = NetworkPolicy(defaultAction="allow", egress=rules)
        with SandboxSync.create("host", connection_config=connection, network_policy=policies) as made:
            entry = {"protocol": "dns", "name": "other.org", "reason": "operator"}
            Inmate(made, server, seen).refused("get('http://other.org/')", unseen=(OTHER, 80), **entry)
            made.kill()
        with SandboxSync.create("host", connection_config=connection) as made:
            entry = {"address": OTHER, "port": 80, "reason": "default"}
            Inmate(made, server, seen).refused(f"web({OTHER!r})", **entry)
            made.kill()
