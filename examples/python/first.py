"""A sandbox, a command, a file."""

from datetime import timedelta

from opensandbox import SandboxSync
from opensandbox.models.filesystem import WriteEntry

with SandboxSync.create("host", timeout=timedelta(minutes=10)) as sandbox:
    try:
        execution = sandbox.commands.run("echo hello; exit 3")
        print([line.text for line in execution.logs.stdout], "exit code", execution.exit_code)

        sandbox.files.write_files([WriteEntry(path="/tmp/note.txt", data="kept\n")])
        print(sandbox.files.read_file("/tmp/note.txt"), end="")
    finally:
        sandbox.kill()
