"""What is built here is what Docker builds, and Docker runs it.

Needs `dockerd` (Debian: docker.io) and root. A daemon of its own is started, with a directory and a socket
of its own; nothing that else runs on the machine is touched.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import pathlib
import shutil
import subprocess
import tarfile
import tempfile
from collections.abc import Iterator

import pytest
from builder import add, build, make_base
from served import Server, serving, wait_for

#: Without what Docker's older builder does not know or does otherwise, such as whom a WORKDIR belongs to.
DOCKERFILE = """\
FROM small AS compile
ARG MODE=fast
ENV LEVEL=3
WORKDIR /src
COPY src/ ./
RUN cat main.c > /out && echo "$MODE $LEVEL $PWD $HOME" >> /out
FROM small
LABEL org.example.a=b
COPY --from=compile --chown=app:extra /out /srv/out
COPY . /all/
ADD inner.tgz /archive/
RUN rm /etc/group && mkdir -p /var/deep/er && ln -s ../deep /var/deep/link && chmod 2711 /var/deep
RUN rm -rf /srv/app && mkdir /srv/app && chown 1000:1001 /srv/app && ln /all/tool.sh /all/again
USER app
WORKDIR /srv/app
RUN id -u > who; touch /tmp/mine; ln -s nowhere dangling
ENV GREETING="hello you"
EXPOSE 8080/tcp
VOLUME /data
STOPSIGNAL SIGINT
ENTRYPOINT ["sh", "-c", "cat /srv/out; pwd; id; echo $GREETING $0"]
CMD ["arguments"]
"""

#: Everything but times, and what either puts into every sandbox of its own.
LIST = (
    "find / -xdev \\( -path /proc -o -path /sys -o -path /dev -o -path /data -o -path /etc/hosts "
    "-o -path /etc/hostname -o -path /etc/resolv.conf -o -path /.dockerenv -o -path /run \\) -prune "
    "-o -exec stat -c '%n %F %a %u:%g %s %h %N' {} +"
)


class Docker:
    """A daemon of its own."""

    def __init__(self, place: pathlib.Path) -> None:
        self.socket = f"unix://{place}/docker.sock"
        self.log = place / "log"
        options = {
            "host": self.socket,
            "data-root": f"{place}/data",
            "exec-root": f"{place}/exec",
            "pidfile": f"{place}/pid",
            "bridge": "none",
            "iptables": "false",
            "ip6tables": "false",
            "config-file": f"{place}/daemon.json",
        }
        (place / "daemon.json").write_text("{}")
        arguments = [f"--{name}={value}" for name, value in options.items()]
        with open(self.log, "wb") as log:
            self.process = subprocess.Popen(["dockerd", *arguments], stdout=log, stderr=log)

    def __call__(self, *words: str, stdin: bytes = b"") -> str:
        done = subprocess.run(
            ["docker", "--host", self.socket, *words],
            input=stdin,
            capture_output=True,
            env=os.environ | {"DOCKER_BUILDKIT": "0"},
            check=False,
        )
        assert done.returncode == 0, (words, done.stderr.decode(), self.log.read_text()[-2000:])
        return done.stdout.decode()

    def answers(self) -> bool:
        assert self.process.poll() is None, self.log.read_text()[-4000:]
        done = subprocess.run(
            ["docker", "--host", self.socket, "info"], capture_output=True, check=False
        )
        return done.returncode == 0


@pytest.fixture(scope="module")
def docker() -> Iterator[Docker]:
    if not (shutil.which("dockerd") and shutil.which("docker")):
        why = "dockerd is not installed (Debian: docker.io)"
        assert "docker" not in os.environ.get("OSB_REQUIRE", "").split(","), why
        pytest.skip(f"not run: {why}")
    place = pathlib.Path(tempfile.mkdtemp(prefix="osb-docker-", dir="/var/tmp"))
    docker = Docker(place)
    try:
        wait_for("dockerd answers", docker.answers, 60)
        yield docker
    finally:
        docker.process.terminate()
        docker.process.wait(60)
        mounted = [line.split()[4] for line in open("/proc/self/mountinfo") if str(place) in line]
        for mount in reversed(mounted):
            subprocess.run(["umount", mount], check=False)
        shutil.rmtree(place, ignore_errors=True)


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    assert os.geteuid() == 0, "the native runtime needs root here"
    with serving() as server:
        make_base(server)
        yield server


def exported(server: Server, name: str) -> bytes:
    answer = server.call("GET", f"/v1/images/export?name={name}&format=docker", timeout=120)
    assert answer.status == 200, answer
    return answer.body


def context() -> dict:
    inner = io.BytesIO()
    with tarfile.open(fileobj=inner, mode="w:gz") as tar:
        add(tar, "unpacked/file", "from an archive", 0o600)
    return {
        "src/main.c": "int main;",
        "README.md": "not copied",
        "tool.sh": ("#!/bin/sh\n", 0o755),
        ".dockerignore": "*.md\nDockerfile\n.dockerignore\n",
        "inner.tgz": inner.getvalue(),
    }


@contextlib.contextmanager
def on_disk(files: dict) -> Iterator[str]:
    with tempfile.TemporaryDirectory() as place:
        for name, content in files.items():
            content, mode = content if isinstance(content, tuple) else (content, 0o644)
            path = pathlib.Path(place, name)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content.encode() if isinstance(content, str) else content)
            path.chmod(mode)
        yield place


def test_docker_builds_the_same_and_runs_what_is_built_here(server, docker):
    built = build(server, DOCKERFILE, context(), names=["ours:1"], args={"MODE": "slow"})
    assert built.digest, built
    for name in ("small:latest", "ours:1"):
        docker("load", stdin=exported(server, name))
    with on_disk(context() | {"Dockerfile": DOCKERFILE}) as place:
        docker("build", "--network=none", "--build-arg=MODE=slow", "-t", "theirs:1", place)
    run = ("run", "--rm", "--network=none")
    ours, theirs = docker(*run, "ours:1"), docker(*run, "theirs:1")
    assert ours == theirs
    assert ours.splitlines()[0] == "int main;slow 3 /src /root"
    assert docker(*run, "ours:1", "other").splitlines()[-1] == "hello you other"
    look = (*run, "--user=0", "--entrypoint=sh")
    ours, theirs = (
        sorted(docker(*look, name, "-c", LIST).splitlines()) for name in ("ours:1", "theirs:1")
    )
    assert ours == theirs
    assert len(ours) > 300, "all programs of the base are in it"
    configs = [
        json.loads(docker("inspect", name))[0]["Config"] for name in ("ours:1", "theirs:1")
    ]
    for key in (
        "Env", "Cmd", "Entrypoint", "WorkingDir", "User", "Labels", "ExposedPorts", "Volumes",
        "StopSignal",
    ):
        one, other = (config.get(key) for config in configs)
        assert one == other, key
