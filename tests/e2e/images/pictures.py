"""Images for tests: small roots made of a few programs of this host, as layouts of the OCI."""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import os
import pathlib
import platform
import shutil
import subprocess
import tarfile
from typing import Any

PROGRAMS = ["sh", "cat", "env", "id", "ls", "pwd", "sleep", "tail", "true"]
ARCHITECTURE = {"x86_64": "amd64", "aarch64": "arm64"}[platform.machine()]


def root() -> bytes:
    """A root file system with a shell and a handful of programs, as a tar archive."""
    files: dict[str, pathlib.Path] = {}
    for program in PROGRAMS:
        found = shutil.which(program)
        assert found, f"{program} is not on this host"
        files[f"bin/{program}"] = pathlib.Path(found).resolve()
        said = subprocess.run(["ldd", found], capture_output=True, text=True, check=True).stdout
        for word in said.split():
            if word.startswith("/"):
                files[word.lstrip("/")] = pathlib.Path(word).resolve()
    content: dict[str, bytes] = {name: path.read_bytes() for name, path in files.items()}
    content["etc/passwd"] = b"root:x:0:0::/root:/bin/sh\napp:x:1234:1234::/srv:/bin/sh\n"
    content["etc/group"] = b"root:x:0:\napp:x:1234:\n"
    return archive(content, ["tmp", "srv", "root", "proc", "dev", "sys", "etc"])


def archive(files: dict[str, bytes], directories: list[str] | None = None) -> bytes:
    """A tar archive with these files."""
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w", format=tarfile.PAX_FORMAT) as tar:
        for name in directories or []:
            entry = tarfile.TarInfo(name)
            entry.type, entry.mode = tarfile.DIRTYPE, 0o1777 if name == "tmp" else 0o755
            tar.addfile(entry)
        for name, data in files.items():
            entry = tarfile.TarInfo(name)
            entry.size, entry.mode = len(data), 0o755
            tar.addfile(entry, io.BytesIO(data))
    return packed.getvalue()


def noise(bytes: int) -> bytes:
    """Content that does not become smaller."""
    return os.urandom(bytes)


class Layout:
    """A layout of the OCI in a directory, to which images are added."""

    def __init__(self, place: pathlib.Path) -> None:
        self.place = place
        self.blobs = place / "blobs" / "sha256"
        self.blobs.mkdir(parents=True)
        (place / "oci-layout").write_text('{"imageLayoutVersion":"1.0.0"}')
        self.manifests: list[dict[str, Any]] = []

    def add(self, name: str, layers: list[bytes], config: dict[str, Any] | None = None) -> str:
        """An image of these layers, which are archives. Its digest."""
        described = [
            self.put(gzip.compress(layer, 1), "application/vnd.oci.image.layer.v1.tar+gzip")
            for layer in layers
        ]
        configuration = {
            "architecture": ARCHITECTURE,
            "os": "linux",
            "config": config or {},
            "rootfs": {"type": "layers", "diff_ids": [digest(layer) for layer in layers]},
        }
        manifest = {
            "schemaVersion": 2,
            "mediaType": "application/vnd.oci.image.manifest.v1+json",
            "config": self.put(text(configuration), "application/vnd.oci.image.config.v1+json"),
            "layers": described,
        }
        put = self.put(text(manifest), manifest["mediaType"])
        self.manifests.append(
            {**put, "annotations": {"org.opencontainers.image.ref.name": name}}
        )
        index = {"schemaVersion": 2, "manifests": self.manifests}
        (self.place / "index.json").write_bytes(text(index))
        return put["digest"]

    def put(self, content: bytes, media_type: str) -> dict[str, Any]:
        found = digest(content)
        (self.blobs / found.removeprefix("sha256:")).write_bytes(content)
        return {"mediaType": media_type, "digest": found, "size": len(content)}


def text(value: Any) -> bytes:
    return json.dumps(value).encode()


def digest(content: bytes) -> str:
    return "sha256:" + hashlib.sha256(content).hexdigest()
