"""Files with the published command, seen from both sides."""

from __future__ import annotations

import os
import pathlib

from opensandbox import SandboxSync
from published import Published


def output(box: SandboxSync, command: str) -> list[str]:
    execution = box.commands.run(command)
    assert execution.exit_code == 0, execution
    return [line.text for line in execution.logs.stdout]


def test_text_is_written_and_read(osb: Published, box: SandboxSync):
    told = osb.json(
        "file write",
        *(box.id, "/srv/note", "--content", "grüße\n", "--encoding", "latin-1"),
        *("--mode", "0640", "--owner", "nobody", "--group", "nogroup"),
    )
    assert told == {"status": "ok", "message": "Written: /srv/note"}
    assert output(box, "stat -c '%a %U %G' /srv/note") == ["640 nobody nogroup"]
    assert box.files.read_bytes("/srv/note") == "grüße\n".encode("latin-1")
    read = osb("file cat", box.id, "/srv/note", "--encoding", "latin-1", "-o", "raw")
    assert read.stdout == "grüße\n"

    osb("file write", box.id, "/srv/new/place", stdin="from stdin")
    assert box.files.read_file("/srv/new/place") == "from stdin"
    assert "FILE_NOT_FOUND" in osb.refused("file cat", box.id, "/srv/nothing")


def test_bytes_go_up_and_down(osb: Published, box: SandboxSync, tmp_path: pathlib.Path):
    content = os.urandom(3_000_000)
    source, target = tmp_path / "source", tmp_path / "deep" / "target"
    source.write_bytes(content)
    assert osb.json("file upload", box.id, str(source), "/srv/blob")["status"] == "ok"
    assert box.files.read_bytes("/srv/blob") == content
    assert osb.json("file download", box.id, "/srv/blob", str(target))["status"] == "ok"
    assert target.read_bytes() == content
    # What could not be had leaves what was there.
    assert "404" in osb.refused("file download", box.id, "/srv/nothing", str(target))
    assert target.read_bytes() == content
    osb.refused("file upload", box.id, str(source), "/proc/x")


def test_directories_are_made_moved_and_removed(osb: Published, box: SandboxSync):
    told = osb.json(
        "file mkdir",
        *(box.id, "/srv/a/b", "/srv/c", "--mode", "750", "--owner", "nobody", "--group", "nogroup"),
    )
    assert told == [{"path": path, "status": "created"} for path in ("/srv/a/b", "/srv/c")]
    assert output(box, "stat -c '%a %U %G' /srv/c") == ["750 nobody nogroup"]
    box.files.write_file("/srv/a/b/one.txt", "one")
    box.files.write_file("/srv/a/b/two.md", "two")

    assert osb.json("file mv", box.id, "/srv/a/b", "/srv/c/d")["status"] == "ok"
    assert output(box, "ls /srv/a /srv/c/d | xargs") == ["/srv/a: /srv/c/d: one.txt two.md"]

    found = osb.json("file search", box.id, "/srv/c", "--pattern", "*.txt")
    assert [(entry["path"], entry["size"]) for entry in found] == [("/srv/c/d/one.txt", 3)]
    assert osb.json("file search", box.id, "/srv/c", "-p", "*.none") == []

    told = osb.json("file rm", box.id, "/srv/c/d/one.txt", "/srv/c/d/two.md")
    assert [row["status"] for row in told] == ["deleted", "deleted"]
    assert output(box, "find /srv/c -type f | wc -l") == ["0"]
    assert osb.json("file rmdir", box.id, "/srv/c") == [{"path": "/srv/c", "status": "removed"}]
    assert output(box, "ls /srv | xargs") == ["a"]


def test_what_a_file_is_and_how_that_is_changed(osb: Published, box: SandboxSync):
    box.files.write_file("/srv/file", "old and old", mode=600)
    assert osb.json("file replace", box.id, "/srv/file", "--old", "old", "--new", "new")["status"] == "ok"
    assert box.files.read_file("/srv/file") == "new and new"
    told = osb.json(
        "file chmod",
        *(box.id, "/srv/file", "--mode", "0644", "--owner", "nobody", "--group", "nogroup"),
    )
    assert told["status"] == "ok"
    (info,) = osb.json("file info", box.id, "/srv/file")
    assert (info["path"], info["size"], info["mode"]) == ("/srv/file", 11, 644)
    assert (info["owner"], info["group"]) == ("nobody", "nogroup")
    assert output(box, "stat -c '%a %U %G' /srv/file") == ["644 nobody nogroup"]
    assert "/srv/file" in osb("file info", box.id, "/srv/file").stdout
    assert "FILE_NOT_FOUND" in osb.refused("file info", box.id, "/srv/nothing")
