"""Where the published command takes from whom to ask, and as whom."""

from __future__ import annotations

import subprocess
import tomllib

from opensandbox import SandboxSync
from published import CALLED, PROGRAM, Published
from served import Server, free_port


def test_flags_come_before_the_environment(osb: Published, box: SandboxSync, server: Server):
    wrong = {"OPEN_SANDBOX_API_KEY": "wrong", "OPEN_SANDBOX_DOMAIN": f"127.0.0.1:{free_port()}"}
    right = ("--domain", server.domain, "--api-key", server.api_key, "--protocol", "http")
    told = osb.json("sandbox get", box.id, before=(*right, "--request-timeout", "20"), **wrong)
    assert told["id"] == box.id
    said = osb.refused("sandbox get", box.id, before=("--no-color", "--api-key", "wrong"))
    assert "ERROR [Sandbox Error]" in said and "INVALID_API_KEY" in said
    # A server without TLS is not spoken to with TLS.
    assert "SSL" in osb.refused("snapshot create", box.id, before=("--protocol", "https"))


def test_the_way_leads_through_the_server_if_asked(osb: Published, box: SandboxSync):
    def asked(*before: str, **environment: str) -> bool:
        said = osb("command run", box.id, "--", "echo", "hi", before=before, **environment)
        assert said.stdout == "hi\n"
        return "use_server_proxy=true" in said.stderr

    # What it says about its requests, it says on request.
    assert asked("--verbose", "--use-server-proxy")
    assert not asked("-v", "--no-use-server-proxy", OPEN_SANDBOX_USE_SERVER_PROXY="1")


def test_a_file_is_made_and_read(osb: Published, server: Server):
    path = osb.home / "mine" / "config.toml"
    before = ("--config", str(path))
    for name in ("OPEN_SANDBOX_DOMAIN", "OPEN_SANDBOX_API_KEY"):
        del osb.environment[name]
    assert osb.json("config init", before=before)["status"] == "ok"
    assert osb.json("config init", before=before)["status"] == "warning"
    assert osb.json("config init", "--force", before=before)["status"] == "ok"
    settings = {
        "connection.domain": server.domain,
        "connection.api_key": server.api_key,
        "defaults.image": "host",
        "defaults.timeout": "20m",
    }
    for key, value in settings.items():
        assert osb.json("config set", key, value, before=before)["status"] == "ok"
    told = osb.json("config show", before=before)
    assert (told["domain"], told["default_image"]) == (server.domain, "host")
    assert server.api_key not in str(told)
    assert tomllib.loads(path.read_text())["connection"]["api_key"] == server.api_key

    made = osb.json("sandbox create", before=before)
    assert (made["image"], made["timeout"]) == ("host", "0:20:00")
    assert osb.json("sandbox kill", made["id"], before=before)[0]["status"] == "terminated"


def test_the_program_says_which_it_is():
    CALLED.setdefault("", set()).add("--version")
    said = subprocess.run([PROGRAM, "--version"], capture_output=True, text=True, check=True)
    assert said.stdout == "opensandbox, version 1.1.1\n"
