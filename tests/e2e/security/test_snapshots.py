"""Whatever a sandbox has built, a snapshot of it reads and writes nothing else."""

from __future__ import annotations

import pathlib
import secrets
import stat
from typing import Any

import pytest
from opensandbox import SandboxSync
from opensandbox.config import ConnectionConfigSync
from served import Server, wait_for


def lines(sandbox: SandboxSync, command: str) -> list[str]:
    execution = sandbox.commands.run(f"{{ {command}\n}} 2>&1")
    assert execution.exit_code == 0, execution
    return [line.text for line in execution.logs.stdout]


class Keeper:
    """Takes snapshots and starts sandboxes from them; removes both."""

    def __init__(self, server: Server) -> None:
        self.server = server
        self.sandboxes: list[str] = []
        self.snapshots: list[str] = []

    def keep(self, sandbox: SandboxSync) -> str:
        snapshot = sandbox.create_snapshot()
        assert snapshot.status.state == "Ready", snapshot
        self.snapshots.append(snapshot.id)
        return snapshot.id

    def restore(self, snapshot: str) -> SandboxSync:
        connection = ConnectionConfigSync(domain=self.server.domain, api_key=self.server.api_key)
        sandbox = SandboxSync.create(snapshot_id=snapshot, connection_config=connection)
        self.sandboxes.append(sandbox.id)
        return sandbox

    def layer(self, snapshot: str) -> pathlib.Path:
        return self.server.data_dir / "native/snapshots" / snapshot / "layer"

    def close(self) -> None:
        for sandbox in self.sandboxes:
            self.server.call("DELETE", f"/v1/sandboxes/{sandbox}")
        for snapshot in self.snapshots:
            self.server.call("DELETE", f"/v1/snapshots/{snapshot}")
        # Python removes no tree of this depth.
        removed = self.server.data_dir / "native/removed"
        wait_for("the files are gone", lambda: not any(removed.iterdir()))


@pytest.fixture
def keeper(server: Server) -> Any:
    keeper = Keeper(server)
    yield keeper
    keeper.close()


def test_links_in_a_sandbox_lead_its_snapshot_nowhere(create, keeper):
    secret = secrets.token_hex(16)
    outside = keeper.server.data_dir / "outside"
    outside.mkdir()
    (outside / "secret").write_text(secret)
    sandbox = create()
    lines(
        sandbox,
        f"ln -s /etc/shadow /srv/shadow; ln -s {outside} /srv/outside; ln -s / /srv/root; "
        "ln -s ../../../../../../../../etc /srv/up; ln -s loop /srv/loop; "
        "rm -rf /home && ln -s /etc /home; mkdir /srv/d && ln -s /proc/self/fd/3 /srv/d/fd",
    )
    snapshot = keeper.keep(sandbox)
    layer = keeper.layer(snapshot)
    for name in ("shadow", "outside", "root", "up", "loop", "d/fd"):
        assert (layer / "srv" / name).is_symlink()
    assert (layer / "home").is_symlink()
    found = [path for path in layer.rglob("*") if path.is_file() and not path.is_symlink()]
    assert all(secret not in path.read_text(errors="replace") for path in found)
    assert list(outside.iterdir()) == [outside / "secret"]
    restored = keeper.restore(snapshot)
    assert lines(restored, "readlink /srv/shadow /home") == ["/etc/shadow", "/etc"]


def test_hostile_trees_are_kept_as_they_are(create, keeper):
    sandbox = create()
    lines(
        sandbox,
        r"""
        cd /srv && mkfifo pipe && touch "$(printf 'new\nline')" "$(printf '\377\376')" -- '-rf'
        truncate -s 1T sparse && printf end | dd of=sparse bs=1 seek=1000000000000 conv=notrunc
        echo farm > one && for i in $(seq 2000); do ln one link$i; done
        python3 - <<'E'
import os, socket
socket.socket(socket.AF_UNIX).bind("/srv/socket")
os.mkdir("/srv/deep"); os.chdir("/srv/deep")
for _ in range(1500):
    os.mkdir("d" * 20); os.chdir("d" * 20)
open("bottom", "w").write("here")
os.mkdir("/srv/closed", 0o000)
os.setxattr("/srv/one", "user.note", b"kept")
E
        chmod 4755 one
        """,
    )
    snapshot = keeper.keep(sandbox)
    layer = keeper.layer(snapshot)
    assert (layer / "srv/sparse").stat().st_blocks < 4096
    assert stat.S_ISFIFO((layer / "srv/pipe").stat().st_mode)
    one = (layer / "srv/one").stat()
    assert (one.st_nlink, one.st_uid, stat.S_IMODE(one.st_mode)) == (2001, 0, 0o4755)
    # A program with the rights of the host's root is where no other user of the host comes.
    assert stat.S_IMODE(keeper.server.data_dir.joinpath("native").stat().st_mode) == 0o700
    restored = keeper.restore(snapshot)
    seen = lines(
        restored,
        r"""
        cd /srv && stat -c '%F %s %h' pipe sparse link7 && getfattr --only-values -n user.note one \
            2>/dev/null || python3 -c 'import os; print(os.getxattr("/srv/one", "user.note").decode())'
        tail -c +1000000000001 sparse | head -c 3; echo
        python3 - <<'E'
import os
os.chdir("/srv/deep")
while os.path.isdir("d" * 20):
    os.chdir("d" * 20)
print(open("bottom").read(), len(os.listdir(b"/srv")))
E
        """,
    )
    assert "fifo 0 1" in seen, seen
    assert "regular file 1099511627776 1" in seen, seen
    assert "regular file 5 2001" in seen, seen
    assert "kept" in "".join(seen), seen
    assert "end" in seen, seen
    assert "here 2009" in seen[-1], seen
    sandbox.kill()


def test_a_sandbox_stands_still_while_its_files_are_kept(create, keeper):
    """What one process writes in order is kept in order."""
    sandbox = create()
    program = """
import itertools, os
for number in itertools.count():
    for name in "abc":
        with open("/srv/next", "w") as file:
            file.write(str(number))
        os.rename("/srv/next", "/srv/" + name)
"""
    sandbox.files.write_file("/writer.py", program)
    lines(sandbox, "python3 /writer.py > /dev/null 2>&1 & echo")
    lines(sandbox, "until [ -e /srv/c ]; do :; done; echo")
    for _ in range(5):
        layer = keeper.layer(keeper.keep(sandbox)) / "srv"
        first, second, third = (int((layer / name).read_text()) for name in "abc")
        assert first >= second >= third >= first - 1


def test_a_snapshot_has_no_secret_of_its_sandbox(create, keeper):
    secret = secrets.token_hex(16)
    sandbox = create(env={"SECRET": secret})
    token = sandbox.get_endpoint(44772).headers["X-EXECD-ACCESS-TOKEN"]
    lines(sandbox, "echo $SECRET > /dev/null; touch /srv/file")
    directory = keeper.layer(keeper.keep(sandbox)).parent
    for path in directory.rglob("*"):
        if path.is_file() and not path.is_symlink():
            content = path.read_bytes()
            assert secret.encode() not in content, path
            assert token.encode() not in content, path


def test_what_one_sandbox_changes_no_other_from_the_same_snapshot_sees(create, keeper):
    source = create()
    lines(source, "echo then > /srv/file; chmod 666 /srv/file")
    snapshot = keeper.keep(source)
    one, other = keeper.restore(snapshot), keeper.restore(snapshot)
    lines(one, "echo changed > /srv/file; chown 1000 /srv/file; rm -rf /var/log; mv /srv /gone")
    assert lines(other, "cat /srv/file; stat -c %u /srv/file; ls -d /var/log") == [
        "then",
        "0",
        "/var/log",
    ]
    assert (keeper.layer(snapshot) / "srv/file").read_text() == "then\n"


def test_a_sandbox_with_a_disk_limit_is_kept_like_any_other(create, keeper):
    source = create(resource={"cpu": "1", "memory": "512Mi", "disk": "64Mi"})
    lines(source, "head -c 20000000 /dev/urandom > /srv/file; sha256sum < /srv/file > /srv/sum")
    restored = keeper.restore(keeper.keep(source))
    assert lines(restored, "sha256sum < /srv/file | cmp - /srv/sum && echo same") == ["same"]


def test_the_files_of_a_deleted_snapshot_go_with_the_last_sandbox(create, keeper):
    source = create()
    lines(source, "echo then > /srv/file")
    snapshot = keeper.keep(source)
    restored = keeper.restore(snapshot)
    keeper.server.call("DELETE", f"/v1/snapshots/{snapshot}")
    keeper.snapshots.clear()
    assert keeper.layer(snapshot).exists()
    assert lines(restored, "cat /srv/file") == ["then"]
    restored.kill()
    keeper.sandboxes.clear()
    wait_for("the files are gone", lambda: not keeper.layer(snapshot).exists())
