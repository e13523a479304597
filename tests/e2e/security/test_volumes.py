"""Volumes: one test per sentence of SECURITY.md, named after it. The attacker is root in the sandbox."""

from __future__ import annotations

import contextlib
import os
import pathlib
import shutil
import socket
import stat
import subprocess
import tempfile
import threading
from collections.abc import Iterator

import pytest
from attack import fails, lines
from opensandbox import SandboxSync
from opensandbox.exceptions import SandboxApiException
from opensandbox.models.isolated import CreateIsolatedSessionRequest, IsolatedWorkspaceSpec
from opensandbox.models.sandboxes import PVC, Host, Volume
from served import Server, serving, wait_for

OWNER = 12345


@pytest.fixture(scope="module")
def place() -> Iterator[pathlib.Path]:
    """A directory of the host with one that sandboxes may be shown, and one that they may not."""
    place = pathlib.Path(tempfile.mkdtemp(prefix="osb-volumes-", dir="/var/tmp")).resolve()
    place.chmod(0o755)
    (place / "shared").mkdir()
    (place / "private").mkdir()
    (place / "private" / "secret").write_text("secret")
    yield place
    shutil.rmtree(place)


@pytest.fixture(scope="module")
def server(place: pathlib.Path) -> Iterator[Server]:
    config = place / "osb.toml"
    config.write_text(f"[storage]\nallowed-host-paths = ['{place}/shared']\n")
    with serving("--config", str(config)) as server:
        yield server


@pytest.fixture
def shared(place: pathlib.Path, request: pytest.FixtureRequest) -> pathlib.Path:
    """A directory of its own for each test, which sandboxes may be shown."""
    made = place / "shared" / request.node.name[:60]
    made.mkdir()
    return made


def host(path: pathlib.Path | str, at: str = "/data", **options) -> Volume:
    name = at.strip("/").replace("/", "-") or "root"
    return Volume(name=name, host=Host(path=str(path)), mount_path=at, **options)


def kept(claim: str, at: str = "/data", *, last: bool = False, create: bool = True, **options) -> Volume:
    pvc = PVC(claim_name=claim, delete_on_sandbox_termination=last, create_if_not_exists=create)
    return Volume(name=at.strip("/").replace("/", "-"), pvc=pvc, mount_path=at, **options)


def files_of(server: Server, claim: str) -> pathlib.Path:
    return server.data_dir / "native" / "volumes" / claim / "data"


def refused(create, code: str, *volumes: Volume) -> str:
    with pytest.raises(SandboxApiException) as caught:
        create(volumes=list(volumes))
    assert caught.value.status_code == 400 and caught.value.error.code == code, caught.value
    return str(caught.value)


# Where volumes come from


def test_a_host_path_that_nobody_allowed_is_refused(create, place):
    for path in ("/etc", str(place), str(place / "private"), f"{place}/shared-too", "/proc/self/root"):
        refused(create, "VOLUME::HOST_PATH_NOT_ALLOWED", host(path))
    for path in (f"{place}/shared/../private", f"{place}/shared//x", "/"):
        refused(create, "VOLUME::INVALID_HOST_PATH", host(path))
    with serving() as strict:
        body = {
            "image": {"uri": "host"}, "entrypoint": ["sleep", "9"], "resourceLimits": {},
            "volumes": [{"name": "a", "host": {"path": "/srv"}, "mountPath": "/data"}],
        }
        answer = strict.call("POST", "/v1/sandboxes", body)
        assert answer.status == 400 and answer.json()["code"] == "VOLUME::HOST_PATH_NOT_ALLOWED"
        assert "allowed-host-paths" in answer.json()["message"]


def test_no_link_leads_a_volume_out_of_its_place(create, place, shared):
    (shared / "inside").mkdir()
    (shared / "good").symlink_to("inside")
    (shared / "absolute").symlink_to(place / "private")
    (shared / "relative").symlink_to("../../private")
    (shared / "magic").symlink_to("/proc/1/root")
    (shared / "nowhere").symlink_to("../../private/new")
    create(volumes=[host(shared / "good")]).commands.run("touch /data/x")
    assert (shared / "inside" / "x").exists()
    for name in ("absolute", "relative", "magic", "absolute/secret"):
        refused(create, "VOLUME::HOST_PATH_NOT_ALLOWED", host(shared / name))
        refused(create, "VOLUME::INVALID_SUB_PATH", host(shared, sub_path=name))
    refused(create, "VOLUME::INVALID_SUB_PATH", host(shared, sub_path="../x"))
    with pytest.raises(SandboxApiException):
        create(volumes=[host(shared / "nowhere" / "deeper")])
    assert not (place / "private" / "new").exists()
    # What a sandbox leaves in a volume is no way out for the next.
    first = create(volumes=[kept("links")])
    first.commands.run("ln -s / /data/root; ln -s ../../../.. /data/up; ln -s /etc/passwd /data/file")
    for sub_path in ("root", "root/etc", "up", "file"):
        refused(create, "VOLUME::INVALID_SUB_PATH", kept("links", sub_path=sub_path))


def test_a_directory_that_is_swapped_for_a_link_leads_no_volume_out(create, place, shared):
    (shared / "way" / "end").mkdir(parents=True)
    (place / "private" / "end").mkdir()
    (place / "private" / "end" / "secret").write_text("secret")
    (shared / "link").symlink_to("../../private")
    stop = threading.Event()
    swapper = create(volumes=[host(shared, "/swap")])

    def swap() -> None:
        here = os.open(shared, os.O_PATH)
        while not stop.is_set():
            for one, other in (("way", "aside"), ("link", "way"), ("way", "link"), ("aside", "way")):
                try:
                    os.rename(one, other, src_dir_fd=here, dst_dir_fd=here)
                except OSError:
                    pass
        os.close(here)

    thread = threading.Thread(target=swap)
    thread.start()
    got = 0
    try:
        for number in range(40):
            volume = host(shared / "way" / "end") if number % 2 else host(shared, sub_path="way/end")
            try:
                sandbox = create(volumes=[volume])
            except SandboxApiException as refusal:
                assert refusal.status_code in (400, 500), refusal
                continue
            got += 1
            assert "secret" not in lines(sandbox, "ls /data")
            sandbox.kill()
    finally:
        stop.set()
        thread.join()
    assert got > 0, "not one sandbox was made"
    assert sorted(os.listdir(place / "private")) == ["end", "secret"]
    swapper.kill()


def test_no_sandbox_chooses_whose_files_the_next_one_owns(create, place, shared):
    """A sandbox that may change a directory could put files of others where its own are expected."""
    mine, secret = shared / "mine", shared / "secret"
    for path in (mine, mine / "job", mine / "theirs", secret):
        path.mkdir()
    for path in (mine, mine / "job"):
        os.chown(path, OWNER, OWNER)
    (mine / "theirs").chmod(0o700)
    (secret / "key").write_text("key")
    secret.chmod(0o700)
    sandbox = create(volumes=[host(mine)])
    fails(sandbox, "mv /data/theirs /data/moved")
    assert sandbox.commands.run("mv /data/job /data/old; ln -s ../secret /data/link").exit_code == 0
    # The kernel keeps a sandbox from moving what is not its own; another program of this user could.
    (mine / "theirs").rename(mine / "job")
    for path in (mine / "job", mine / "link", mine / "link" / "deeper"):
        refused(create, "VOLUME::HOST_PATH_NOT_ALLOWED", host(path))
    # What is theirs, they may have, also by a link.
    sandbox.commands.run("ln -s old /data/short")
    assert lines(create(volumes=[host(mine / "short")]), "touch /data/x; ls /data") == ["x"]
    # Directories that everybody can change lead to nothing, unless they are sticky.
    (shared / "open" / "job").mkdir(parents=True)
    (shared / "open").chmod(0o777)
    refused(create, "VOLUME::HOST_PATH_NOT_ALLOWED", host(shared / "open" / "job"))
    (shared / "open").chmod(0o1777)
    create(volumes=[host(shared / "open" / "job")])
    (shared / "open" / "lure").symlink_to("../secret")
    os.chown(shared / "open" / "lure", OWNER, OWNER, follow_symlinks=False)
    refused(create, "VOLUME::HOST_PATH_NOT_ALLOWED", host(shared / "open" / "lure"))


@contextlib.contextmanager
def mounted(*arguments: str, at: pathlib.Path) -> Iterator[pathlib.Path]:
    at.mkdir(exist_ok=True)
    subprocess.run(["mount", *arguments, str(at)], check=True)
    try:
        yield at
    finally:
        subprocess.run(["umount", str(at)], check=True)


def test_a_file_system_that_cannot_translate_owners_is_refused(create, place, shared):
    layers = [place / "private" / name for name in ("lower", "upper", "work")]
    for layer in layers:
        layer.mkdir(exist_ok=True)
    options = "lowerdir={},upperdir={},workdir={}".format(*layers)
    with mounted("-t", "overlay", "overlay", "-o", options, at=shared / "overlay") as overlay:
        # Also if it lies below what is asked for.
        for path in (overlay, shared):
            for read_only in (False, True):
                said = refused(create, "VOLUME::UNSUPPORTED_BACKEND", host(path, read_only=read_only))
                assert "cannot translate owners" in said, said
    for layer in layers:
        shutil.rmtree(layer)
    create(volumes=[host(shared)])


def test_a_host_path_may_be_a_mount_point_and_have_some_below_it(create, shared):
    with mounted("-t", "tmpfs", "none", at=shared / "outer") as outer:
        (outer / "file").write_text("outer")
        with mounted("-t", "tmpfs", "none", at=outer / "inner") as inner:
            (inner / "file").write_text("inner")
            one = create(volumes=[host(outer)])
            assert lines(one, "cat /data/file /data/inner/file") == ["outerinner"]
            two = create(volumes=[host(shared, read_only=True)])
            fails(two, "touch /data/outer/new")
            fails(two, "touch /data/outer/inner/new")
            assert lines(two, "cat /data/outer/inner/file") == ["inner"]
            one.kill()
            two.kill()
            # What is mounted there later does not come in.
            three = create(volumes=[host(shared)])
            with mounted("-t", "tmpfs", "none", at=shared / "later") as later:
                (later / "file").write_text("x")
                assert lines(three, "ls /data/later") == []
            three.kill()


def test_a_host_path_that_cannot_be_made_says_so(create, shared):
    with mounted("-t", "tmpfs", "-o", "ro", "none", at=shared / "fixed") as fixed:
        with pytest.raises(SandboxApiException) as caught:
            create(volumes=[host(fixed / "new")])
        assert caught.value.status_code == 500, caught.value
        assert caught.value.error.code == "VOLUME::HOST_PATH_CREATE_FAILED", caught.value


def test_sockets_pipes_and_devices_of_the_host_are_no_volumes(create, shared):
    os.mkfifo(shared / "pipe")
    os.mknod(shared / "device", 0o666 | stat.S_IFCHR, os.makedev(1, 3))
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(shared / "socket"))
        for name in ("pipe", "device", "socket"):
            refused(create, "VOLUME::HOST_PATH_NOT_FOUND", host(shared / name, "/file"))
            refused(create, "VOLUME::INVALID_SUB_PATH", host(shared, "/file", sub_path=name))


def test_a_snapshot_has_nothing_of_a_volume_and_leads_none_astray(create, shared):
    sandbox = create(volumes=[host(shared, "/a"), kept("unkept", "/b")])
    sandbox.commands.run("echo x > /a/file; echo y > /b/file; ln -s /proc /c; ln -s /etc /d; mkdir /e")
    snapshot = sandbox.create_snapshot().id
    again = create(snapshot_id=snapshot)
    assert lines(again, "ls -A /a /b | grep file") == []
    for at in ("/c", "/c/self", "/d", "/d/new"):
        with pytest.raises(SandboxApiException) as caught:
            create(snapshot_id=snapshot, volumes=[host(shared, at)])
        assert caught.value.error.code == "VOLUME::INVALID_MOUNT_PATH", caught.value
    assert lines(create(snapshot_id=snapshot, volumes=[host(shared, "/e")]), "cat /e/file") == ["x"]


def test_no_volume_covers_what_is_the_sandboxs_own(create, shared):
    for at in ("/", "/proc", "/proc/self", "/sys/fs", "/dev", "/dev/shm", "/opt/opensandbox"):
        refused(create, "VOLUME::INVALID_MOUNT_PATH", host(shared, at))
    # /bin is a link of the image, and /usr is read-only.
    for at in ("/bin/x", "/usr/not-there"):
        refused(create, "VOLUME::INVALID_MOUNT_PATH", host(shared, at))


# What can be done with them


def test_a_read_only_volume_cannot_be_written(create, server, shared):
    (shared / "file").write_text("as it was")
    (shared / "file").chmod(0o666)
    create(volumes=[kept("finished")]).commands.run("echo as it was > /data/file; chmod 666 /data/file")
    sandbox = create(
        volumes=[host(shared, "/a", read_only=True), kept("finished", "/b", read_only=True)]
    )
    for at in ("/a", "/b"):
        assert lines(sandbox, f"cat {at}/file") == ["as it was"]
        for attack in (
            f"echo x > {at}/file", f"touch {at}/new", f"rm {at}/file", f"chmod 777 {at}/file",
            f"mv {at}/file {at}/other", f"mount -o remount,rw {at}", f"mount -o bind,remount,rw {at}",
            f"umount {at}", f"python3 -c \"import os; os.open('{at}/file', os.O_RDWR)\"",
            f"exec 3<{at}/file; echo x > /proc/self/fd/3", f"ln {at}/file {at}/again",
            f"touch -d 2000-01-01 {at}/file",
        ):
            fails(sandbox, attack)
    assert (shared / "file").read_text() == "as it was" and os.listdir(shared) == ["file"]
    assert os.listdir(files_of(server, "finished")) == ["file"]


SET_ID = """
import ctypes, os, stat
libc = ctypes.CDLL(None, use_errno=True)
at = "/data/"
def attempt(name, work):
    try: work()
    except OSError: pass
def plain(name):
    os.close(os.open(at + name, os.O_CREAT | os.O_WRONLY, 0o755))
    return at + name
attempt("chmod", lambda: os.chmod(plain("chmod"), 0o4755))
attempt("chmod-group", lambda: os.chmod(plain("chmod-group"), 0o2755))
attempt("fchmod", lambda: os.fchmod(os.open(plain("fchmod"), os.O_RDWR), 0o6755))
attempt("open", lambda: os.open(at + "open", os.O_CREAT | os.O_WRONLY, 0o4755))
attempt("mknod", lambda: os.mknod(at + "mknod", 0o4755 | stat.S_IFREG))
def unnamed():
    fd = os.open(at, os.O_TMPFILE | os.O_RDWR, 0o4755)
    os.link(f"/proc/self/fd/{fd}", at + "unnamed", follow_symlinks=True)
attempt("unnamed", unnamed)
how = (ctypes.c_uint64 * 3)(os.O_CREAT | os.O_WRONLY, 0o4755, 0)
libc.syscall(437, -100, (at + "openat2").encode(), how, 24)
libc.syscall(452, -100, plain("fchmodat2").encode(), 0o4755, 0)
libc.syscall(268, -100, plain("fchmodat").encode(), 0o4755)
libc.syscall(85, (at + "creat").encode(), 0o4755)
capability = bytes.fromhex("010000020004000000000000000000000000000000000000")
attempt("capability", lambda: os.setxattr(plain("capability"), "security.capability", capability[:20]))
attempt("copy", lambda: (open("/tmp/set", "w").close(), os.chmod("/tmp/set", 0o4755)))
os.system("cp -p /tmp/set /data/copy; mv /tmp/set /data/moved; install -m 4755 /bin/true /data/installed")
print("tried")
"""


def test_a_sandbox_makes_no_set_id_file_on_the_host(create, shared):
    sandbox = create(volumes=[host(shared)])
    sandbox.files.write_file("/tmp/attack.py", SET_ID)
    assert lines(sandbox, "python3 /tmp/attack.py 2>/dev/null")[-1] == "tried"
    session = sandbox.isolation.create(
        CreateIsolatedSessionRequest(workspace=IsolatedWorkspaceSpec(path="/data", mode="rw"))
    )
    (shared / "isolated").mkdir()
    (shared / "attack.py").write_text(SET_ID.replace("/data/", "/data/isolated/"))
    ran = session.run("python3 /data/attack.py 2>/dev/null; chmod u+s /data/chmod")
    assert any("tried" in line.text for line in ran.logs.stdout), ran
    made = [path for path in shared.rglob("*") if not path.is_dir()]
    assert len(made) > 12, made
    for path in made:
        assert path.lstat().st_mode & (stat.S_ISUID | stat.S_ISGID) == 0, path
        assert "security.capability" not in os.listxattr(path), path
    # The daemon's own operations on files are no way around it.
    with pytest.raises(SandboxApiException):
        sandbox.files.write_file("/data/uploaded", "x", mode=4755)
    assert not (shared / "uploaded").exists() or (shared / "uploaded").stat().st_mode & 0o6000 == 0
    # Ordinary work goes on, also over deep directories.
    sandbox.commands.run("mkdir -p /data/a/b/c; touch /data/a/b/c/found; chmod 700 /data/a")
    assert (shared / "a" / "b" / "c" / "found").exists()


def test_neither_devices_nor_set_id_programs_of_a_volume_work(create, shared):
    os.mknod(shared / "null", 0o666 | stat.S_IFCHR, os.makedev(1, 3))
    shutil.copy("/usr/bin/id", shared / "id")
    (shared / "id").chmod(0o4755)
    sandbox = create(volumes=[host(shared)])
    fails(sandbox, "echo x > /data/null")
    fails(sandbox, "cat /data/null")
    assert lines(sandbox, "setpriv --reuid 1000 --clear-groups /data/id -u") == ["1000"]
    # A sandbox makes no device itself.
    fails(sandbox, "mknod /data/mine c 1 3")


def test_files_of_a_host_volume_are_usable_from_both_sides(create, shared):
    os.chown(shared, OWNER, OWNER + 1)
    (shared / "given").write_text("from the host\n")
    (shared / "given").chmod(0o600)
    os.chown(shared / "given", OWNER, OWNER + 1)
    (shared / "foreign").write_text("somebody else's")
    (shared / "foreign").chmod(0o600)
    sandbox = create(volumes=[host(shared)])
    assert lines(sandbox, "cat /data/given; stat -c %u:%g /data/given") == ["from the host", "0:0"]
    sandbox.commands.run("echo more >> /data/given; mkdir -p /data/new/dir; echo x > /data/new/dir/f")
    assert (shared / "given").read_text() == "from the host\nmore\n"
    for path in (shared / "new", shared / "new/dir/f"):
        assert (path.stat().st_uid, path.stat().st_gid) == (OWNER, OWNER + 1), path
    # It acts as the owner and as nobody else.
    fails(sandbox, "cat /data/foreign")
    fails(sandbox, "chown root /data/foreign")
    fails(sandbox, "rm -f /data/foreign && chown 12345 /data/given && false")
    # Other users of the sandbox are nobody on the host, and the same in the next sandbox.
    sandbox.commands.run("chmod 777 /data/new; cd /data/new; setpriv --reuid 1000 touch /data/new/theirs")
    theirs = (shared / "new/theirs").stat().st_uid
    assert theirs == 0x3FFF0000 + 1000
    again = create(volumes=[host(shared)])
    assert lines(again, "stat -c %u /data/new/theirs") == ["1000"]


def test_the_owner_of_a_new_host_directory_is_that_of_the_one_around_it(create, shared):
    os.chown(shared, OWNER, OWNER)
    sandbox = create(volumes=[host(shared / "new" / "deep", sub_path="part/of")])
    sandbox.commands.run("touch /data/x")
    for path in ("new", "new/deep", "new/deep/part/of", "new/deep/part/of/x"):
        assert (shared / path).stat().st_uid == OWNER, path
    assert stat.S_IMODE((shared / "new").stat().st_mode) == 0o755


def test_two_sandboxes_share_a_kept_volume(create, server):
    one, two = create(volumes=[kept("both")]), create(volumes=[kept("both", "/elsewhere")])
    one.commands.run("echo hello > /data/word; chown 1000 /data/word; chmod 600 /data/word")
    assert lines(two, "cat /elsewhere/word; stat -c %u /elsewhere/word") == ["hello", "1000"]
    two.commands.run("echo bye > /elsewhere/word")
    assert lines(one, "cat /data/word") == ["bye"]
    one.kill()
    two.kill()
    assert (files_of(server, "both") / "word").read_text() == "bye\n"
    assert lines(create(volumes=[kept("both", create=False)]), "cat /data/word") == ["bye"]
    refused(create, "VOLUME::PVC_NOT_FOUND", kept("never-made", create=False))


def test_a_volume_goes_with_the_last_sandbox_and_only_if_it_was_made_for_one(create, server):
    create(volumes=[kept("older")]).kill()
    one = create(volumes=[kept("older", "/a", last=True), kept("fresh", "/b", last=True)])
    two = create(volumes=[kept("fresh", "/b")])
    two.commands.run("echo x > /b/file")
    one.kill()
    assert files_of(server, "fresh").exists(), "another sandbox uses it"
    assert lines(two, "cat /b/file") == ["x"]
    two.kill()
    assert not files_of(server, "fresh").exists()
    assert files_of(server, "older").exists(), "it was there before"
    # A create that fails takes back what was made for it.
    refused(create, "VOLUME::INVALID_MOUNT_PATH", kept("unborn", "/bin/x", last=True))
    assert not files_of(server, "unborn").exists()


def test_removing_a_sandbox_leaves_what_is_in_its_volumes(create, server, shared):
    (shared / "tree/deep").mkdir(parents=True)
    (shared / "tree/deep/file").write_text("x")
    sandbox = create(volumes=[host(shared, "/a"), kept("lasting", "/a/b"), kept("lasting", "/srv/c")])
    sandbox.commands.run("echo y > /a/b/file")
    assert lines(sandbox, "cat /srv/c/file") == ["y"]
    sandbox.kill()
    removed = server.data_dir / "native" / "removed"
    wait_for("its files are deleted", lambda: not os.listdir(removed))
    assert (shared / "tree/deep/file").read_text() == "x"
    assert (files_of(server, "lasting") / "file").read_text() == "y\n"


def listed(server: Server) -> dict[str, dict]:
    answer = server.call("GET", "/v1/volumes?pageSize=200")
    assert answer.status == 200, answer
    return {volume["name"]: volume for volume in answer.json()["items"]}


def test_a_volume_that_a_sandbox_uses_is_not_deleted(create, server):
    sandbox = create(volumes=[kept("in-use")])
    sandbox.commands.run("dd if=/dev/zero of=/data/file bs=1M count=2; ln -s / /data/out")
    volume = listed(server)["in-use"]
    assert volume["usedBy"] == [sandbox.id] and 2 << 20 <= volume["sizeBytes"] < 4 << 20, volume
    for meanwhile in (sandbox.pause, lambda: None):
        answer = server.call("DELETE", "/v1/volumes/in-use")
        assert answer.status == 409 and answer.json()["code"] == "VOLUME::IN_USE", answer
        assert sandbox.id in answer.json()["message"]
        meanwhile()
    assert (files_of(server, "in-use") / "file").exists()
    sandbox.kill()
    assert listed(server)["in-use"]["usedBy"] == []
    assert server.call("DELETE", "/v1/volumes/in-use").status == 204
    answer = server.call("DELETE", "/v1/volumes/in-use")
    assert answer.status == 404 and answer.json()["code"] == "VOLUME::PVC_NOT_FOUND", answer
    assert "in-use" not in listed(server)
    refused(create, "VOLUME::PVC_NOT_FOUND", kept("in-use", create=False))
    assert lines(create(volumes=[kept("in-use")]), "ls -A /data") == []


HOSTILE = """
import os
os.chdir("/data")
for _ in range(3000):
    os.mkdir("d"); os.chdir("d")
os.chdir("/data")
os.mkdir("wide")
for number in range(25000): os.symlink("x", f"wide/{number}")
os.mkfifo("fifo"); os.symlink("/", "out"); os.mkdir("closed"); os.chmod("closed", 0)
"""


def test_nothing_in_a_volume_keeps_it_from_being_listed_or_deleted(create, server, place):
    sandbox = create(volumes=[kept("hostile"), kept("plain", "/plain")])
    sandbox.files.write_file("/tmp/hostile.py", HOSTILE)
    assert sandbox.commands.run("python3 /tmp/hostile.py").exit_code == 0
    volumes = listed(server)
    assert "sizeBytes" not in volumes["hostile"] and "sizeBytes" in volumes["plain"]
    sandbox.kill()
    assert server.call("DELETE", "/v1/volumes/hostile").status == 204
    removed = server.data_dir / "native" / "removed"
    wait_for("its files are deleted", lambda: not os.listdir(removed), 60)
    assert (place / "private" / "secret").exists() and os.path.exists("/etc/passwd")


def test_a_volume_is_never_deleted_under_a_sandbox_that_starts_with_it(create, server):
    stop = threading.Event()
    statuses = set()

    def delete() -> None:
        while not stop.is_set():
            statuses.add(server.call("DELETE", "/v1/volumes/contested").status)

    deleting = threading.Thread(target=delete)
    deleting.start()
    try:
        for number in range(25):
            sandbox = create(volumes=[kept("contested")])
            sandbox.commands.run(f"echo {number} > /data/file")
            assert (files_of(server, "contested") / "file").read_text() == f"{number}\n"
            sandbox.kill()
    finally:
        stop.set()
        deleting.join()
    assert statuses <= {204, 404, 409} and 409 in statuses, statuses


def memory_volume(server: Server, size: str, limit: str = "512Mi") -> str:
    body = {
        "image": {"uri": "host"}, "entrypoint": ["tail", "-f", "/dev/null"],
        "resourceLimits": {"memory": limit}, "timeout": 600,
        "volumes": [{"name": "a", "tmpfs": {"size": size}, "mountPath": "/scratch"},
                    {"name": "b", "tmpfs": {"size": "128Mi"}, "mountPath": "/dev/shm"}],
    }
    answer = server.call("POST", "/v1/sandboxes", body)
    assert answer.status == 202, answer
    return answer.json()["id"]


def connected(server: Server, sandbox: str) -> SandboxSync:
    from opensandbox.config import ConnectionConfigSync

    config = ConnectionConfigSync(domain=server.domain, api_key=server.api_key)
    return SandboxSync.connect(sandbox, connection_config=config)


def test_a_volume_in_memory_is_limited_and_counts_as_memory(server):
    sandbox = connected(server, memory_volume(server, "8Mi"))
    assert lines(sandbox, "stat -c %a:%u /scratch; df -k --output=size /dev/shm | tail -1")[0] == "1777:0"
    fails(sandbox, "dd if=/dev/zero of=/scratch/big bs=1M count=9")
    fails(sandbox, "rm /scratch/big; cd /scratch; python3 -c \"\nfor n in range(3000): open(str(n), 'w').close()\"")
    fails(sandbox, "mount -o remount,size=1g /scratch")
    assert lines(sandbox, "rm -rf /scratch/*; echo ok > /scratch/x; cat /scratch/x") == ["ok"]
    sandbox.kill()
    # Larger than the sandbox's memory: the sandbox's limit holds.
    sandbox = connected(server, memory_volume(server, "4Gi", "64Mi"))
    fails(sandbox, "dd if=/dev/zero of=/scratch/big bs=1M count=256")
    assert lines(sandbox, "rm -f /scratch/big; echo alive") == ["alive"]
    sandbox.kill()


def test_an_isolated_session_sees_volumes_and_writes_only_where_it_may(create, shared):
    sandbox = create(volumes=[host(shared), kept("beside", "/other")])
    sandbox.commands.run("echo x > /data/f; echo y > /other/f")
    seen = sandbox.isolation.run_once("cat /data/f /other/f; echo z > /data/f", workspace="/srv")
    assert [line.text for line in seen.logs.stdout] == ["x", "y"]
    assert (shared / "f").read_text() == "x\n"
