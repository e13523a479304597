"""What sandboxes leave on a host, looked up in the host itself and not asked of the server."""

from __future__ import annotations

import os
import pathlib

from served import Server, wait_for

CGROUPS = pathlib.Path("/sys/fs/cgroup")
NAMESPACES = ["cgroup", "ipc", "mnt", "net", "pid", "user", "uts"]


class Traces:
    """The traces of one server's sandboxes, and whether any is left.

    Other servers may run on the same host, so a trace counts if it carries the id of a sandbox
    that this server's directory has held, or is a namespace in which such a sandbox has run.
    """

    def __init__(self, server: Server) -> None:
        self.server = server
        self.ids: set[str] = set()
        self.namespaces: set[str] = set()

    def record(self) -> None:
        """Takes note of every sandbox that is there now, whole or half made."""
        self.ids |= {path.name[:36] for path in self.directories()}
        for process in self.processes():
            self.namespaces |= namespaces(process) - namespaces("self")

    def directories(self, of: str = "*") -> list[pathlib.Path]:
        """What is kept on disk for sandboxes and snapshots, those half removed included."""
        native = self.server.data_dir / "native"
        return [path for path in native.glob(f"{of}/*") if path.name[:36].count("-") == 4]

    def processes(self) -> list[str]:
        found = []
        for process in running():
            try:
                cgroups = pathlib.Path(f"/proc/{process}/cgroup").read_text()
            except (FileNotFoundError, ProcessLookupError):
                continue
            if any(id in cgroups for id in self.ids):
                found.append(process)
        return found

    def mounts(self) -> list[str]:
        table = pathlib.Path("/proc/self/mountinfo").read_text().splitlines()
        return [line for line in table if str(self.server.data_dir) in line]

    def devices(self) -> list[str]:
        """Block devices that are files of sandboxes, deleted ones included."""
        found = []
        for path in pathlib.Path("/sys/block").glob("loop*/loop/backing_file"):
            try:
                found.append(path.read_text().strip())
            except OSError:
                continue
        return [file for file in found if str(self.server.data_dir) in file]

    def cgroups(self) -> list[str]:
        # A walk that does not mind what vanishes under it: others remove theirs meanwhile.
        trees = [tree / "opensandbox" for tree in (CGROUPS, *CGROUPS.iterdir())]
        found = [pathlib.Path(at) for tree in trees for at, _, _ in os.walk(tree)]
        return [str(path) for path in found if path.name in self.ids]

    def inhabited(self) -> set[str]:
        """Those namespaces of our sandboxes that a process or a mount still holds."""
        held = set().union(*(namespaces(process) for process in running()))
        for line in pathlib.Path("/proc/self/mountinfo").read_text().splitlines():
            if " - nsfs " in line:
                held.add(line.split(" ")[3])
        return self.namespaces & held

    def left(self) -> dict[str, list[str]]:
        kinds = {
            "processes": [f"{id} {command(id)}" for id in self.processes()],
            "mounts": self.mounts(),
            "devices": self.devices(),
            "cgroups": self.cgroups(),
            "namespaces": sorted(self.inhabited()),
            "directories": [str(path) for path in self.directories()],
        }
        return {kind: found for kind, found in kinds.items() if found}

    def all_there(self, count: int) -> None:
        """The search finds what it should: `count` sandboxes have traces of every kind."""
        self.record()
        assert len(self.ids) >= count
        assert len(self.processes()) >= 2 * count, "execd and the entrypoint of each"
        assert len(self.cgroups()) >= count
        assert len(self.inhabited()) >= len(NAMESPACES) * count
        assert len(self.directories()) == count

    def all_gone(self) -> None:
        try:
            wait_for("nothing is left", lambda: not self.left(), 10)
        except AssertionError:
            assert self.left() == {}


def running() -> list[str]:
    return [name for name in os.listdir("/proc") if name.isdigit()]


def namespaces(process: str) -> set[str]:
    try:
        return {os.readlink(f"/proc/{process}/ns/{space}") for space in NAMESPACES}
    except (FileNotFoundError, ProcessLookupError):
        return set()
    except PermissionError:
        # Some hosts hide their own first process even from root; a sandbox is never hidden.
        assert process == "1"
        return set()


def command(process: str) -> str:
    try:
        return pathlib.Path(f"/proc/{process}/cmdline").read_bytes().replace(b"\0", b" ").decode()
    except (FileNotFoundError, ProcessLookupError):
        return "(ended)"
