"""Images and environments from the command line, with a server, a registry and Debian's packages."""

from __future__ import annotations

import hashlib
import http.client
import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import tarfile
import tempfile
from collections.abc import Iterator
from typing import Any

import pytest
from served import Server, free_port, osb, serving, wait_for

DEBIAN = "debian:bookworm"
DIGEST = re.compile(r"sha256:[0-9a-f]{64}\n")


def says(
    server: Server, *words: str, given: str = "", **options: Any
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [osb(), *words],
        env=variables(server),
        check=False,
        capture_output=True,
        text=True,
        input=given,
        **options,
    )


def variables(server: Server) -> dict[str, str]:
    known = {"OPEN_SANDBOX_DOMAIN": server.domain, "OPEN_SANDBOX_API_KEY": server.api_key}
    return os.environ | known


def does(server: Server, *words: str, **options: Any) -> str:
    """What a command prints that must succeed."""
    done = says(server, *words, **options)
    assert done.returncode == 0, done
    return done.stdout


def has(server: Server, name: str) -> bool:
    return says(server, "image", "inspect", name).returncode == 0


@pytest.fixture(scope="module")
def registry() -> Iterator[str]:
    """A registry on loopback, as host and port."""
    program = shutil.which("docker-registry")
    assert program, "docker-registry is not installed"
    with tempfile.TemporaryDirectory() as place:
        address = f"127.0.0.1:{free_port()}"
        config = pathlib.Path(place) / "config.yml"
        storage = {"filesystem": {"rootdirectory": f"{place}/data"}, "delete": {"enabled": True}}
        config.write_text(
            json.dumps({"version": "0.1", "storage": storage, "http": {"addr": address}})
        )
        with subprocess.Popen(
            [program, "serve", str(config)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        ) as process:
            try:
                wait_for("the registry answers", lambda: answers(address))
                yield address
            finally:
                process.terminate()


def answers(address: str) -> bool:
    connection = http.client.HTTPConnection(address, timeout=5)
    try:
        connection.request("GET", "/v2/")
        return connection.getresponse().status == 200
    except OSError:
        return False
    finally:
        connection.close()


@pytest.fixture(scope="module", name="server")
def server_with_registry(registry: str) -> Iterator[Server]:
    """A server that may talk to the registry."""
    assert os.geteuid() == 0, "the native runtime needs root here"
    with tempfile.TemporaryDirectory() as place:
        config = pathlib.Path(place) / "osb.toml"
        config.write_text(f'[images.registries."{registry}"]\ninsecure = true\n')
        with serving("--config", str(config)) as server:
            yield server


@pytest.fixture(scope="module")
def debian(server: Server) -> str:
    """Debian, made from its packages once and kept outside of the checkout."""
    kept = cache() / "debian-bookworm.tar"
    if kept.exists():
        does(server, "image", "import", str(kept), DEBIAN)
        return DEBIAN
    made = says(server, "image", "bootstrap", DEBIAN)
    assert made.returncode == 0, made
    assert DIGEST.fullmatch(made.stdout), made
    assert "osb: making debian:bookworm with mmdebstrap\n" in made.stderr, made
    assert len(made.stderr.splitlines()) < 20, made
    kept.parent.mkdir(parents=True, exist_ok=True)
    does(server, "image", "export", DEBIAN, str(kept))
    return DEBIAN


def cache() -> pathlib.Path:
    """Beside the directory that everything is compiled in, as tests/run has its own."""
    target = os.environ.get("CARGO_TARGET_DIR")
    around = pathlib.Path(target).parent if target else pathlib.Path(tempfile.gettempdir())
    return around / "tests" / "images"


@pytest.fixture(scope="module")
def small(server: Server, tmp_path_factory: pytest.TempPathFactory) -> str:
    """An image of one file, from a root file system."""
    name = "tests/small:1"
    root = tmp_path_factory.mktemp("small")
    (root / "hello").write_text("hello")
    archive = root / "root.tar"
    with tarfile.open(archive, "w") as tar:
        tar.add(root / "hello", "etc/hello")
    printed = does(server, "image", "import", str(archive), name)
    assert DIGEST.fullmatch(printed)
    return name


def test_an_image_from_packages_is_like_any_other(server: Server, debian: str) -> None:
    found = json.loads(does(server, "image", "inspect", debian, "-o", "json"))
    assert found["config"]["cmd"] == ["bash"]
    assert found["config"]["env"]["PATH"].startswith("/usr/local/sbin:")
    listed = does(server, "image", "ls")
    row = next(line for line in listed.splitlines() if line.startswith("debian:bookworm "))
    assert found["digest"].removeprefix("sha256:")[:12] in row
    assert "cmd         [\"bash\"]\n" in does(server, "image", "inspect", debian)


def test_a_command_runs_in_an_image(server: Server, debian: str) -> None:
    version = does(server, "run", "--image", debian, "--", "cat", "/etc/debian_version")
    assert version.startswith("12.")
    listed = does(server, "run", "--image", debian, "--", "cat", "/etc/apt/sources.list")
    assert " bookworm main\n" in listed and " bookworm-security main" in listed
    made = does(server, "sandbox", "create", "--image", debian).strip()
    assert json.loads(does(server, "image", "inspect", debian, "-o", "json"))["usedBy"] == 1
    does(server, "sandbox", "rm", made)


def test_an_image_that_nobody_has_is_the_reason(server: Server, registry: str) -> None:
    ran = says(server, "run", "--image", f"{registry}/no/such:1", "--", "true")
    assert ran.returncode == 125 and "no/such" in ran.stderr, ran
    assert server.ids() == []
    pulled = says(server, "image", "pull", f"{registry}/no/such:1")
    assert (pulled.returncode, pulled.stdout) == (1, ""), pulled
    assert "osb explain " in pulled.stderr, pulled
    assert says(server, "image", "inspect", "no/such:1").returncode == 1


def test_what_is_pushed_can_be_pulled(server: Server, registry: str, small: str) -> None:
    there = f"{registry}/tests/small:2"
    pushed = says(server, "image", "push", small, there)
    assert pushed.returncode == 0 and DIGEST.fullmatch(pushed.stdout), pushed
    assert "osb: pushing\n" in pushed.stderr or not pushed.stderr, pushed
    assert not has(server, there) or does(server, "image", "rm", there)
    pulled = says(server, "image", "pull", there)
    assert (pulled.returncode, pulled.stdout) == (0, pushed.stdout), pulled
    assert f"osb: pulling {there}\n" in pulled.stderr, pulled
    known = says(server, "image", "pull", there, "-u", "ada", "--password-stdin", given="x\n")
    assert known.returncode == 0, known
    told = says(server, "image", "pull", there, "--username", "ada")
    assert told.returncode == 2 and "--password-stdin" in told.stderr, told


def test_archives_go_out_and_come_in(
    server: Server, small: str, tmp_path: pathlib.Path
) -> None:
    digest = json.loads(does(server, "image", "inspect", small, "-o", "json"))["digest"]
    for kind in ["oci", "docker"]:
        archive = tmp_path / f"{kind}.tar"
        does(server, "image", "export", small, str(archive), "--format", kind)
        with tarfile.open(archive) as tar:
            assert ("manifest.json" in tar.getnames()) == (kind == "docker")
        printed = does(server, "image", "import", str(archive), f"tests/again:{kind}")
        assert printed == f"{digest}\n"
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith(".")] == []
    with subprocess.Popen(
        [osb(), "image", "export", small], env=variables(server), stdout=subprocess.PIPE
    ) as process:
        assert process.stdout
        streamed = hashlib.sha256(process.stdout.read()).hexdigest()
    assert process.returncode == 0
    assert streamed == hashlib.sha256((tmp_path / "oci.tar").read_bytes()).hexdigest()
    missing = says(server, "image", "export", "no/such", str(tmp_path / "no.tar"))
    assert missing.returncode == 1 and not (tmp_path / "no.tar").exists()


def test_names_come_and_go_and_garbage_goes(server: Server, small: str) -> None:
    does(server, "image", "tag", small, "tests/other:1")
    assert has(server, "tests/other:1")
    removed = says(server, "image", "rm", "tests/other:1", "no/such:1")
    assert (removed.returncode, removed.stdout) == (1, "tests/other:1\n"), removed
    assert not has(server, "tests/other:1") and has(server, small)
    collected = json.loads(does(server, "image", "gc", "-o", "json"))
    assert set(collected) == {"images", "layers", "blobs", "bytes"}
    assert has(server, small)


def context(place: pathlib.Path) -> pathlib.Path:
    (place / "Dockerfile").write_text(
        f"FROM {DEBIAN} AS first\n"
        "ARG WORD=none\n"
        "RUN echo said-$WORD && echo $WORD > /word\n"
        "FROM first\n"
        "COPY . /context\n"
        "RUN --mount=type=secret,id=token test $(cat /run/secrets/token) = s3cret\n"
        'CMD ["cat", "/word"]\n'
    )
    (place / ".dockerignore").write_text("ignored\n")
    (place / "ignored").write_text("x" * 4096)
    (place / "kept").write_text("kept")
    (place / "token").write_text("s3cret")
    return place


def test_a_dockerfile_is_built_step_by_step(
    server: Server, debian: str, tmp_path: pathlib.Path
) -> None:
    assert debian == DEBIAN
    place = context(tmp_path)
    build = [
        *("image", "build", "-t", "tests/built:1", "--build-arg", "WORD=ahoy", "--label", "a=b"),
        *("--secret", f"id=token,src={place / 'token'}", str(place)),
    ]
    built = says(server, *build)
    assert built.returncode == 0 and DIGEST.fullmatch(built.stdout), built
    assert re.search(r"^osb: DONE [0-9.]+s .*RUN echo said", built.stderr, re.MULTILINE), built
    assert "said-ahoy" not in built.stderr.replace("RUN echo said-$WORD", ""), built
    again = says(server, *build)
    assert (again.returncode, again.stdout) == (0, built.stdout), again
    assert re.search(r"^osb: CACHED .*RUN echo said", again.stderr, re.MULTILINE), again
    found = json.loads(does(server, "image", "inspect", "tests/built:1", "-o", "json"))
    assert found["config"]["cmd"] == ["cat", "/word"]
    assert found["config"]["labels"]["a"] == "b"
    listed = does(server, "run", "--image", "tests/built:1", "--", "ls", "/context")
    assert "kept" in listed and "ignored" not in listed
    verbose = says(server, *build, "--no-cache", "--verbose")
    assert "osb:   said-ahoy\n" in verbose.stderr, verbose


def test_a_step_that_fails_shows_what_it_said(server: Server, debian: str) -> None:
    dockerfile = f"FROM {debian}\nRUN echo because >&2; exit 3\n"
    built = says(server, "image", "build", "-", given=dockerfile)
    assert (built.returncode, built.stdout) == (1, ""), built
    assert "osb:   because\n" in built.stderr and "FAILED" in built.stderr, built
    assert "Dockerfile:2: " in built.stderr, built


def test_whoever_stops_waiting_stops_the_build(server: Server, debian: str) -> None:
    dockerfile = f"FROM {debian}\nRUN echo begun; sleep 600\n"
    with subprocess.Popen(
        [osb(), "image", "build", "--verbose", "-"],
        env=variables(server),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdin and process.stderr
        process.stdin.write(dockerfile)
        process.stdin.close()
        assert any("begun" in line for line in process.stderr if "RUN" not in line)
        process.send_signal(signal.SIGINT)
        assert process.wait(30) == 130
    wait_for("no step is left", lambda: not sleeping())


def sleeping() -> bool:
    found = subprocess.run(
        ["pgrep", "-f", "^sleep 600$"], check=False, capture_output=True, text=True
    )
    return found.returncode == 0


def test_environments_come_with_the_program(server: Server) -> None:
    rows = json.loads(does(server, "environment", "ls", "-o", "json"))
    assert [row["name"] for row in rows] == ["base", "code-interpreter"]
    assert "not built" in does(server, "environment", "ls")
    unknown = says(server, "environment", "build", "bas")
    assert unknown.returncode == 2 and "there are: base, code-interpreter" in unknown.stderr
