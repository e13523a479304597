"""What a server's store of images holds, looked up on its disk."""

from __future__ import annotations

import pathlib
from typing import Any

from served import Server


class Store:
    def __init__(self, server: Server) -> None:
        self.server = server
        self.place = server.data_dir / "native" / "images"

    def count(self, directory: str) -> int:
        return len(list((self.place / directory).iterdir()))

    def blobs(self) -> set[str]:
        return {path.name for path in (self.place / "blobs" / "sha256").iterdir()}

    def arrived(self) -> int:
        """Bytes of blobs of which a part is here."""
        sizes = [size(path) for path in (self.place / "ingest").iterdir()]
        return sum(sizes)

    def is_empty(self) -> bool:
        parts = ["layers", "merged", "images", "ingest", "unfinished"]
        return not self.blobs() and not any(self.count(part) for part in parts)

    def images(self) -> list[dict[str, Any]]:
        answer = self.server.call("GET", "/v1/images?pageSize=200")
        assert answer.status == 200, answer
        return answer.json()["items"]

    def names(self) -> list[str]:
        return sorted(name for image in self.images() for name in image["names"])

    def collect(self) -> dict[str, int]:
        answer = self.server.call("POST", "/v1/images/gc", timeout=300)
        assert answer.status == 200, answer
        return answer.json()


def size(path: pathlib.Path) -> int:
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return 0
