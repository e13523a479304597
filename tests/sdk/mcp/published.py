"""The published MCP server as a process, driven with the MCP client, and a record of what was called."""

from __future__ import annotations

import contextlib
import os
import pathlib
import sys
import tempfile
from collections.abc import Iterator
from typing import Any, TextIO

from anyio.from_thread import BlockingPortal, start_blocking_portal
from mcp import Client, StdioServerParameters, stdio_client
from served import Server

PROGRAM = [str(pathlib.Path(sys.executable).with_name("opensandbox-mcp"))]

# An error that a server answers with is its own cause in the published client, and `rich` follows
# causes for ever when the MCP server logs one: whatever the server, it then never answers again. Where
# there is no `rich` it logs otherwise.
WITHOUT_RICH = """
import sys
sys.modules["rich.logging"] = None
from opensandbox_mcp.__main__ import main
main()
"""
PLAIN = [sys.executable, "-c", WITHOUT_RICH]

# Which arguments the tests of this run have given to which tools.
CALLED: dict[str, set[str]] = {}


class Tools:
    """What a client of the MCP server can do with it, one call after the other."""

    def __init__(self, portal: BlockingPortal, client: Client, log: TextIO) -> None:
        self.portal, self.client, self.log = portal, client, log

    def offered(self) -> dict[str, set[str]]:
        """Every tool by its name, with the names of its arguments."""
        tools = self.portal.call(self.client.list_tools).tools
        return {tool.name: set(tool.input_schema["properties"]) for tool in tools}

    def __call__(self, tool: str, **arguments: Any) -> Any:
        """What a tool returns."""
        answer = self.ask(tool, arguments)
        assert not answer.is_error, answer
        found = answer.structured_content
        # What is not an object is wrapped in one.
        return found["result"] if set(found) == {"result"} else found

    def refused(self, tool: str, **arguments: Any) -> str:
        """What a tool says when it fails, to its client and in its log."""
        self.log.seek(0, os.SEEK_END)
        answer = self.ask(tool, arguments)
        assert answer.is_error, answer
        return answer.content[0].text + self.log.read()

    def ask(self, tool: str, arguments: dict[str, Any], progress: Any = None) -> Any:
        CALLED.setdefault(tool, set()).update(arguments)
        return self.portal.call(
            lambda: self.client.call_tool(tool, arguments, 60, progress)
        )


@contextlib.contextmanager
def tools(server: Server, *options: str, program: list[str] = PROGRAM) -> Iterator[Tools]:
    """An MCP server that is told by its environment where the sandboxes are."""
    environment = {
        "PATH": os.environ["PATH"],
        "OPEN_SANDBOX_DOMAIN": server.domain,
        "OPEN_SANDBOX_API_KEY": server.api_key,
    }
    command, *arguments = [*program, *options]
    process = StdioServerParameters(command=command, args=arguments, env=environment)
    with tempfile.NamedTemporaryFile("w") as log, open(log.name) as said:
        client = Client(stdio_client(process, log.file))
        with start_blocking_portal() as portal, portal.wrap_async_context_manager(client):
            yield Tools(portal, client, said)
