"""Files: text and bytes go in and come out as they were."""

import hashlib
import os

import pytest
from opensandbox.exceptions import SandboxException
from opensandbox.models.filesystem import WriteEntry


def test_five_megabytes_come_back_as_they_were(sandbox):
    content = os.urandom(5 * 1024 * 1024)
    sandbox.files.write_files([WriteEntry(path="/tmp/blob", data=content, mode=644)])
    assert sandbox.files.read_bytes("/tmp/blob") == content
    execution = sandbox.commands.run("sha256sum /tmp/blob | cut -d' ' -f1")
    assert execution.logs.stdout[0].text == hashlib.sha256(content).hexdigest()


def test_a_download_comes_in_pieces(sandbox):
    content = os.urandom(1024 * 1024)
    sandbox.files.write_files([WriteEntry(path="/tmp/blob", data=content)])
    pieces = list(sandbox.files.read_bytes_stream("/tmp/blob", chunk_size=64 * 1024))
    assert b"".join(pieces) == content
    assert len(pieces) > 1


def test_several_files_in_one_call_and_new_directories(sandbox):
    entries = [
        WriteEntry(path="/tmp/a/b/one", data="1"),
        WriteEntry(path="/tmp/a/two", data=b"\x00\x02"),
        WriteEntry(path="/tmp/empty", data=""),
    ]
    sandbox.files.write_files(entries)
    assert sandbox.files.read_file("/tmp/a/b/one") == "1"
    assert sandbox.files.read_bytes("/tmp/a/two") == b"\x00\x02"
    assert sandbox.files.read_bytes("/tmp/empty") == b""


def test_what_is_written_replaces_what_was_there(sandbox):
    sandbox.files.write_files([WriteEntry(path="/tmp/f", data="a long first text")])
    sandbox.files.write_files([WriteEntry(path="/tmp/f", data="short")])
    assert sandbox.files.read_file("/tmp/f") == "short"


def test_mode_and_size_are_told(sandbox):
    sandbox.files.write_files([WriteEntry(path="/tmp/f", data="four", mode=640)])
    info = sandbox.files.get_file_info(["/tmp/f"])["/tmp/f"]
    assert (info.path, info.mode, info.size) == ("/tmp/f", 640, 4)


def test_a_deleted_file_is_gone(sandbox):
    sandbox.files.write_files([WriteEntry(path="/tmp/f", data="x")])
    sandbox.files.delete_files(["/tmp/f"])
    with pytest.raises(SandboxException):
        sandbox.files.read_file("/tmp/f")
    with pytest.raises(SandboxException):
        sandbox.files.get_file_info(["/tmp/f"])


def test_a_part_of_a_file_can_be_read(sandbox):
    sandbox.files.write_files([WriteEntry(path="/tmp/f", data="0123456789abcdef")])
    assert sandbox.files.read_file("/tmp/f", range_header="bytes=2-5") == "2345"


def test_commands_and_files_see_the_same_disk(sandbox):
    sandbox.commands.run("mkdir -p /tmp/d && echo from-command > /tmp/d/f")
    assert sandbox.files.read_file("/tmp/d/f") == "from-command\n"
