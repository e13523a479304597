"""Images that come and go as archives, read and written by programs that are not ours."""

from __future__ import annotations

import json
import pathlib
import subprocess
import tarfile

from opensandbox import SandboxSync
from pictures import Layout, root
from registry import Registry
from served import Server, wait_for
from store import Store


def events(server: Server, path: str, body: dict[str, object]) -> list[dict[str, object]]:
    answer = server.call("POST", path, body, timeout=120)
    assert answer.status == 200, answer
    assert answer.headers["content-type"] == "application/x-ndjson"
    return [json.loads(line) for line in answer.body.splitlines()]


def skopeo(*words: str) -> str:
    return subprocess.run(["skopeo", *words], check=True, capture_output=True, text=True).stdout


def test_a_root_becomes_an_image_that_sandboxes_start_from(server: Server, connection):
    answer = server.call("POST", "/v1/images/import?name=mine:1", root(), timeout=60)
    assert answer.status == 200, answer
    digest = answer.json()["items"][0]["digest"]
    made = SandboxSync.create(
        "mine:1", entrypoint=["/bin/tail", "-f", "/dev/null"], connection_config=connection
    )
    with made as sandbox:
        execution = sandbox.commands.run("PATH=/bin ls -d /srv /usr || true")
        assert [line.text for line in execution.logs.stdout] == ["/srv"]
        in_use = server.call("DELETE", f"/v1/images?name={digest}")
        assert (in_use.status, in_use.json()["code"]) == (409, "SANDBOX::IMAGE_IN_USE")
        assert server.call("DELETE", "/v1/images?name=mine:1").status == 204
        store = Store(server)
        assert store.collect()["images"] == 0
        assert [image["usedBy"] for image in store.images()] == [1]
        # By its digest it can still be asked for.
        again = SandboxSync.create(
            digest, entrypoint=["/bin/tail", "-f", "/dev/null"], connection_config=connection
        )
        again.kill()
        sandbox.kill()
    wait_for("no sandboxes", lambda: not server.ids())
    assert Store(server).collect()["images"] == 1
    assert Store(server).is_empty()


def test_what_others_write_is_imported_and_what_is_exported_they_read(
    server: Server, layout: Layout, tmp_path: pathlib.Path
):
    for kind, archive in [("docker-archive", "docker.tar"), ("oci-archive", "oci.tar")]:
        file = tmp_path / archive
        skopeo("copy", "-q", f"oci:{layout.place}:app:1", f"{kind}:{file}:app:1")
        name = kind.replace("-", "/")
        answer = server.call(
            "POST", f"/v1/images/import?name={name}", file.read_bytes(), timeout=60
        )
        assert answer.status == 200, answer
        shown = server.call("GET", f"/v1/images/inspect?name={name}").json()
        assert shown["config"]["user"] == "app"
        assert shown["config"]["env"]["FROM_IMAGE"] == "yes"
        assert (shown["layers"], shown["usedBy"]) == (2, 0)
    for format, kind in [("oci", "oci-archive"), ("docker", "docker-archive")]:
        answer = server.call("GET", f"/v1/images/export?name=oci/archive&format={format}")
        assert answer.status == 200, answer
        file = tmp_path / f"exported-{format}.tar"
        file.write_bytes(answer.body)
        assert tarfile.is_tarfile(file)
        config = json.loads(skopeo("inspect", "--config", f"{kind}:{file}"))
        assert config["config"]["WorkingDir"] == "/srv"


def test_an_image_goes_to_a_registry_and_comes_back(
    server: Server, public: Registry, private: Registry
):
    auth = {"username": "me", "password": "secret"}
    source, target = f"{public.name}/app:1", f"{private.name}/copy:2"
    told = events(server, "/v1/images/pull", {"name": source})
    assert told[0] == {"type": "resolving", "name": source}
    digest = told[-1]["digest"]
    assert told[-1] == {"type": "image", "digest": digest, "names": [source]}
    assert server.call("POST", "/v1/images/tag", {"name": source, "tag": target}).status == 204
    denied = events(server, "/v1/images/push", {"name": target})
    assert denied[-1]["code"] == "SANDBOX::IMAGE_ACCESS_DENIED"
    told = events(server, "/v1/images/push", {"name": target, "auth": auth})
    assert told[-1] == {"type": "image", "digest": digest, "names": [target]}
    assert json.loads(private.inspect("copy:2"))["Digest"] == digest
    assert server.call("DELETE", f"/v1/images?name={digest}").status == 204
    wait_for("an empty store", Store(server).is_empty, 120)
    told = events(server, "/v1/images/pull", {"name": target, "auth": auth})
    assert told[-1]["digest"] == digest
    layers = [event["layers"] for event in told if event["type"] == "pulling"]
    assert all(len(each) == 2 for each in layers)
