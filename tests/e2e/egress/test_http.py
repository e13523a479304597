"""What HTTP may do arrives as it was sent, read and unread."""

from __future__ import annotations

import hashlib
import json
import pathlib

import pytest
from shops import TWO, WEB

WAY = f"https://{WEB}"
MUCH = 200_000_000
#: What the server may need in addition while much passes.
ROOM_KIB = 64 << 10

#: What programs inside begin with: a connection to a host by name, and bytes as they are.
RAW = f"""
import socket, ssl
def call(data=b"", host="{WEB}", scheme="https"):
    stream = socket.create_connection((host, 443 if scheme == "https" else 80), timeout=60)
    if scheme == "https":
        stream = ssl.create_default_context().wrap_socket(stream, server_hostname=host)
    stream.sendall(data)
    return stream, stream.makefile("rb")
def ask(what, *headers, body=b"", scheme="https"):
    lines = [what + " HTTP/1.1", "Host: {WEB}", *headers, "", ""]
    return call("\\r\\n".join(lines).encode() + body, scheme=scheme)
def head(lines):
    said = []
    while (line := lines.readline().strip()):
        said.append(line.decode())
    return said
"""


def peak(pid: int) -> int:
    """The most memory that a process has had, in KiB."""
    status = pathlib.Path(f"/proc/{pid}/status").read_text()
    return int(status.partition("VmHWM:")[2].split()[0])


@pytest.fixture
def frugal(client):
    """The server needs no memory for what passes."""
    pid = client.server.process.pid
    pathlib.Path(f"/proc/{pid}/clear_refs").write_text("5")
    before = peak(pid)
    yield
    assert peak(pid) - before < ROOM_KIB


@pytest.mark.parametrize("host", [WEB, TWO])
def test_much_is_downloaded(client, frugal, host):
    said = client.run(f"curl -sS https://{host}/bytes/{MUCH} | wc -c")
    assert int(said) == MUCH


def test_much_is_downloaded_in_chunks(client, frugal):
    assert int(client.run(f"curl -sS {WAY}/chunks/{MUCH} | wc -c")) == MUCH


@pytest.mark.parametrize("host", [WEB, TWO])
def test_much_is_uploaded(client, frugal, host):
    # From a pipe: nobody knows how long it is.
    said = client.run(f"head -c {MUCH} /dev/zero | curl -sS -T - https://{host}/echo")
    digest = hashlib.sha256()
    for _ in range(MUCH // 1_000_000):
        digest.update(bytes(1_000_000))
    assert (json.loads(said)["length"], json.loads(said)["sha256"]) == (MUCH, digest.hexdigest())


def test_events_arrive_one_by_one(client):
    """Each is sent after the one before was received."""
    said = client.python(f"""
        import requests
        session = requests.Session()
        with session.get("{WAY}/events/5", stream=True, timeout=15) as events:
            for line in events.iter_lines(chunk_size=1):
                if line:
                    print(line.decode())
                    requests.get("{WAY}/told")
        """)
    assert said.splitlines() == [f"data: {number}" for number in range(5)]


def test_both_sides_speak_at_once(client):
    """Each part is sent after the one before was answered. Parts are lines: others wait for more,
    so that nobody learns from them where a secret begins."""
    said = client.python(RAW + f"""
stream, lines = ask("POST /duplex", "Transfer-Encoding: chunked")
for number in range(5):
    stream.sendall(b"5\\r\\npart\\n\\r\\n")
    if number == 0:
        head(lines)
    size = int(lines.readline(), 16)
    print(lines.read(size).decode().strip())
    lines.readline()
stream.sendall(b"0\\r\\n\\r\\n")
print(lines.readline().strip().decode())
""")
    assert said.splitlines() == ["PART"] * 5 + ["0"]


def test_both_sides_speak_at_once_in_http_2(client):
    said = client.node(f"""
        import {{ connect }} from "node:http2";
        const session = connect("https://{TWO}");
        const stream = session.request({{ ":path": "/duplex", ":method": "POST" }});
        let number = 0;
        stream.write("part\\n");
        for await (const part of stream.setEncoding("utf8")) {{
          console.log(part.trim());
          if (++number < 5) stream.write("part\\n");
          else stream.end();
        }}
        session.close();
        """)
    assert said.splitlines() == ["PART"] * 5


def test_headers_keep_their_case_and_their_number_and_those_of_requests_their_order(client):
    names = ["Host", "X-Zed", "x-lower", "X-UPPER", "Accept", "X-Again", "X-Again", "Cookie"]
    sent = [*names[:2], "Connection", *names[2:]]
    values = {"Host": WEB, "Connection": "keep-alive"}
    lines = "".join(f"{name}: {values.get(name, 'v')}\\r\\n" for name in sent)
    said = client.python(RAW + f"""
stream, lines = call(b"GET /many/150 HTTP/1.1\\r\\n{lines}\\r\\n")
print("\\n".join(head(lines)))
""")
    added = ("Connection", "Authorization", "Accept-Encoding")
    assert [name for name, _ in client.seen(WEB)[0]["headers"] if name not in added] == names
    answered = [line.partition(":")[0] for line in said.splitlines() if line.startswith("X-")]
    assert sorted(answered) == sorted(f"X-{number}" for number in range(150))


def test_large_headers(client):
    long = "v" * 30_000
    client.python(f"""
        import requests
        answer = requests.get("{WAY}/headers/30000", headers={{"X-Long": "{long}"}})
        assert answer.headers["X-Long-29"] == "v" * 1000
        """)
    assert dict(client.seen(WEB)[0]["headers"])["X-Long"] == long


def test_trailers(client):
    said = client.python(RAW + f"""
stream, lines = ask("GET /trailers", "TE: trailers", "Connection: TE")
head(lines)
print("\\n".join(head(lines)))
""")
    assert "X-Sum: 42" in said.splitlines() and "X-Late: yes" in said.splitlines(), said
    client.python(RAW + f"""
body = b"4\\r\\ntext\\r\\n0\\r\\nX-Sum: 42\\r\\n\\r\\n"
stream, lines = ask("POST /echo", "Transfer-Encoding: chunked", "Trailer: X-Sum", body=body)
assert "200" in head(lines)[0]
""")
    assert client.seen(WEB, "/echo")[0]["trailers"] == ["X-Sum: 42"]


def test_trailers_of_http_2(client):
    said = client.node(f"""
        import {{ connect }} from "node:http2";
        const session = connect("https://{TWO}");
        const ask = async (path, trailers) => {{
          const options = {{ waitForTrailers: true }};
          const stream = session.request({{ ":path": path, ":method": "POST", te: "trailers" }}, options);
          stream.on("wantTrailers", () => stream.sendTrailers(trailers));
          stream.end("text");
          const late = new Promise((done) => stream.on("trailers", done));
          let said = "";
          for await (const part of stream.setEncoding("utf8")) said += part;
          return [said, late];
        }};
        const [body, late] = await ask("/trailers", {{}});
        console.log(body, (await late)["grpc-status"]);
        await ask("/echo", {{ "x-sum": "42" }});
        session.close();
        """)
    assert said == "body 7"
    assert client.seen(TWO, "/echo")[0]["trailers"] == {"x-sum": "42"}


def test_a_body_that_waits_for_leave_gets_it(client):
    curl = "curl -sSv -H 'Expect: 100-continue' --data-binary @-"
    said = client.run(f"head -c 100000 /dev/zero | {curl} {WAY}/echo 2>&1")
    assert "HTTP/1.1 100 Continue" in said and '"length": 100000' in said


def test_a_body_that_is_not_wanted_is_not_sent(client):
    said = client.python(RAW + f"""
stream, lines = ask("POST /early", "Content-Length: 100000", "Expect: 100-continue")
print(head(lines)[0])
""")
    assert said == "HTTP/1.1 413 Request Entity Too Large"


def test_an_answer_that_comes_before_the_end_of_the_question_arrives(client):
    said = client.python(RAW + f"""
stream, lines = ask("POST /early", "Content-Length: 1000000", body=bytes(1000))
print(head(lines)[0])
""")
    assert said == "HTTP/1.1 413 Request Entity Too Large"


def test_an_answer_that_comes_before_the_end_of_the_question_arrives_in_http_2(client):
    said = client.node(f"""
        import {{ connect }} from "node:http2";
        const session = connect("https://{TWO}");
        const stream = session.request({{ ":path": "/early", ":method": "POST" }});
        stream.write("the beginning");
        stream.on("response", (headers) => console.log(headers[":status"]));
        // Whoever has answered may close the stream, without an error.
        stream.on("data", (part) => process.stdout.write(part));
        await new Promise((done) => stream.on("end", done).on("close", done));
        session.destroy();
        """)
    assert said.splitlines() == ["413", "too much"]


def test_ranges_conditions_and_answers_without_a_body(client):
    said = client.python(f"""
        import requests
        with requests.Session() as session:
            whole = session.get("{WAY}/text.txt")
            part = session.get("{WAY}/text.txt", headers={{"Range": "bytes=5-9"}})
            print(part.status_code, part.headers["Content-Range"], part.text == whole.text[5:10])
            head = session.head("{WAY}/text.txt")
            print(head.status_code, int(head.headers["Content-Length"]) == len(whole.content))
            same = session.get("{WAY}/text.txt", headers={{"If-None-Match": whole.headers["ETag"]}})
            print(same.status_code, len(same.content), same.headers["ETag"] == whole.headers["ETag"])
            none = session.get("{WAY}/status/204")
            print(none.status_code, none.headers["Set-Cookie"], "Content-Length" in none.headers)
            packed = session.get("{WAY}/gzip")
            print(packed.headers["Content-Encoding"], packed.text == "many words " * 1000)
            well = session.get("{WAY}/reason")
            print(well.status_code, well.reason)
            print(len({{session.get("{WAY}/connection").text for _ in range(5)}}))
        """)
    length = sum(len(f"line {number}\n") for number in range(1000))
    assert said.splitlines() == [
        f"206 bytes 5-9/{length} True",
        "200 True",
        "304 0 True",
        "204 a=1 False",
        "gzip True",
        "299 Quite Well",
        "1",
    ]


def test_a_host_that_hangs_up_on_a_kept_connection_is_asked_again(client):
    said = client.python(f"""
        import requests
        with requests.Session() as session:
            session.mount("https://", requests.adapters.HTTPAdapter(max_retries=1))
            print(*[session.get("{WAY}/hang-up").text for _ in range(3)])
        """)
    assert said == "kept alive kept alive kept alive"


def test_a_client_that_has_said_all_still_gets_its_answer(client):
    """The answer is complete long after the client has ended its side."""
    said = client.python(RAW + f"""
stream, lines = ask("GET /events/2", scheme="http")
stream.shutdown(socket.SHUT_WR)
head(lines)
for event in lines:
    if event.startswith(b"data"):
        print(event.decode().strip())
        told, answer = ask("GET /told", scheme="http")
        head(answer)
""")
    assert said.splitlines() == ["data: 0", "data: 1"]
