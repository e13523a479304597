"""Files: text and bytes go in and come out as they were."""

from __future__ import annotations

import hashlib
import io
import os
from datetime import datetime, timedelta, timezone

import pytest
from clients import Box
from opensandbox.exceptions import SandboxApiException, SandboxException
from opensandbox.models.filesystem import (
    ContentReplaceEntry,
    DirectoryListEntry,
    MoveEntry,
    SearchEntry,
    SetPermissionEntry,
    WriteEntry,
)


def test_five_megabytes_come_back_as_they_were(box):
    content = os.urandom(5 * 1024 * 1024)
    box.files.write_files([WriteEntry(path="/tmp/blob", data=content, mode=644)])
    assert box.files.read_bytes("/tmp/blob") == content
    execution = box.commands.run("sha256sum /tmp/blob | cut -d' ' -f1")
    assert execution.logs.stdout[0].text == hashlib.sha256(content).hexdigest()


def test_a_download_comes_in_pieces(box):
    content = os.urandom(1024 * 1024)
    box.files.write_files([WriteEntry(path="/tmp/blob", data=content)])
    pieces = list(box.files.read_bytes_stream("/tmp/blob", chunk_size=64 * 1024))
    assert b"".join(pieces) == content
    assert len(pieces) > 1


def test_several_files_in_one_call_and_new_directories(box):
    entries = [
        WriteEntry(path="/tmp/a/b/one", data="1"),
        WriteEntry(path="/tmp/a/two", data=b"\x00\x02"),
        WriteEntry(path="/tmp/empty", data=""),
    ]
    box.files.write_files(entries)
    assert box.files.read_file("/tmp/a/b/one") == "1"
    assert box.files.read_bytes("/tmp/a/two") == b"\x00\x02"
    assert box.files.read_bytes("/tmp/empty") == b""


def test_what_is_written_replaces_what_was_there(box):
    box.files.write_files([WriteEntry(path="/tmp/f", data="a long first text")])
    box.files.write_files([WriteEntry(path="/tmp/f", data="short")])
    assert box.files.read_file("/tmp/f") == "short"


def test_mode_and_size_are_told(box):
    box.files.write_files([WriteEntry(path="/tmp/f", data="four", mode=640)])
    info = box.files.get_file_info(["/tmp/f"])["/tmp/f"]
    assert (info.path, info.mode, info.size) == ("/tmp/f", 640, 4)


def test_a_deleted_file_is_gone(box):
    box.files.write_files([WriteEntry(path="/tmp/f", data="x")])
    box.files.delete_files(["/tmp/f"])
    with pytest.raises(SandboxException):
        box.files.read_file("/tmp/f")
    with pytest.raises(SandboxException):
        box.files.get_file_info(["/tmp/f"])


def test_a_part_of_a_file_can_be_read(box):
    box.files.write_files([WriteEntry(path="/tmp/f", data="0123456789abcdef")])
    assert box.files.read_file("/tmp/f", range_header="bytes=2-5") == "2345"


def test_commands_and_files_see_the_same_disk(box):
    box.commands.run("mkdir -p /tmp/d && echo from-command > /tmp/d/f")
    assert box.files.read_file("/tmp/d/f") == "from-command\n"


def test_a_file_can_be_read_by_range_and_by_line(box: Box):
    box.files.write_file("/tmp/f", "one\ntwo\r\nthree\nfour", mode=644)
    read = box.files.read_file
    assert read("/tmp/f", range_header="bytes=0-2") == "one"
    assert read("/tmp/f", range_header="bytes=-4") == "four"
    assert read("/tmp/f", range_header="bytes=9-") == "three\nfour"
    assert read("/tmp/f", offset=2, limit=2) == "two\nthree"
    assert read("/tmp/f", offset=3) == "three\nfour"
    assert read("/tmp/f", limit=1) == "one"
    assert read("/tmp/f", offset=9) == ""
    assert box.files.read_bytes("/tmp/f", offset=1, limit=1) == b"one"
    pieces = box.files.read_bytes_stream("/tmp/f", range_header="bytes=4-6")
    assert b"".join(pieces) == b"two"
    with pytest.raises(SandboxException):
        read("/tmp/f", range_header="bytes=100-")


def test_a_stream_of_bytes_is_written_as_it_comes(box: Box):
    content = os.urandom(3 << 20)
    box.files.write_file("/tmp/stream", io.BytesIO(content), mode=600)
    assert box.files.read_bytes("/tmp/stream") == content


@pytest.mark.parametrize("name", ["grüße ☃.txt", "a'b\"c\\d.txt", " blank ", "a$5-$$-$nobody_here", "%41+&=?#"])
def test_any_name_and_any_text(box: Box, name: str):
    path, text = f"/tmp/{name}", "日本\u2028\u0085\r\n☃"
    box.files.write_files([WriteEntry(path=path, data=text)])
    assert box.files.read_file(path) == text
    assert list(box.files.get_file_info([path])) == [path]
    assert [found.path for found in box.files.search(SearchEntry(path="/tmp", pattern="*"))] == [path]
    box.files.delete_files([path])
    assert box.files.search(SearchEntry(path="/tmp", pattern="*")) == []


def test_what_is_told_of_files_directories_and_links(box: Box):
    box.commands.run("cd /tmp && mkdir d && printf 12345 > f && chmod 640 f && ln -s f l && mkfifo p")
    info = box.files.get_file_info([f"/tmp/{name}" for name in "dflp"])
    kinds = {path: entry.entry_type for path, entry in info.items()}
    assert kinds == {"/tmp/d": "directory", "/tmp/f": "file", "/tmp/l": "symlink", "/tmp/p": "other"}
    file = info["/tmp/f"]
    assert (file.size, file.mode, file.owner, file.group) == (5, 640, "root", "root")
    assert abs(file.modified_at - datetime.now(timezone.utc)) < timedelta(minutes=1)
    assert file.created_at <= file.modified_at + timedelta(seconds=1)


def test_directories_are_made_with_mode_and_owner_and_deleted_with_all_below(box: Box):
    box.files.create_directories(
        [
            WriteEntry(path="/tmp/a/b/c", mode=750),
            WriteEntry(path="/tmp/n", mode=700, owner="nobody", group="nogroup"),
        ]
    )
    info = box.files.get_file_info(["/tmp/a/b/c", "/tmp/n"])
    assert (info["/tmp/a/b/c"].entry_type, info["/tmp/a/b/c"].mode) == ("directory", 750)
    assert (info["/tmp/n"].mode, info["/tmp/n"].owner, info["/tmp/n"].group) == (
        (700, "nobody", "nogroup")
    )
    box.files.write_file("/tmp/a/b/c/f", "x")
    box.files.delete_directories(["/tmp/a", "/tmp/n", "/tmp/never-there"])
    assert box.files.list_directory(DirectoryListEntry(path="/tmp")) == []


def test_a_directory_is_listed_to_the_depth_that_was_asked(box: Box):
    box.commands.run("cd /tmp && mkdir -p a/b/c && touch a/1 a/b/2 z && ln -s a l")

    def listed(**options) -> list[str]:
        entries = box.files.list_directory(DirectoryListEntry(path="/tmp", **options))
        return [entry.path.removeprefix("/tmp/") for entry in entries]

    assert listed() == listed(depth=1) == ["a", "l", "z"]
    assert listed(depth=0) == []
    assert listed(depth=2) == ["a", "a/1", "a/b", "l", "z"]
    assert listed(depth=9) == ["a", "a/1", "a/b", "a/b/2", "a/b/c", "l", "z"]
    for path, status in {"/tmp/none": 404, "/tmp/z": 400}.items():
        with pytest.raises(SandboxApiException) as raised:
            box.files.list_directory(DirectoryListEntry(path=path))
        assert raised.value.status_code == status


def test_files_move_and_nothing_is_overwritten(box: Box):
    box.files.write_files([WriteEntry(path=f"/tmp/{name}", data=name) for name in "abc"])
    moves = [("/tmp/a", "/tmp/new/place/a"), ("/tmp/b", "/tmp/B")]
    box.files.move_files([MoveEntry(src=src, dest=dest) for src, dest in moves])
    assert box.files.read_file("/tmp/new/place/a") == "a"
    assert box.files.read_file("/tmp/B") == "b"
    for src, dest, statuses in [("/tmp/a", "/tmp/x", {404}), ("/tmp/B", "/tmp/c", {409, 500})]:
        with pytest.raises(SandboxApiException) as raised:
            box.files.move_files([MoveEntry(src=src, dest=dest)])
        assert raised.value.status_code in statuses
    assert box.files.read_file("/tmp/c") == "c"


def test_permissions_and_owners_change(box: Box):
    box.files.write_file("/tmp/f", "x", mode=644)
    box.files.set_permissions(
        [SetPermissionEntry(path="/tmp/f", mode=4755, owner="nobody", group="nogroup")]
    )
    info = box.files.get_file_info(["/tmp/f"])["/tmp/f"]
    assert (info.mode % 1000, info.owner, info.group) == (755, "nobody", "nogroup")
    box.files.set_permissions([SetPermissionEntry(path="/tmp/f", mode=600)])
    info = box.files.get_file_info(["/tmp/f"])["/tmp/f"]
    assert (info.mode, info.owner, info.group) == (600, "nobody", "nogroup")
    with pytest.raises(SandboxApiException):
        box.files.set_permissions([SetPermissionEntry(path="/tmp/f", owner="nobody-at-all")])


def test_text_is_replaced_and_counted(box: Box):
    box.files.write_files(
        [
            WriteEntry(path="/tmp/1", data="a b a c a", mode=640),
            WriteEntry(path="/tmp/2", data="grüße"),
            WriteEntry(path="/tmp/3", data="nothing here"),
        ]
    )
    entries = [
        ContentReplaceEntry(path="/tmp/1", old_content="a", new_content="xyz"),
        ContentReplaceEntry(path="/tmp/2", old_content="grüße", new_content="☃"),
        ContentReplaceEntry(path="/tmp/3", old_content="absent", new_content="y"),
    ]
    results = box.files.replace_contents_detailed(entries)
    assert {r.path: r.replaced_count for r in results} == {"/tmp/1": 3, "/tmp/2": 1, "/tmp/3": 0}
    assert box.files.read_file("/tmp/1") == "xyz b xyz c xyz"
    assert box.files.get_file_info(["/tmp/1"])["/tmp/1"].mode == 640
    again = ContentReplaceEntry(path="/tmp/2", old_content="☃", new_content="")
    assert box.files.replace_contents([again]) is None
    assert box.files.read_bytes("/tmp/2") == b""
    for path, old, status in [("/tmp/none", "a", 404), ("/tmp/1", "", 400)]:
        entry = ContentReplaceEntry(path=path, old_content=old, new_content="b")
        with pytest.raises(SandboxApiException) as raised:
            box.files.replace_contents([entry])
        assert raised.value.status_code == status


def test_a_search_finds_files_by_pattern_and_no_directories(box: Box):
    box.commands.run("cd /tmp && mkdir -p d/e.txt && touch a.txt b.py d/c.txt d/e.txt/f.txt .h")

    def found(pattern: str) -> list[str]:
        entries = box.files.search(SearchEntry(path="/tmp", pattern=pattern))
        return sorted(entry.path.removeprefix("/tmp/") for entry in entries)

    assert found("*.txt") == ["a.txt", "d/c.txt", "d/e.txt/f.txt"]
    assert found("[ab].*") == ["a.txt", "b.py"]
    assert found("{b,c}.{py,txt}") == ["b.py", "d/c.txt"]
    assert found("?.py") == ["b.py"]
    assert len(found("*")) == len(found("**")) == 5
    assert found("nothing") == []
    with pytest.raises(SandboxApiException) as raised:
        box.files.search(SearchEntry(path="/tmp/none", pattern="*"))
    assert raised.value.status_code == 404


def test_deleting_is_for_files(box: Box):
    box.commands.run("mkdir /tmp/d && ln -s /nowhere /tmp/dangling")
    box.files.delete_files(["/tmp/never-there"])
    with pytest.raises(SandboxApiException):
        box.files.delete_files(["/tmp/d"])
    box.files.delete_files(["/tmp/dangling"])
    assert [e.path for e in box.files.list_directory(DirectoryListEntry(path="/tmp"))] == ["/tmp/d"]


def test_a_gibibyte_goes_in_and_out_in_pieces(server):
    """Once for each client is enough: it takes seconds."""
    size, piece = 1 << 30, bytes(range(256)) * 4096

    class Source(io.RawIOBase):
        """The same piece again and again, without ever holding all of it."""

        left = size

        def readable(self) -> bool:
            return True

        def read(self, most: int = -1) -> bytes:
            given = piece[: min(most, self.left)] if most >= 0 else piece[: self.left]
            self.left -= len(given)
            return given

    box = Box(server, "sync", "direct", resource={"cpu": "2", "memory": "4Gi"})
    try:
        box.files.write_file("/tmp/much", Source())
        assert box.files.get_file_info(["/tmp/much"])["/tmp/much"].size == size
        came = sum(map(len, box.files.read_bytes_stream("/tmp/much", chunk_size=1 << 20)))
        assert came == size
    finally:
        box.close()


def test_another_user_reaches_with_every_method_what_is_theirs(box: Box):
    files = box.files_as(65534, 65534)
    files.create_directories([WriteEntry(path="/tmp/own/sub", mode=755)])
    files.write_file("/tmp/own/f", "text\nmore", mode=600)
    files.write_files([WriteEntry(path="/tmp/own/g", data=b"g")])
    info = files.get_file_info(["/tmp/own/f"])["/tmp/own/f"]
    assert (info.owner, info.group, info.mode) == ("nobody", "nogroup", 600)
    assert files.read_file("/tmp/own/f", limit=1) == "text"
    assert files.read_bytes("/tmp/own/f", range_header="bytes=5-") == b"more"
    assert b"".join(files.read_bytes_stream("/tmp/own/f")) == b"text\nmore"
    replace = [ContentReplaceEntry(path="/tmp/own/f", old_content="more", new_content="less")]
    assert files.replace_contents_detailed(replace)[0].replaced_count == 1
    files.replace_contents(replace)
    info = files.get_file_info(["/tmp/own/f"])["/tmp/own/f"]
    assert (info.owner, info.group, info.mode) == ("nobody", "nogroup", 600)
    files.move_files([MoveEntry(src="/tmp/own/g", dest="/tmp/own/sub/g")])
    files.set_permissions([SetPermissionEntry(path="/tmp/own/sub/g", mode=640)])
    assert [e.path for e in files.search(SearchEntry(path="/tmp/own", pattern="g"))] == [
        "/tmp/own/sub/g"
    ]
    listed = files.list_directory(DirectoryListEntry(path="/tmp/own", depth=2))
    assert [(e.path, e.mode) for e in listed][-1] == ("/tmp/own/sub/g", 640)
    files.delete_files(["/tmp/own/f"])
    files.delete_directories(["/tmp/own/sub"])
    assert files.list_directory(DirectoryListEntry(path="/tmp/own")) == []


def test_another_user_reaches_nothing_that_is_not_theirs(box: Box):
    box.commands.run("cd /tmp && mkdir -m 700 d && echo secret > d/f && echo s > f && chmod 600 f")
    files = box.files_as(65534, 65534)
    replace = ContentReplaceEntry(path="/tmp/f", old_content="s", new_content="x")
    attempts = [
        lambda: files.read_file("/tmp/f"),
        lambda: files.read_file("/tmp/d/f"),
        lambda: files.read_bytes_stream("/tmp/f"),
        lambda: files.write_file("/tmp/d/new", "x"),
        lambda: files.write_file("/etc/new", "x"),
        lambda: files.create_directories([WriteEntry(path="/tmp/d/new")]),
        lambda: files.delete_files(["/tmp/d/f"]),
        lambda: files.delete_directories(["/tmp/d"]),
        lambda: files.move_files([MoveEntry(src="/tmp/d/f", dest="/tmp/stolen")]),
        lambda: files.set_permissions([SetPermissionEntry(path="/tmp/f", mode=777)]),
        lambda: files.replace_contents([replace]),
        lambda: files.list_directory(DirectoryListEntry(path="/tmp/d")),
        lambda: files.get_file_info(["/tmp/d/f"]),
    ]
    for number, attempt in enumerate(attempts):
        with pytest.raises(SandboxException):
            attempt()
            pytest.fail(f"attempt {number} succeeded")
    execution = box.commands.run("cat /tmp/d/f /tmp/f; ls /tmp; ls /etc/new 2>/dev/null")
    assert [line.text for line in execution.logs.stdout] == ["secret", "s", "d", "f"]
