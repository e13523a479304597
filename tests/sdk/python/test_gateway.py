"""Ports under signed addresses, and sandboxes that are used or not, with the published client."""

import http.client
import time
from datetime import timedelta

import pytest
from opensandbox.exceptions import SandboxApiException

# Signed endpoints are asked for without `use_server_proxy`; for the rest one way is enough.
pytestmark = pytest.mark.parametrize("use_server_proxy", [False])

IDLE = "opensandbox.extensions.idle.timeout.seconds"

SERVE = "cd /srv 2>/dev/null || cd /tmp; echo hello > index.html; exec python3 -m http.server 8000"


def ask(url: str, headers: dict[str, str] | None = None) -> tuple[int, bytes]:
    host, _, path = url.partition("/")
    connection = http.client.HTTPConnection(host, timeout=30)
    connection.request("GET", f"/{path}", headers=headers or {})
    answer = connection.getresponse()
    return answer.status, answer.read()


@pytest.fixture
def serving(create):
    sandbox = create(secure_access=True, entrypoint=["sh", "-c", SERVE])
    deadline = time.monotonic() + 20
    endpoint = sandbox.get_endpoint(8000)
    while ask(f"{endpoint.endpoint}/", endpoint.headers)[0] == 502:
        assert time.monotonic() < deadline, "nothing listens"
        time.sleep(0.05)
    return sandbox


def test_a_signed_endpoint_needs_no_header_until_it_expires(serving):
    signed = serving.get_signed_endpoint(8000, int(time.time()) + 2)
    assert not signed.headers
    assert ask(f"{signed.endpoint}/index.html") == (200, b"hello\n")
    plain = serving.get_endpoint(8000).endpoint
    assert ask(f"{plain}/index.html")[0] == 401
    assert ask(signed.endpoint.replace("/8000-", "/8001-") + "/")[0] == 401
    deadline = time.monotonic() + 20
    while (answer := ask(f"{signed.endpoint}/"))[0] == 200:
        assert time.monotonic() < deadline, "it never expires"
        time.sleep(0.2)
    assert answer[0] == 401 and b"ENDPOINT::SIGNATURE_EXPIRED" in answer[1]


def test_a_moment_that_has_passed_is_refused(serving):
    with pytest.raises(SandboxApiException) as refused:
        serving.get_signed_endpoint(8000, int(time.time()) - 1)
    assert refused.value.status_code == 400


def test_a_port_on_which_nobody_listens_is_refused_at_once(serving):
    signed = serving.get_signed_endpoint(9, int(time.time()) + 60)
    status, body = ask(f"{signed.endpoint}/")
    assert status == 502 and b"BACKEND_CONNECTION_FAILED" in body


def test_use_puts_the_expiry_off(create):
    sandbox = create(
        timeout=timedelta(minutes=5), extensions={"access.renew.extend.seconds": "3600"}
    )
    before = sandbox.get_info()
    sandbox.commands.run("true")
    deadline = time.monotonic() + 20
    while sandbox.get_info().expires_at < before.created_at + timedelta(minutes=55):
        assert time.monotonic() < deadline, "the expiry is where it was"
        time.sleep(0.05)


def test_a_sandbox_that_is_idle_sleeps_and_wakes_with_what_it_had(create):
    sandbox = create(extensions={IDLE: "60"}, timeout=timedelta(minutes=30))
    assert sandbox.get_info().extensions == {IDLE: "60"}
    session = sandbox.commands.create_session()
    sandbox.commands.run_in_session(session, "word=kept")
    deadline = time.monotonic() + 150
    while (status := sandbox.get_info().status).state != "Paused":
        assert time.monotonic() < deadline, f"it never sleeps: {status}"
        time.sleep(0.5)
    assert status.reason == "IDLE"
    said = sandbox.commands.run_in_session(session, "echo $word")
    assert said.logs.stdout[0].text.strip() == "kept"
    assert sandbox.get_info().status.state == "Running"
