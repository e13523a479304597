"""Commands and files with the tools of the published MCP server, seen from both sides."""

from __future__ import annotations

import pytest
from opensandbox import SandboxSync
from published import Tools
from served import wait_for


def output(box: SandboxSync, command: str) -> list[str]:
    execution = box.commands.run(command)
    assert execution.exit_code == 0, execution
    return [line.text for line in execution.logs.stdout]


def test_a_command_says_all_about_itself(mcp: Tools, box: SandboxSync):
    ran = mcp(
        "command_run",
        sandbox_id=box.id,
        command="pwd | tr a-z A-Z; echo no >&2; exit 7",
        working_directory="/usr",
        connect_if_missing=True,
    )
    assert [line["text"] for line in ran["logs"]["stdout"]] == ["/USR"]
    assert [line["text"] for line in ran["logs"]["stderr"]] == ["no"]
    assert (ran["exit_code"], ran["error"]["value"]) == (7, "7")
    ran = mcp("command_run", sandbox_id=box.id, command="true")
    assert (ran["exit_code"], ran["error"]) == (0, None)


def test_a_command_in_the_background_is_interrupted(mcp: Tools, plain: Tools, box: SandboxSync):
    ran = mcp(
        "command_run",
        sandbox_id=box.id,
        command="sleep 600",
        background=True,
        connect_if_missing=True,
    )
    assert box.commands.get_command_status(ran["id"]).running
    told = mcp(
        "command_interrupt", sandbox_id=box.id, execution_id=ran["id"], connect_if_missing=True
    )
    assert told == {"status": "interrupted"}
    wait_for("it ends", lambda: not box.commands.get_command_status(ran["id"]).running)
    said = plain.refused(
        "command_interrupt", sandbox_id=box.id, execution_id="nobody", connect_if_missing=True
    )
    assert 'nothing runs under the id "nobody"' in said


def test_text_is_written_and_read(mcp: Tools, plain: Tools, box: SandboxSync):
    where = {"sandbox_id": box.id, "path": "/srv/new/note", "connect_if_missing": True}
    told = mcp(
        "file_write",
        **where,
        content="grüße\n",
        encoding="latin-1",
        mode=640,
        owner="nobody",
        group="nogroup",
    )
    assert told == {"status": "written"}
    assert output(box, "stat -c '%a %U %G' /srv/new/note") == ["640 nobody nogroup"]
    assert box.files.read_bytes("/srv/new/note") == "grüße\n".encode("latin-1")
    told = mcp("file_read", **where, encoding="latin-1")
    assert told == {"path": "/srv/new/note", "content": "grüße\n"}
    told = mcp("file_read", **where, encoding="latin-1", range_header="bytes=1-2")
    assert told["content"] == "rü"
    where["path"] = "/srv/nothing"
    assert "FILE_NOT_FOUND" in plain.refused("file_read", **where)


def test_directories_are_made_searched_moved_and_removed(mcp: Tools, box: SandboxSync):
    who = {"sandbox_id": box.id, "connect_if_missing": True}
    entry = {"path": "/srv/a", "mode": 750, "owner": "nobody", "group": "nogroup"}
    told = mcp("file_create_directories", **who, entries=[entry, {"path": "/srv/b/c"}])
    assert told == {"status": "created"}
    assert output(box, "stat -c '%a %U %G' /srv/a; stat -c '%a %F' /srv/b/c") == [
        "750 nobody nogroup",
        "755 directory",
    ]
    box.files.write_file("/srv/a/one.txt", "one", mode=600)
    box.files.write_file("/srv/a/two.md", "two")

    (found,) = mcp("file_search", **who, path="/srv", pattern="*.txt")
    assert (found["path"], found["size"], found["mode"]) == ("/srv/a/one.txt", 3, 600)
    moved = {"source": "/srv/a", "destination": "/srv/b/d"}
    assert mcp("file_move", **who, entries=[moved]) == {"status": "moved"}
    assert output(box, "ls /srv/b/d | xargs") == ["one.txt two.md"]
    paths = ["/srv/b/d/one.txt", "/srv/b/d/two.md"]
    assert mcp("file_delete", **who, paths=paths) == {"status": "deleted"}
    assert output(box, "find /srv -type f | wc -l") == ["0"]
    assert mcp("file_delete_directories", **who, paths=["/srv/b"]) == {"status": "deleted"}
    assert output(box, "ls /srv | wc -l") == ["0"]


def test_replacements_are_counted(mcp: Tools, box: SandboxSync):
    box.files.write_file("/srv/file", "old and old")
    entry = {"path": "/srv/file", "old_content": "old", "new_content": "new"}
    (told,) = mcp(
        "file_replace_contents", sandbox_id=box.id, entries=[entry], connect_if_missing=True
    )
    assert (told["path"], told["replaced_count"]) == ("/srv/file", 2)
    assert box.files.read_file("/srv/file") == "new and new"


@pytest.mark.parametrize(
    ("tool", "arguments"),
    [
        ("command_run", {"command": "true"}),
        ("file_delete", {"paths": ["/srv/x"]}),
        ("sandbox_get_endpoint", {"port": 80}),
    ],
)
def test_what_it_does_not_know_it_connects_only_if_asked(
    mcp: Tools, box: SandboxSync, tool: str, arguments: dict
):
    assert "registry" in mcp.refused(tool, sandbox_id=box.id, **arguments)
