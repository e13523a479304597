"""Every tool of the published MCP server has been called, with each of its arguments.

This runs last and asks the MCP server what it offers, so a tool or an argument that a newer one brings
fails here until it has a test. It needs the whole directory: alone it cannot succeed.
"""

from __future__ import annotations

from published import CALLED, Tools


def test_no_tool_and_no_argument_is_without_a_test(mcp: Tools):
    offered = mcp.offered()
    assert len(offered) == 19
    missing = {tool: offered[tool] - CALLED.get(tool, set()) for tool in offered}
    assert {tool for tool in offered if tool not in CALLED} == set()
    assert {tool: names for tool, names in missing.items() if names} == {}
