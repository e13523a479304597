"""Builds the environments as the published recipes say, once for each state of the recipes."""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import http.client
import io
import json
import os
import pathlib
import re
import shutil
import subprocess
import tarfile
import tempfile
import time
from collections.abc import Iterator

import network
from served import ROOT, Server, serving

RECIPES = ROOT / "environments"
#: In this order: what the second begins with is then there already.
NAMES = ["base", "code-interpreter"]
RELEASE = "bookworm"
#: For how many seconds an environment is kept that nobody uses. Other checkouts may have other recipes.
KEPT = 14 * 24 * 3600


def cache() -> pathlib.Path:
    """Where environments are kept that were built; `tests/run` says it."""
    home = pathlib.Path(os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache")
    return pathlib.Path(os.environ.get("OSB_ENVIRONMENTS", home / "opensandbox/tests/environments"))


def state() -> str:
    """What the recipes are now."""
    hashed = hashlib.sha256()
    for file in sorted(RECIPES.glob("*/**/*")):
        if file.is_file():
            content = hashlib.sha256(file.read_bytes()).hexdigest()
            mode = file.stat().st_mode & 0o111
            hashed.update(f"{file.relative_to(RECIPES)} {mode:o} {content}\n".encode())
    return hashed.hexdigest()[:16]


def archives() -> dict[str, pathlib.Path]:
    """An archive of each environment. Whoever comes first builds them, and others wait for it."""
    assert os.geteuid() == 0, "the native runtime needs root here"
    place = cache() / state()
    made = {name: place / f"{name}.tar" for name in NAMES}
    cache().mkdir(parents=True, exist_ok=True)
    with open(cache() / "lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not place.exists():
            build(place)
        os.utime(place)
        for other in cache().iterdir():
            if other.is_dir() and time.time() - other.stat().st_mtime > KEPT:
                shutil.rmtree(other)
    return made


def build(place: pathlib.Path) -> None:
    with tempfile.TemporaryDirectory(prefix="osb-environments-") as scratch:
        directory = pathlib.Path(scratch)
        debian = directory / "debian.tar"
        bootstrap(debian)
        recipe = (RECIPES / "code-interpreter/Dockerfile").read_text()
        maven = re.search(r"^ARG MAVEN_REPOSITORY=(\S+)", recipe, flags=re.M)
        assert maven, "the recipe says where the kernel of Java is"
        around = network.look(sources(debian), maven[1])
        config = directory / "osb.toml"
        config.write_text(around.settings(directory))
        unfinished = place.with_name(f"{place.name}.unfinished")
        shutil.rmtree(unfinished, ignore_errors=True)
        unfinished.mkdir()
        with serving("--config", str(config)) as server, open(unfinished / "log", "w") as log:
            import_archive(server, debian, f"debian:{RELEASE}")
            for name in NAMES:
                steps(server, name, around.args, log)
            for name in NAMES:
                export(server, f"opensandbox/{name}", unfinished / f"{name}.tar")
            unfinished.rename(place)


def bootstrap(archive: pathlib.Path) -> None:
    """Makes what the recipes begin with from packages, as this machine gets them."""
    listed = network.said(
        "apt-get",
        "indextargets",
        "--format",
        "deb $(REPO_URI) $(RELEASE) $(COMPONENT)",
        "Created-By: Packages",
        "Origin: Debian",
    )
    own = [line for line in listed.splitlines() if re.search(rf" {RELEASE}(-\S+)? ", line)]
    # A mirror may be a copy of some day in the past, and then this machine says so.
    outdated = network.said("apt-config", "dump", "Acquire::Check-Valid-Until").rstrip(";")
    command = ["mmdebstrap", "--quiet", "--variant=minbase", *([f"--aptopt={outdated}"] if outdated else [])]
    ended = subprocess.run(
        [*command, RELEASE, archive, *dict.fromkeys(own)],
        check=False, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
    )  # fmt: skip
    assert ended.returncode == 0, ended.stdout


def sources(archive: pathlib.Path) -> str:
    """Where a system that was made from packages will get more of them."""
    with tarfile.open(archive) as tar:
        lists = [member for member in tar if re.search(r"etc/apt/sources\.list", member.name) and member.isfile()]
        return "\n".join(tar.extractfile(member).read().decode() for member in lists)


@contextlib.contextmanager
def asking(server: Server, method: str, path: str, body: object = None, size: int = 0) -> Iterator[http.client.HTTPResponse]:
    """A request whose body or answer is long. Steps may be silent for a while."""
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=900)
    headers = {"OPEN-SANDBOX-API-KEY": server.api_key, "Content-Type": "application/x-tar"}
    if body is not None:
        headers["Content-Length"] = str(size)
    with contextlib.closing(connection):
        connection.request(method, path, body=body, headers=headers)
        answer = connection.getresponse()
        if answer.status != 200:
            raise AssertionError(f"{method} {path}: {answer.status} {answer.read(4096)!r}")
        yield answer


def import_archive(server: Server, archive: pathlib.Path, name: str) -> None:
    path = f"/v1/images/import?name={name}"
    with open(archive, "rb") as body, asking(server, "POST", path, body, archive.stat().st_size) as answer:
        answer.read()


def export(server: Server, name: str, archive: pathlib.Path) -> None:
    with asking(server, "GET", f"/v1/images/export?name={name}&format=oci") as answer, open(archive, "wb") as file:
        shutil.copyfileobj(answer, file, 1 << 20)


def steps(server: Server, name: str, args: dict[str, str], log: io.TextIOBase) -> None:
    """Builds one environment, and writes down what its steps say, and when."""
    body = request(name, args)
    began = time.monotonic()
    last = {"type": "nothing"}
    with asking(server, "POST", "/v1/images/build", body, len(body)) as answer:
        for line in answer:
            last = json.loads(line)
            log.write(f"{time.monotonic() - began:7.1f} {name} {json.dumps(last)}\n")
            log.flush()
    assert last["type"] == "image", f"{name}: {last}"


def request(name: str, args: dict[str, str]) -> bytes:
    """What a build of an environment is asked for with."""
    known = re.findall(r"^ARG (\w+)", (RECIPES / name / "Dockerfile").read_text(), flags=re.M)
    asked = {
        "names": [f"opensandbox/{name}:latest"],
        "args": {key: value for key, value in args.items() if key in known},
    }
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=tarfile.PAX_FORMAT) as tar:
        content = json.dumps(asked).encode()
        info = tarfile.TarInfo("build.json")
        info.size = len(content)
        tar.addfile(info, io.BytesIO(content))
        tar.add(RECIPES / name, "context", filter=as_root)
    return buffer.getvalue()


def as_root(info: tarfile.TarInfo) -> tarfile.TarInfo:
    info.uid = info.gid = 0
    info.uname = info.gname = "root"
    return info
