"""The documents in specs/ say what the server does."""

import re

import yaml
from served import ROOT

# Also known without the prefix.
PREFIX = "/v1"


def operations(document: dict) -> dict[tuple[str, str], set[str]]:
    """The statuses of each operation, by method and path; names of parameters do not matter."""
    return {
        (method, re.sub(r"\{[^}]*\}", "{}", path.removeprefix(PREFIX))): set(known["responses"])
        for path, item in document["paths"].items()
        for method, known in item.items()
    }


def test_what_the_server_says_of_itself_is_in_its_document(server):
    served = operations(server.call("GET", "/openapi.json", key=None).json())
    written = operations(yaml.safe_load((ROOT / "specs" / "lifecycle.yaml").read_text()))
    assert ("post", "/sandboxes") in served
    for operation, statuses in served.items():
        assert operation in written, operation
        assert statuses <= written[operation], operation


def test_every_path_of_the_documents_is_answered_in_json(server):
    """What is not there yet says so with a code; nothing is a blank page."""
    stranger = "00000000-0000-4000-8000-000000000000"
    for name in ("lifecycle", "diagnostics"):
        document = yaml.safe_load((ROOT / "specs" / f"{name}.yaml").read_text())
        for path, item in document["paths"].items():
            path = re.sub(r"\{(sandboxId|snapshotId)\}", stranger, path)
            path = path.replace("{port}", "44772")
            path = re.sub(r"\{[^}]*\}", "x", path)
            for method in item:
                answer = server.call(method.upper(), PREFIX + path, {})
                if not 200 <= answer.status < 300:
                    body = answer.json()
                    assert body["code"] and body["message"], (method, path, answer)
                assert answer.status != 500, (method, path, answer)
