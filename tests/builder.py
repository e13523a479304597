"""Asks a server to build images, and tells what it said."""

from __future__ import annotations

import base64
import contextlib
import functools
import http.client
import io
import json
import pathlib
import shutil
import subprocess
import tarfile
import tempfile
import threading
from collections.abc import Iterator
from typing import Any

from served import Server

#: What the small image has beside its shell.
PASSWD = "root:x:0:0:root:/root:/bin/sh\napp:x:1000:1001::/srv/app:/bin/sh\n"
GROUP = "root:x:0:\napp:x:1001:\nextra:x:50:app\n"

Files = dict[str, str | bytes | tuple[str | bytes, int]]


class Outcome:
    """The events of a build, or the error that came instead of them."""

    def __init__(self, status: int, lines: list[bytes]) -> None:
        self.status = status
        self.events: list[dict[str, Any]] = [json.loads(line) for line in lines if line.strip()]

    @property
    def last(self) -> dict[str, Any]:
        return self.events[-1]

    @property
    def digest(self) -> str:
        assert self.last.get("type") == "image", self
        return self.last["digest"]

    @property
    def error(self) -> str:
        assert self.last.get("type") != "image", self
        return self.last["message"]

    @property
    def code(self) -> str:
        return self.last["code"]

    def said(self, stream: str | None = None) -> list[str]:
        """What the steps said, line by line."""
        return [
            event["text"]
            for event in self.events
            if event.get("type") == "output" and stream in (None, event["stream"])
        ]

    def steps(self) -> dict[str, str]:
        """Each step by its title, with what became of it."""
        titles = {e["step"]: e["title"] for e in self.events if e.get("type") == "began"}
        ends = {
            e["step"]: e["type"]
            for e in self.events
            if e.get("type") in ("cached", "done", "failed")
        }
        return {title: ends.get(step, "…") for step, title in titles.items()}

    def cached(self) -> int:
        return list(self.steps().values()).count("cached")

    def __repr__(self) -> str:
        return f"Outcome({self.status}, {json.dumps(self.events, indent=1)})"


def archive(request: dict[str, Any], files: Files | None = None) -> bytes:
    """What a build is asked for with."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=tarfile.PAX_FORMAT) as tar:
        add(tar, "build.json", json.dumps(request))
        for path, content in (files or {}).items():
            content, mode = content if isinstance(content, tuple) else (content, 0o644)
            add(tar, f"context/{path}", content, mode)
    return buffer.getvalue()


def add(tar: tarfile.TarFile, name: str, content: str | bytes, mode: int = 0o644) -> None:
    data = content.encode() if isinstance(content, str) else content
    info = tarfile.TarInfo(name)
    info.size, info.mode, info.mtime = len(data), mode, 1_700_000_000
    tar.addfile(info, io.BytesIO(data))


@contextlib.contextmanager
def building(server: Server, body: bytes) -> Iterator[http.client.HTTPResponse]:
    """The answer to a build as it comes. Leaving ends the build."""
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=300)
    headers = {"OPEN-SANDBOX-API-KEY": server.api_key, "Content-Type": "application/x-tar"}
    with contextlib.closing(connection):
        connection.request("POST", "/v1/images/build", body=body, headers=headers)
        yield connection.getresponse()


def send(server: Server, body: bytes) -> Outcome:
    with building(server, body) as answer:
        return Outcome(answer.status, answer.read().splitlines())


def build(
    server: Server, text: str | None, files: Files | None = None, /, **request: Any
) -> Outcome:
    """Builds a Dockerfile with these files beside it. Secrets are texts."""
    if text is not None:
        files = {"Dockerfile": text} | (files or {})
    return send(server, archive(encoded(request), files))


class Watched:
    """A build whose events arrive in a thread of their own."""

    def __init__(self) -> None:
        self.lines: list[bytes] = []
        self.status = 0
        self.thread = threading.Thread()

    def said(self) -> list[str]:
        return Outcome(self.status, list(self.lines)).said()

    def finish(self) -> Outcome:
        self.thread.join(120)
        assert not self.thread.is_alive(), "the build does not end"
        return Outcome(self.status, self.lines)


@contextlib.contextmanager
def watching(server: Server, dockerfile: str, **request: Any) -> Iterator[Watched]:
    """Begins a build, and goes on meanwhile."""
    watched = Watched()
    body = archive(encoded(request), {"Dockerfile": dockerfile})

    def read() -> None:
        with building(server, body) as answer:
            watched.status = answer.status
            for line in answer:
                watched.lines.append(line)

    watched.thread = threading.Thread(target=read, daemon=True)
    watched.thread.start()
    yield watched


def encoded(request: dict[str, Any]) -> dict[str, Any]:
    """The request with its secrets as they travel."""
    if secrets := request.get("secrets"):
        text = {k: base64.b64encode(v.encode()).decode() for k, v in secrets.items()}
        request = request | {"secrets": text}
    return request


def ldd(path: str) -> bytes:
    done = subprocess.run(["ldd", path], capture_output=True, check=False)
    return done.stdout + done.stderr


@functools.cache
def busybox() -> bytes:
    """A busybox that needs nothing else: that of this host, or Debian's."""
    for path in ("/bin/busybox", "/usr/bin/busybox"):
        if shutil.which(path) and b"not a dynamic" in ldd(path):
            return pathlib.Path(path).read_bytes()
    with tempfile.TemporaryDirectory() as place:
        subprocess.run(
            ["apt-get", "download", "-q", "-o", "APT::Sandbox::User=root", "busybox-static"],
            cwd=place,
            check=True,
            capture_output=True,
        )
        package = next(pathlib.Path(place).glob("*.deb"))
        subprocess.run(["dpkg-deb", "-x", package, f"{place}/x"], check=True)
        found = list(pathlib.Path(place, "x").glob("**/bin/busybox"))
        return found[0].read_bytes()


#: Now, for some suites leave the network later.
BUSYBOX = busybox()


@functools.cache
def rootfs() -> bytes:
    """The files of a small system."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as tar:
        for name, mode in {
            "bin": 0o755, "dev": 0o755, "etc": 0o755, "home": 0o755, "srv": 0o755, "srv/app": 0o755,
            "proc": 0o555, "root": 0o700, "run": 0o755, "sys": 0o555, "tmp": 0o1777,
            "usr": 0o755, "usr/bin": 0o755, "var": 0o755,
        }.items():
            info = tarfile.TarInfo(name)
            info.type, info.mode = tarfile.DIRTYPE, mode
            if name == "srv/app":
                info.uid, info.gid = 1000, 1001
            tar.addfile(info)
        add(tar, "bin/busybox", BUSYBOX, 0o755)
        add(tar, "etc/passwd", PASSWD)
        add(tar, "etc/group", GROUP)
        link = tarfile.TarInfo("bin/sh")
        link.type, link.linkname = tarfile.SYMTYPE, "busybox"
        tar.addfile(link)
        link = tarfile.TarInfo("var/run")
        link.type, link.linkname = tarfile.SYMTYPE, "../run"
        tar.addfile(link)
    return buffer.getvalue()


def make_base(server: Server, name: str = "small") -> str:
    """Makes an image with a shell and the usual programs."""
    dockerfile = """\
FROM scratch
ADD rootfs.tar /
ENV PATH=/bin:/usr/bin
RUN ["/bin/busybox", "--install", "-s", "/usr/bin"]
CMD ["sh"]
"""
    return build(server, dockerfile, {"rootfs.tar": rootfs()}, names=[name]).digest


def programs(*names: str) -> bytes:
    """Programs of this host as an archive, with all that they are loaded with."""
    buffer = io.BytesIO()
    paths = [pathlib.Path(found) for name in names if (found := shutil.which(name))]
    assert len(paths) == len(names), f"install {names}"
    for path in tuple(paths):
        words = ldd(str(path)).decode().split()
        paths += [pathlib.Path(word) for word in words if word.startswith("/")]
    with tarfile.open(fileobj=buffer, mode="w") as tar:
        for path in dict.fromkeys(paths):
            add(tar, str(path).lstrip("/"), path.read_bytes(), 0o755)
    return buffer.getvalue()
