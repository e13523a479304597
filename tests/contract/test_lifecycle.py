"""Requests that follow the server's own document, and such that nearly do: whatever is asked, the answer
is one that the document has.

`OSB_EXAMPLES` says how many requests are made up for each operation, and `OSB_SEED` says that other
ones than usual are.
"""

from __future__ import annotations

import json
import os
import zlib
from collections.abc import Iterator
from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, settings
from schemathesis.checks import CheckContext
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
    status_code_conformance,
)
from internet import alone
from served import ROOT, Server, serving

schema = schemathesis.openapi.from_path(ROOT / "specs" / "lifecycle.json")

# What is there to be asked for: most requests name it, the others what nobody has.
THERE: dict[str, Any] = {}


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    """A server that can ask nobody for the images that are made up."""
    assert os.geteuid() == 0, "network namespaces need root"
    with alone(), serving() as server:
        yield server


@schema.hook
def map_path_parameters(context: Any, path_parameters: dict[str, Any] | None) -> Any:
    for name in THERE.keys() & (path_parameters or {}).keys():
        if zlib.crc32(repr(path_parameters[name]).encode()) % 4:
            path_parameters[name] = THERE[name]
    return path_parameters


@schema.hook
def map_query(context: Any, query: dict[str, Any] | None) -> Any:
    # Who follows is answered for as long as the sandbox lives.
    if query:
        query.pop("follow", None)
    return query


# What is accepted, so that each field that is made up can be tried beside it.
ACCEPTED = {
    "POST /sandboxes": {
        "image": {"uri": "host"},
        "entrypoint": ["sleep", "infinity"],
        "resourceLimits": {"cpu": "1", "memory": "64Mi"},
        "timeout": 600,
    },
    "POST /templates": {"image": "host", "publish": "s3://bucket/prefix"},
    "PATCH /sandboxes/{sandboxId}/networkpolicy": [{"action": "allow", "target": "a.example"}],
}


@schema.hook
def map_body(context: Any, body: Any) -> Any:
    accepted = ACCEPTED.get(context.operation.label)
    chosen = zlib.crc32(repr(body).encode())
    if accepted is None or chosen % 4 == 0:
        return body
    if not isinstance(accepted, dict) or not isinstance(body, dict):
        return accepted
    keys = sorted(body.keys() - accepted.keys(), key=repr)
    more = {keys[chosen % len(keys)]: body[keys[chosen % len(keys)]]} if keys else {}
    return accepted | more


@schemathesis.serializer("application/x-tar")
def as_it_is(context: Any, value: Any) -> Any:
    return value if isinstance(value, bytes) else json.dumps(value).encode()


def no_fault(context: CheckContext, response: Any, case: Any) -> None:
    """500 is in the document for what nobody foresaw, and nothing of that kind may happen here."""
    assert response.status_code != 500, response.text


@pytest.fixture
def there(server: Server) -> Iterator[None]:
    """A sandbox and a snapshot that an operation finds."""
    made = server.call("POST", "/v1/sandboxes", ACCEPTED["POST /sandboxes"])
    assert made.status == 202, made
    path = f"/v1/sandboxes/{made.json()['id']}"
    kept = server.call("POST", f"{path}/snapshots")
    assert kept.status == 202, kept
    THERE.update(sandboxId=made.json()["id"], port=44772, snapshotId=kept.json()["id"])
    yield
    server.call("DELETE", path)


@schema.parametrize()
@settings(
    max_examples=int(os.environ.get("OSB_EXAMPLES", "25")),
    deadline=None,
    derandomize="OSB_SEED" not in os.environ,
    database=None,
    phases=[Phase.explicit, Phase.generate],
    suppress_health_check=list(HealthCheck),
)
def test_every_answer_is_in_the_document(case: schemathesis.Case, server: Server, there: None):
    # Some operations are beside the others, and say so.
    (place,) = case.operation.definition.raw.get("servers", schema.raw_schema["servers"])
    case.call_and_validate(
        base_url=f"http://{server.domain}{place['url'].rstrip('/')}",
        headers={"OPEN-SANDBOX-API-KEY": server.api_key},
        timeout=20,
        checks=[
            no_fault,
            status_code_conformance,
            content_type_conformance,
            response_headers_conformance,
            response_schema_conformance,
        ],
    )
