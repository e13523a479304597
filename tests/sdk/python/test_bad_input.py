"""What is wrong gets a clear answer and leaves nothing behind."""

from __future__ import annotations

import json
import uuid
from datetime import timedelta
from typing import Any

import pytest
from opensandbox import SandboxSync
from opensandbox.config import ConnectionConfigSync
from opensandbox.exceptions import SandboxApiException
from served import Reply, Server

GOOD: dict[str, Any] = {
    "image": {"uri": "host"},
    "entrypoint": ["tail", "-f", "/dev/null"],
    "resourceLimits": {"cpu": "1", "memory": "256Mi"},
    "timeout": 600,
}


def clear(answer: Reply, statuses: set[int]) -> dict[str, str]:
    """The answer is one of `statuses` and says in JSON what was wrong."""
    assert answer.status in statuses, answer
    assert answer.headers["content-type"].startswith("application/json"), answer.headers
    body = answer.json()
    assert isinstance(body["code"], str) and body["code"], body
    assert isinstance(body["message"], str) and body["message"], body
    assert "panick" not in body["message"] and "/src/" not in body["message"], body
    return body


@pytest.fixture(autouse=True)
def nothing_is_left_behind(server: Server):
    before = server.ids()
    yield
    assert server.ids() == before


# An image that is not here, and of which nobody knows where it is.
NOWHERE = "sha256:" + "0" * 64

WRONG: dict[str, dict[str, Any]] = {
    "timeout below a minute": {"timeout": 59},
    "timeout zero": {"timeout": 0},
    "timeout negative": {"timeout": -1},
    "timeout absurd": {"timeout": 10**15},
    "timeout beyond every integer": {"timeout": 10**30},
    "timeout a fraction": {"timeout": 60.5},
    "timeout a word": {"timeout": "soon"},
    "timeout a list": {"timeout": [600]},
    "image a word": {"image": "host"},
    "image a number": {"image": 7},
    "image without name": {"image": {}},
    "image with an empty name": {"image": {"uri": ""}},
    "no image": {"image": None},
    "unknown image": {"image": {"uri": NOWHERE}},
    "image that climbs": {"image": {"uri": "../../etc"}},
    "entrypoint empty": {"entrypoint": []},
    "entrypoint a word": {"entrypoint": "sleep"},
    "entrypoint of numbers": {"entrypoint": [1, 2]},
    "no limits": {"resourceLimits": None},
    "limits a list": {"resourceLimits": ["cpu"]},
    "limit a number": {"resourceLimits": {"cpu": 1}},
    "cpu of nonsense": {"resourceLimits": {"cpu": "lots"}},
    "cpu negative": {"resourceLimits": {"cpu": "-1"}},
    "memory of nonsense": {"resourceLimits": {"memory": "2Potatoes"}},
    "memory zero": {"resourceLimits": {"memory": "0"}},
    "metadata key with blanks": {"metadata": {"a b": "c"}},
    "metadata key reserved": {"metadata": {"opensandbox.io/id": "x"}},
    "metadata key too long": {"metadata": {"k" * 64: "v"}},
    "metadata value too long": {"metadata": {"k": "v" * 64}},
    "metadata value with blanks": {"metadata": {"k": "a b"}},
    "metadata value a number": {"metadata": {"k": 1}},
    "metadata a list": {"metadata": ["k"]},
    "env value a number": {"env": {"A": 1}},
    "env a list": {"env": ["A=1"]},
    "platform unknown": {"platform": {"os": "plan9", "arch": "amd64"}},
}


@pytest.mark.parametrize("change", WRONG.values(), ids=WRONG.keys())
def test_a_create_that_cannot_be_done(server: Server, change: dict[str, Any]):
    body = {key: value for key, value in (GOOD | change).items() if value is not None}
    clear(server.call("POST", "/v1/sandboxes", body), {400, 404, 422})


NOT_JSON = {
    "nothing": b"",
    "a word": b"hello",
    "cut off": json.dumps(GOOD).encode()[:-5],
    "a list": b"[]",
    "null": b"null",
    "not text": b"\xff\xfe\x00",
    "deep": b"[" * 100_000,
    "twice the same": b'{"image":{"uri":"host"},"image":{"uri":"host"}',
}


@pytest.mark.parametrize("body", NOT_JSON.values(), ids=NOT_JSON.keys())
def test_a_body_that_is_no_request(server: Server, body: bytes):
    clear(server.call("POST", "/v1/sandboxes", body), {400, 422})


def test_metadata_errors_have_their_own_code(server: Server):
    answer = server.call("POST", "/v1/sandboxes", GOOD | {"metadata": {"a b": "c"}})
    assert clear(answer, {400})["code"] == "SANDBOX::INVALID_METADATA_LABEL"


def test_a_body_over_the_limit(server: Server):
    body = json.dumps(GOOD | {"env": {"A": "x" * (64 * 1024 * 1024)}}).encode()
    try:
        answer = server.call("POST", "/v1/sandboxes", body)
    except (BrokenPipeError, ConnectionResetError):
        # The server answered and stopped reading before all of it was sent; ask whether it lives.
        assert server.call("GET", "/health", key=None).status == 200
        return
    assert clear(answer, {413, 400})["code"] == "GENERAL::BODY_TOO_LARGE"


@pytest.mark.parametrize("prefix", ["", "/v1"])
@pytest.mark.parametrize(
    ("key", "code"),
    [(None, "MISSING_API_KEY"), ("wrong", "INVALID_API_KEY"), ("", "MISSING_API_KEY")],
)
def test_no_key_no_answer(server: Server, prefix: str, key: str | None, code: str):
    calls = [
        ("POST", "/sandboxes", GOOD),
        ("GET", "/sandboxes", None),
        ("GET", f"/sandboxes/{uuid.uuid4()}", None),
        ("DELETE", f"/sandboxes/{uuid.uuid4()}", None),
    ]
    for method, path, body in calls:
        answer = server.call(method, prefix + path, body, key=key)
        found = clear(answer, {401})["code"]
        assert found == code or (key == "" and found == "INVALID_API_KEY"), (method, path)


STRANGERS = [str(uuid.uuid4()), "nobody", "..%2f..%2fetc", "%00", "x" * 3000, "ü"]


@pytest.mark.parametrize("stranger", STRANGERS, ids=["uuid", "word", "climb", "nul", "long", "ü"])
def test_a_sandbox_that_nobody_knows(server: Server, stranger: str):
    from urllib.parse import quote

    name = stranger if "%" in stranger else quote(stranger)
    base = f"/v1/sandboxes/{name}"
    calls: list[tuple[str, str, Any]] = [
        ("GET", base, None),
        ("DELETE", base, None),
        ("PATCH", f"{base}/metadata", {"a": "b"}),
        ("POST", f"{base}/renew-expiration", {"expiresAt": "2999-01-01T00:00:00Z"}),
        ("GET", f"{base}/endpoints/44772", None),
        ("GET", f"{base}/proxy/44772/ping", None),
    ]
    for method, path, body in calls:
        clear(server.call(method, path, body), {404, 400})


def test_no_such_path_and_no_such_method(server: Server):
    clear(server.call("GET", "/v1/no/such/path"), {404})
    clear(server.call("PUT", "/v1/sandboxes"), {405})


@pytest.mark.parametrize(
    "query",
    ["page=0", "page=-1", "page=x", "pageSize=0", "pageSize=201", "pageSize=x", "metadata=novalue"],
)
def test_a_list_query_that_makes_no_sense(server: Server, query: str):
    clear(server.call("GET", f"/v1/sandboxes?{query}"), {400, 422})


@pytest.mark.parametrize(
    "expiry", ["2001-01-01T00:00:00Z", "tomorrow", None, [], "99999999-01-01T00:00:00Z"]
)
def test_a_renewal_that_makes_no_sense(server: Server, create, expiry: Any):
    sandbox = create()
    before = sandbox.get_info().expires_at
    path = f"/v1/sandboxes/{sandbox.id}/renew-expiration"
    clear(server.call("POST", path, {"expiresAt": expiry}), {400, 422})
    assert sandbox.get_info().expires_at == before
    sandbox.kill()


@pytest.mark.parametrize("port", ["0", "65536", "-1", "http", "99999999999999999999"])
def test_a_port_that_is_none(server: Server, create, port: str):
    sandbox = create()
    answer = server.call("GET", f"/v1/sandboxes/{sandbox.id}/endpoints/{port}")
    clear(answer, {400, 404, 422})
    sandbox.kill()


def test_a_port_on_which_nobody_listens(server: Server, create):
    sandbox = create()
    answer = server.call("GET", f"/v1/sandboxes/{sandbox.id}/proxy/5555/")
    assert clear(answer, {502})["code"] == "BACKEND_CONNECTION_FAILED"
    sandbox.kill()


def test_the_client_sees_code_and_message(server: Server, connection: ConnectionConfigSync):
    cases: list[tuple[dict[str, Any], int, str]] = [
        ({"metadata": {"a b": "c"}}, 400, "SANDBOX::INVALID_METADATA_LABEL"),
        ({"resource": {"cpu": "lots"}}, 400, "SANDBOX::INVALID_PARAMETER"),
        ({"timeout": timedelta(seconds=59)}, 400, "SANDBOX::INVALID_PARAMETER"),
        ({"timeout": timedelta(days=900_000)}, 400, "SANDBOX::INVALID_PARAMETER"),
    ]
    for options, status, code in cases:
        with pytest.raises(SandboxApiException) as raised:
            SandboxSync.create("host", connection_config=connection, **options)
        assert raised.value.status_code == status
        assert raised.value.error.code == code
        assert raised.value.error.message


def test_the_client_sees_that_an_image_is_unknown(connection: ConnectionConfigSync):
    with pytest.raises(SandboxApiException) as raised:
        SandboxSync.create(NOWHERE, connection_config=connection)
    assert raised.value.error.code == "SANDBOX::IMAGE_NOT_FOUND"
    assert NOWHERE in raised.value.error.message


def test_the_client_sees_that_its_key_is_wrong(server: Server):
    config = ConnectionConfigSync(domain=server.domain, api_key="wrong")
    with pytest.raises(SandboxApiException) as raised:
        SandboxSync.create("host", connection_config=config)
    assert raised.value.status_code == 401
    assert raised.value.error.code == "INVALID_API_KEY"


def test_a_sandbox_is_not_opened_by_its_id_alone(server: Server, create):
    sandbox = create()
    for path in ("ping", "files/download?path=/etc/passwd"):
        for headers in ({}, {"X-EXECD-ACCESS-TOKEN": "guess"}):
            base = f"/v1/sandboxes/{sandbox.id}/proxy/44772"
            answer = server.call("GET", f"{base}/{path}", key=None, headers=headers)
            clear(answer, {401, 403})
    sandbox.kill()
