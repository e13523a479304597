"""Dockerfiles, built by a real server in its own sandboxes."""

from __future__ import annotations

import io
import json
import os
import pathlib
import sys
import tarfile
import threading
import time
from collections.abc import Iterator

import pytest
from builder import Outcome, add, archive, build, building, make_base, send, watching
from leaks import holds
from served import Server, serving, wait_for

sys.path.append(str(pathlib.Path(__file__).resolve().parent.parent / "recovery"))
from traces import Traces  # noqa: E402

#: All that a Dockerfile usually has.
EVERYTHING = """\
# syntax=docker/dockerfile:1
ARG BASE=small
FROM $BASE AS compile
ARG MODE=fast
ENV LEVEL=3
WORKDIR /src
COPY src/ ./
RUN cat main.c > /out && echo "$MODE $LEVEL $PWD $HOME" >> /out
FROM small
LABEL org.example.a=b maintainer="somebody"
COPY --from=compile --chown=app:extra --chmod=640 /out /srv/out
COPY . /all/
ADD --chown=app inner.tgz /archive/
SHELL ["/bin/sh", "-ec"]
RUN <<END
echo "$0" > /heredoc
false || echo more >> /heredoc
END
RUN --mount=type=cache,target=/cache echo 1 >> /cache/count && cat /cache/count
RUN rm /etc/group && mkdir -p /var/deep/er && ln -s ../deep /var/deep/link
USER app
WORKDIR /srv/app/work
RUN id -u > who; touch /tmp/mine
EXPOSE 8080/tcp 53/udp
VOLUME /data
STOPSIGNAL SIGINT
HEALTHCHECK --interval=5s CMD true
ENTRYPOINT ["cat"]
CMD ["/srv/out"]
"""


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    assert os.geteuid() == 0, "the native runtime needs root here"
    with serving() as server:
        make_base(server)
        yield server


def shows(server: Server, image: str, command: str) -> list[str]:
    """What a command says in an image."""
    outcome = build(server, f"FROM {image}\nRUN {command}\n", noCache=True)
    assert outcome.digest, outcome
    return outcome.said("stdout")


def scratch(server: Server) -> list[pathlib.Path]:
    """What is kept for builds that are going on."""
    return list((server.data_dir / "builds" / "scratch").iterdir())


def test_a_dockerfile_with_everything_becomes_an_image(server):
    inner = io.BytesIO()
    with tarfile.open(fileobj=inner, mode="w:gz") as tar:
        add(tar, "unpacked/file", "from an archive", 0o600)
    files = {
        "src/main.c": "int main;",
        "README.md": "not copied",
        "tool.sh": ("#!/bin/sh\n", 0o755),
        ".dockerignore": "*.md\nDockerfile\n",
        "inner.tgz": inner.getvalue(),
    }
    outcome = build(server, EVERYTHING, files, names=["everything:1"], args={"MODE": "slow"})
    assert outcome.digest.startswith("sha256:"), outcome
    assert outcome.last["names"] == ["everything:1"]
    assert outcome.said() == ["1"]
    looked = shows(
        server,
        "everything:1",
        "cat /srv/out /heredoc who; ls /all; stat -c '%a %u:%g %n' /srv/out "
        "/all/tool.sh /archive/unpacked/file /tmp/mine /srv/app/work; "
        "ls /etc; readlink /var/deep/link; ls -d /cache || echo none; env",
    )
    assert looked[:4] == ["int main;slow 3 /src /root", "/bin/sh", "more", "1000"], looked
    assert looked[4:8] == [".dockerignore", "inner.tgz", "src", "tool.sh"] or looked[4:7] == [
        "inner.tgz",
        "src",
        "tool.sh",
    ]
    for line in (
        "640 1000:50 /srv/out",
        "755 0:0 /all/tool.sh",
        "600 1000:1001 /archive/unpacked/file",
        "644 1000:1001 /tmp/mine",
        "755 1000:1001 /srv/app/work",
        "passwd",
        "../deep",
        "none",
        "HOME=/srv/app",
    ):
        assert line in looked, (line, looked)
    assert "group" not in looked and "LEVEL=3" not in looked


def test_a_rebuild_is_taken_from_the_cache(server):
    steps = "".join(f"RUN echo {n} > /{n}\n" for n in range(9))
    dockerfile = f"FROM small\nCOPY a /a\n{steps}"
    first = build(server, dockerfile, {"a": "1"}, names=["ten"])
    assert first.digest and first.cached() == 0
    began = time.monotonic()
    again = build(server, dockerfile, {"a": "1"}, names=["ten"])
    # Nobody is held to it here; `make bench` is where times count.
    print(f"a rebuild of ten steps took {(time.monotonic() - began) * 1000:.0f} ms")
    assert again.cached() == 10 and again.digest == first.digest
    changed = build(server, dockerfile, {"a": "2"}, names=["ten"])
    assert changed.cached() == 0 and changed.digest != first.digest
    assert build(server, dockerfile, {"a": "1"}, noCache=True).cached() == 0
    assert server.call("GET", "/v1/images/build").json()["steps"] >= 20


def test_a_build_with_a_time_is_the_same_image_every_time(server):
    dockerfile = "FROM small\nRUN echo x > /x && mkdir /y && touch /y/z\nCOPY a /a\n"
    made = [
        build(server, dockerfile, {"a": "1"}, noCache=True, sourceDateEpoch=1_700_000_000).digest
        for _ in range(2)
    ]
    assert made[0] == made[1]


def test_secrets_are_for_one_step_and_on_no_disk(server):
    dockerfile = """\
FROM small
RUN --mount=type=secret,id=key,uid=1000,target=/var/run/key \\
    --mount=type=secret,id=key,env=KEY \\
    cat /run/key && echo " $KEY" && stat -c '%u:%a' /run/key && ! echo x > /run/key && \\
    sleep 2 && echo done > /done
RUN ls /run
"""
    secret = "correct horse battery staple"
    with watching(server, dockerfile, secrets={"key": secret}) as watched:
        wait_for("the step runs", lambda: "1000:400" in watched.said())
        # While it runs, too: only in memory.
        assert holds(server.data_dir, secret) == []
        outcome = watched.finish()
    assert outcome.digest and outcome.said("stdout") == [f"{secret} {secret}", "1000:400"]
    assert holds(server.data_dir, secret) == []
    # What it says is no part of what the step is.
    again = build(server, dockerfile, secrets={"key": "another"})
    assert again.cached() == 2 and again.digest == outcome.digest
    missing = build(server, "FROM small\nRUN --mount=type=secret,id=q,required true\n")
    assert missing.error.startswith("Dockerfile:2: the secret q is needed"), missing


def test_caches_outlive_builds_are_listed_and_can_be_removed(server):
    mount = "RUN --mount=type=cache,id=ours,target=/c,mode=0770,uid=1000 "
    first = build(server, f"FROM small\n{mount}echo a > /c/a; stat -c '%a %u' /c\n")
    assert first.digest and first.said() == ["770 1000"]
    assert build(server, f"FROM small\n{mount}cat /c/a\n").said() == ["a"]
    caches = server.call("GET", "/v1/images/build").json()["caches"]
    found = next(cache for cache in caches if cache["id"] == "ours")
    volumes = server.call("GET", "/v1/volumes").json()["items"]
    assert found["volume"] in [volume["name"] for volume in volumes]

    def forgotten() -> bool:
        # What a sandbox uses that is being removed goes with the next call.
        assert server.call("DELETE", "/v1/images/build").status == 204
        return server.call("GET", "/v1/images/build").json() == {"steps": 0, "caches": []}

    wait_for("everything is forgotten", forgotten)
    empty = build(server, f"FROM small\n{mount}ls -A /c\n")
    assert empty.digest and empty.said() == []


def test_a_failure_names_the_line_and_shows_the_last_words(server):
    failing = "FROM small\n\n# why\nRUN echo begun && \\\n    echo wrong >&2 && exit 3\nRUN never\n"
    outcome = build(server, failing)
    assert outcome.status == 200 and outcome.code == "IMAGE::BUILD_FAILED"
    lines = outcome.error.splitlines()
    assert lines[0] == "Dockerfile:4: the command ended with exit code 3"
    assert lines[1].startswith("   4 | RUN echo begun && ")
    assert sorted(lines[2:]) == ["     > begun", "     > wrong"]
    assert list(outcome.steps().values()) == ["done", "failed"]
    for dockerfile, expected in {
        "FROM small\nRUN kill -SEGV $$\n": "Dockerfile:2: the command was killed: ",
        'FROM small\nRUN ["/no/such"]\n': "a program was not found",
        "FROM small\nCOPY nothing /\n": "Dockerfile:2: nothing is not in the directory",
        "FROM nowhere.invalid/x\n": "Dockerfile:1: ",
        "FROM small\nUSER nobody\nRUN x\n": "Dockerfile:3: there is no user nobody",
        "FROM small\nRUN --mount=type=secret,id=s,uid=70000 x\n": "Dockerfile:2: uid=70000 of a",
        "FROM small\nCOPY u*/x /\n": "Dockerfile:2: u*/x is not in the directory",
    }.items():
        outcome = build(server, dockerfile)
        assert outcome.status == 200 and expected in outcome.error, outcome
    # The one that could not be pulled is counted as every other.
    metrics = server.call("GET", "/metrics").body.decode().splitlines()
    failed = 'opensandbox_image_pulls_total{outcome="failed"} '
    assert any(line.startswith(failed) and line != f"{failed}0" for line in metrics), metrics


def test_what_is_wrong_with_a_dockerfile_is_said_with_its_line(server):
    for dockerfile, expected in {
        "FROM small\nCOPPY a b\n": "Dockerfile:2: ",
        "": "Dockerfile:1: ",
        "RUN x\n": "Dockerfile:1: ",
    }.items():
        outcome = build(server, dockerfile)
        assert (outcome.status, outcome.code) == (400, "IMAGE::BUILD_INVALID"), outcome
        assert outcome.error.startswith(expected), outcome
    later = build(server, "FROM small\nRUN --mount=type=ssh true\n")
    assert later.code == "IMAGE::BUILD_INVALID" and later.error.startswith("Dockerfile:2: ")
    missing = build(server, None, {"a": "b"}, dockerfile="sub/Dockerfile")
    assert missing.status == 400 and "there is no sub/Dockerfile" in missing.error
    assert build(server, None, content="FROM small\nRUN echo inline\n").said() == ["inline"]


def test_a_step_that_needs_too_much_memory_says_so(server):
    eats = "FROM small\nRUN x=$(head -c 200000000 /dev/zero | tr '\\0' 'x'); echo ${#x}\n"
    outcome = build(server, eats, resourceLimits={"memory": "48Mi"})
    assert "more memory than the step may have" in outcome.error, outcome
    wrong = build(server, eats, resourceLimits={"memory": "much"})
    assert wrong.status == 400 and "resourceLimits.memory" in wrong.error


def test_a_step_cannot_write_more_than_its_disk_holds(server):
    fills = "FROM small\nRUN dd if=/dev/zero of=/full bs=1M count=100\n"
    outcome = build(server, fills, resourceLimits={"disk": "20Mi"})
    assert outcome.code == "IMAGE::BUILD_FAILED" and "No space left" in outcome.error, outcome
    fits = "FROM small\nRUN echo kept > /fits && rm -r /home && mkdir /home && chown app /home\n"
    assert build(server, fits, resourceLimits={"disk": "20Mi"}, names=["fits"]).digest
    assert shows(server, "fits", "cat /fits; ls -A /home; stat -c %u /home") == ["kept", "1000"]


def test_steps_are_in_no_list(server):
    with watching(server, "FROM small\nRUN echo up && sleep 2\n") as watched:
        wait_for("the step runs", lambda: watched.said() == ["up"])
        assert server.ids() == []
        ids = [path.name for path in (server.data_dir / "native" / "sandboxes").iterdir()]
        assert ids
        for sandbox in ids:
            assert server.call("GET", f"/v1/sandboxes/{sandbox}").status == 404
        assert watched.finish().digest


def test_whoever_stops_reading_ends_the_build(server):
    traces = Traces(server)
    with building(server, archive({}, {"Dockerfile": "FROM small\nRUN echo up; sleep 1000\n"})) as it:
        until_said(it, "up")
        traces.record()
        assert traces.processes()
    wait_for("nothing is left", lambda: not any(traces.left().values()), 30)
    wait_for("no context is left", lambda: not scratch(server), 10)


def until_said(answer, text: str) -> None:
    for line in answer:
        if json.loads(line).get("text") == text:
            return
    raise AssertionError(f"nobody said {text}")


def test_a_killed_server_leaves_nothing_and_the_next_goes_on():
    with serving() as server:
        make_base(server)
        traces = Traces(server)
        dockerfile = (
            "FROM small\nCOPY a /a\nRUN echo first > /first\n"
            "RUN --mount=type=tmpfs,target=/t --mount=type=cache,target=/c "
            "echo up; [ ! -e /c/quick ] || exit 0; touch /c/quick; sleep 1000\n"
        )
        with building(server, archive({}, {"Dockerfile": dockerfile, "a": "a"})) as answer:
            until_said(answer, "up")
            traces.record()
            assert traces.processes() and scratch(server)
            server.kill()
        server.start()
        wait_for("nothing is left", lambda: not any(traces.left().values()), 30)
        wait_for("no context is left", lambda: not scratch(server), 10)
        assert server.ids() == []
        again = build(server, dockerfile, {"a": "a"}, names=["again"])
        assert again.digest and again.cached() == 2, again
        assert shows(server, "again", "cat /first") == ["first"]


def hostile(entries, *, dockerfile: str = "FROM small\nCOPY . /all/\n") -> bytes:
    """An archive with a build and whatever `entries` adds."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as tar:
        add(tar, "build.json", "{}")
        if dockerfile:
            add(tar, "context/Dockerfile", dockerfile)
        entries(tar)
    return buffer.getvalue()


def link(tar: tarfile.TarFile, name: str, to: str, kind: bytes = tarfile.SYMTYPE) -> None:
    info = tarfile.TarInfo(name)
    info.type, info.linkname = kind, to
    tar.addfile(info)


def test_a_hostile_context_stays_where_it_is(server, tmp_path):
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "secret").write_text("the host's")

    def device(tar):
        info = tarfile.TarInfo("context/device")
        info.type, info.devmajor, info.devminor = tarfile.CHRTYPE, 1, 3
        tar.addfile(info)

    def through(tar):
        link(tar, "context/way", str(outside))
        add(tar, "context/way/planted", "x")

    def twice(tar):
        add(tar, "context/a", "1")
        add(tar, "context/a", "2")

    def over_link(tar):
        link(tar, "context/b", str(outside / "secret"))
        add(tar, "context/b", "x")

    for entries, expected in [
        (lambda tar: add(tar, "context/../../evil", "x"), "leads out"),
        (lambda tar: add(tar, "elsewhere/x", "x"), "is not below context/"),
        (through, "lies in something that is no directory"),
        (lambda tar: link(tar, "context/h", str(outside / "secret"), tarfile.LNKTYPE), "link"),
        (lambda tar: link(tar, "context/h", "context/missing", tarfile.LNKTYPE), "not there"),
        (device, "is neither a file nor a directory"),
        (twice, "comes twice"),
        (over_link, "comes twice"),
        (lambda tar: add(tar, "context/" + "d/" * 200 + "x", "x"), "deep"),
    ]:
        refused = send(server, hostile(entries))
        assert refused.status == 400 and expected in refused.error, (expected, refused)
    assert sorted(path.name for path in outside.iterdir()) == ["secret"]
    # A link that leads out is a link, in the context and in the image.
    body = hostile(
        lambda tar: link(tar, "context/l", str(outside)),
        dockerfile="FROM small\nCOPY l /l\nRUN readlink /l; ! cat /l/secret\n",
    )
    copied = send(server, body)
    assert "the host's" not in repr(copied), copied
    # Nor does a Dockerfile that is a link lead anywhere.
    body = hostile(
        lambda tar: link(tar, "context/Dockerfile", str(outside / "secret")), dockerfile=""
    )
    refused = send(server, body)
    assert refused.status == 400 and "the host's" not in repr(refused), refused
    wait_for("no context is left", lambda: not scratch(server), 10)


def test_what_is_no_build_is_refused(server):
    import gzip

    plain = {"Dockerfile": "FROM small\n"}
    for body, expected in [
        (b"", "build.json"),
        (b"nonsense" * 1000, "build.json"),
        (gzip.compress(b"\0" * (1 << 20)), "build.json"),
        (archive({"unknown": 1}), "cannot be understood"),
        (archive({"secrets": {"a": "%%%"}}, plain), "no base64"),
        (archive({"names": ["UPPER CASE"]}, plain), "cannot name"),
        (archive({"platform": "what"}, plain), "platform"),
        (archive({}, plain)[:1600], "the middle"),
    ]:
        refused = send(server, body)
        assert refused.status == 400 and expected in refused.error, (expected, refused)
    # Secrets that would be on a disk before they are read.
    hidden = gzip.compress(archive({"secrets": {"a": "aHVudGVyMg=="}}, plain))
    assert "must not be compressed" in send(server, hidden).error
    for wrong in ("hunter2", 1234567):
        refused = send(server, archive({"secrets": wrong}, plain))
        assert refused.status == 400 and str(wrong) not in refused.error, refused
    body = archive({}, {"Dockerfile": "FROM small\nCOPY a /a\nRUN cat /a\n", "a": "packed"})
    assert send(server, gzip.compress(body)).said() == ["packed"]
    wait_for("no context is left", lambda: not scratch(server), 10)


def test_a_context_that_explodes_is_refused(server):
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz", compresslevel=9) as tar:
        add(tar, "build.json", "{}")
        add(tar, "context/Dockerfile", "FROM small\n")
        info = tarfile.TarInfo("context/zeros")
        info.size = 600 << 20
        tar.addfile(info, Zeros(info.size))
    refused = send(server, buffer.getvalue())
    assert refused.status == 400 and "unpacks to more" in refused.error, refused
    wait_for("no context is left", lambda: not scratch(server), 10)


class Zeros(io.RawIOBase):
    """So many zeros."""

    def __init__(self, size: int) -> None:
        self.left = size

    def read(self, size: int = -1) -> bytes:
        count = min(self.left, size if size >= 0 else self.left)
        self.left -= count
        return b"\0" * count


def test_stages_that_nobody_needs_do_not_run(server):
    dockerfile = """\
FROM small AS one
RUN echo one > /one
FROM small AS unneeded
RUN exit 1
FROM small AS two
RUN echo two > /two
FROM scratch
COPY --from=one /one /
COPY --from=two /two /
"""
    outcome = build(server, dockerfile, names=["both"])
    assert outcome.digest and not any("unneeded" in title for title in outcome.steps())
    seen = build(server, "FROM small\nCOPY --from=both / /x/\nRUN cat /x/one /x/two; ls /x\n")
    assert seen.said() == ["one", "two", "one", "two"]
    target = build(server, dockerfile, target="unneeded")
    assert "Dockerfile:4: the command ended with exit code 1" in target.error


def test_many_builds_at_once_take_turns(server):
    outcomes: list[Outcome] = []

    def one(number: int) -> None:
        outcomes.append(build(server, f"FROM small\nRUN echo {number} && sleep 0.2\n"))

    threads = [threading.Thread(target=one, args=(n,)) for n in range(12)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(o.said()[0] for o in outcomes) == sorted(str(n) for n in range(12))
