"""`osb doctor --fix` removes what a crash left, and nothing that anybody wants."""

from __future__ import annotations

import http.client
import json
import os
import pathlib
import shutil
import subprocess
import threading
import time
from collections.abc import Iterator

import pytest
from served import Server, osb, serving, wait_for
from traces import CGROUPS, Traces

BODY = {
    "image": {"uri": "host"},
    "entrypoint": ["sleep", "infinity"],
    "resourceLimits": {"cpu": "1", "memory": "64Mi", "disk": "32Mi"},
    "timeout": 3600,
}


@pytest.fixture
def server() -> Iterator[Server]:
    with serving() as server:
        yield server


@pytest.fixture
def traces(server: Server) -> Traces:
    return Traces(server)


def doctor(server: Server, *options: str) -> subprocess.CompletedProcess[str]:
    command = [osb(), "doctor", "--data-dir", str(server.data_dir), *options]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)


def fix(server: Server) -> str:
    """What it says that it removed."""
    done = doctor(server, "--fix")
    assert done.returncode == 0, done
    return done.stdout.strip()


def create(server: Server) -> str:
    made = server.call("POST", "/v1/sandboxes", BODY)
    assert made.status == 202, made
    return made.json()["id"]


def answers(server: Server, sandbox: str) -> bool:
    """Whether a program can be run in it."""
    environment = os.environ | {
        "OPEN_SANDBOX_DOMAIN": server.domain,
        "OPEN_SANDBOX_API_KEY": server.api_key,
    }
    command = [osb(), "sandbox", "exec", sandbox, "--", "true"]
    return subprocess.run(command, env=environment, check=False, timeout=60).returncode == 0


def native(server: Server) -> pathlib.Path:
    return server.data_dir / "native"


def test_sandboxes_whose_directories_were_deleted_are_ended_by_the_next_server(server, traces):
    sandboxes = [create(server) for _ in range(3)]
    traces.all_there(len(sandboxes))
    server.kill()
    shutil.rmtree(native(server) / "sandboxes")
    assert traces.processes(), "they run, and nothing on disk tells of them"

    server.start()

    traces.all_gone()
    for sandbox in sandboxes:
        server.call("DELETE", f"/v1/sandboxes/{sandbox}")


def test_what_has_no_directory_any_more_is_removed_and_what_is_wanted_goes_on(server, traces):
    lost, wanted = create(server), create(server)
    traces.all_there(2)
    server.kill()
    shutil.rmtree(native(server) / "sandboxes" / lost)

    said = fix(server)

    assert "processes, 1 control group" in said, said
    assert fix(server) == "nothing to remove"
    assert {path.name for path in traces.directories()} == {wanted}
    assert not any(lost in trace for trace in traces.cgroups() + traces.devices())
    server.start()
    assert answers(server, wanted)
    server.call("DELETE", f"/v1/sandboxes/{wanted}")
    traces.all_gone()


def test_after_a_crash_in_a_storm_only_what_is_wanted_is_left(server, traces):
    acknowledged: set[str] = set()
    unwanted: set[str] = set()

    def ask_many(number: int) -> None:
        try:
            for _ in range(20):
                id = create(server)
                acknowledged.add(id)
                if number % 2:
                    unwanted.add(id)
                    server.call("DELETE", f"/v1/sandboxes/{id}", timeout=5)
        except (OSError, ValueError, http.client.HTTPException):
            return  # the server was killed under this request, which is the point

    callers = [threading.Thread(target=ask_many, args=[number]) for number in range(8)]
    for caller in callers:
        caller.start()
    wait_for("some are there", lambda: len(acknowledged - unwanted) > 3)
    # Not a wait for something, but the moment at which the blow falls.
    time.sleep(0.1)
    server.kill()
    traces.record()
    for caller in callers:
        caller.join()

    said = fix(server)

    assert said.startswith("removed "), said
    left = {path.name for path in traces.directories()}
    assert left >= acknowledged - unwanted, "nothing is lost that was promised"
    assert {id for id in traces.ids if any(id in group for group in traces.cgroups())} == left
    # Hosts with project quota have none at all.
    assert all(any(id in file for id in left) for file in traces.devices())
    assert traces.mounts() == []
    assert fix(server) == "nothing to remove"

    server.start()
    assert set(server.ids()) >= left
    wait_for("all are running", lambda: states(server) == {"Running"})
    for sandbox in server.ids():
        server.call("DELETE", f"/v1/sandboxes/{sandbox}")
    traces.all_gone()


def test_sandboxes_whose_data_directory_is_gone_are_ended_but_not_while_their_server_lives(server):
    with serving() as other:
        sandbox = create(other)
        traces = Traces(other)
        traces.all_there(1)
        native(other).rename(native(other).with_name("aside"))
        doctor(server, "--fix")
        assert len(traces.processes()) >= 2, "its server lives"
        native(other).with_name("aside").rename(native(other))
        other.kill()
        assert fix(server) == "nothing to remove", "they may be wanted"
        native(other).rename(native(other).with_name("aside"))
        assert "2 control groups" in fix(server)
        wait_for("they have ended", lambda: not traces.processes())
        assert traces.cgroups() == []
        shutil.rmtree(native(other).with_name("aside"))
        other.start()
        other.call("DELETE", f"/v1/sandboxes/{sandbox}")
        traces.all_gone()


def test_beside_a_running_server_it_touches_nothing(server):
    sandbox = create(server)
    done = doctor(server, "--fix")
    assert done.returncode == 0
    assert "a server uses" in done.stderr
    assert done.stdout == "nothing to remove\n"
    assert answers(server, sandbox)


def test_without_a_database_sandboxes_stay(server, traces):
    sandbox = create(server)
    server.kill()
    aside = server.data_dir / "aside"
    aside.mkdir()
    for path in server.data_dir.glob("opensandbox.db*"):
        path.rename(aside / path.name)

    done = doctor(server, "--fix")

    assert (done.returncode, done.stdout) == (0, "nothing to remove\n"), done
    assert "no database" in done.stderr
    for path in aside.iterdir():
        path.rename(server.data_dir / path.name)
    server.start()
    assert answers(server, sandbox)


def killed_trial(server: Server) -> tuple[int, pathlib.Path]:
    """The number of a trial that was killed while it had a sandbox, and its directory."""
    command = [osb(), "doctor", "--data-dir", str(server.data_dir)]
    for _ in range(50):
        trial = subprocess.Popen(command, stdout=subprocess.DEVNULL)
        place = server.data_dir / f".osb-doctor-{trial.pid}"
        # Without a rest: a trial takes some milliseconds.
        while trial.poll() is None and not any(place.glob("sandboxes/*")):
            pass
        trial.kill()
        trial.wait()
        if place.is_dir():
            return trial.pid, place
    raise AssertionError("every trial was quicker than this test")


def test_a_trial_that_was_killed_is_removed(server):
    pid, place = killed_trial(server)

    def groups() -> list[pathlib.Path]:
        return list(CGROUPS.glob(f"**/opensandbox-doctor-{pid}"))

    assert groups()

    assert fix(server).startswith("removed ")

    assert not place.exists()
    assert groups() == []
    assert fix(server) == "nothing to remove"


def test_where_no_server_ever_was_there_is_nothing_to_remove(server):
    nowhere = Server(server.data_dir.parent / "nowhere")
    assert fix(nowhere) == "nothing to remove"
    assert not nowhere.data_dir.exists()


def states(server: Server) -> set[str]:
    answer = server.call("GET", "/v1/sandboxes?pageSize=200")
    return {item["status"]["state"] for item in json.loads(answer.body)["items"]}
