"""Volumes through the clients' own models."""

from __future__ import annotations

import secrets

import pytest
from clients import KINDS, Box
from opensandbox.exceptions import SandboxApiException
from opensandbox.models.sandboxes import OSSFS, PVC, Host, Volume


@pytest.mark.parametrize("kind", KINDS)
def test_a_kept_volume_is_shared_and_goes_with_the_last(server, kind: str):
    claim = f"models-{secrets.token_hex(4)}"
    pvc = PVC(claim_name=claim, delete_on_sandbox_termination=True)
    one = Box(server, kind, "direct", volumes=[Volume(name="a", pvc=pvc, mount_path="/models")])
    two = Box(
        server, kind, "direct",
        volumes=[
            Volume(name="b", pvc=PVC(claim_name=claim), mount_path="/m", read_only=True, sub_path="v1")
        ],
    )
    try:
        one.commands.run("echo weights > /models/v1/file")
        assert two.files.read_file("/m/file") == "weights\n"
        assert two.commands.run("touch /m/new").exit_code != 0
    finally:
        one.close()
        two.close()
    gone = PVC(claim_name=claim, create_if_not_exists=False)
    with pytest.raises(SandboxApiException) as caught:
        Box(server, kind, "direct", volumes=[Volume(name="c", pvc=gone, mount_path="/m")])
    assert caught.value.error.code == "VOLUME::PVC_NOT_FOUND"


@pytest.mark.parametrize("kind", KINDS)
def test_what_a_server_does_not_have_is_refused_with_its_code(server, kind: str):
    bucket = OSSFS(bucket="bucket", endpoint="e.example", accessKeyId="id", accessKeySecret="secret")
    for volume, code in [
        (Volume(name="a", host=Host(path="/srv"), mount_path="/a"), "VOLUME::HOST_PATH_NOT_ALLOWED"),
        (Volume(name="a", ossfs=bucket, mount_path="/a"), "VOLUME::UNSUPPORTED_BACKEND"),
        (Volume(name="a", pvc=PVC(claim_name="x"), mount_path="/proc"), "VOLUME::INVALID_MOUNT_PATH"),
    ]:
        with pytest.raises(SandboxApiException) as caught:
            Box(server, kind, "direct", volumes=[volume])
        assert (caught.value.status_code, caught.value.error.code) == (400, code)
