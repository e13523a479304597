"""What is denied is told to whom the operator names."""

from __future__ import annotations

import http.server
import json
import pathlib
import queue
import threading
from datetime import timedelta

from internet import Internet, inside
from opensandbox import SandboxSync
from opensandbox.config import ConnectionConfigSync
from opensandbox.models.sandboxes import NetworkPolicy, NetworkRule
from served import serving


def test_denials_are_posted_to_the_operators_webhook(
    world: Internet, tmp_path: pathlib.Path
) -> None:
    told: queue.Queue[dict[str, object]] = queue.Queue()

    class Receiver(http.server.BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            told.put(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
            self.send_response(204)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    assert world.config is not None
    with inside(world.home):
        receiver = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Receiver)
        threading.Thread(target=receiver.serve_forever, daemon=True).start()
        hook = f'deny-webhook = "http://127.0.0.1:{receiver.server_port}/hook"\n'
        config = tmp_path / "server.toml"
        config.write_text(world.config.read_text().replace("[egress]\n", f"[egress]\n{hook}"))
        with serving("--config", str(config)) as server:
            with SandboxSync.create(
                "host",
                timeout=timedelta(minutes=10),
                network_policy=NetworkPolicy(
                    egress=[NetworkRule(action="allow", target="a.example.com")]
                ),
                connection_config=ConnectionConfigSync(
                    domain=server.domain, api_key=server.api_key
                ),
            ) as sandbox:
                sandbox.commands.run(
                    "curl -s -m 5 http://a.example.com/; curl -s -m 5 http://other.org/"
                )
                message = told.get(timeout=20)
                assert message["hostname"] == "other.org", message
                assert message["source"] == "opensandbox-egress"
                assert message["sandboxId"] == sandbox.id
                assert message["protocol"] == "dns" and message["reason"] == "default"
                sandbox.kill()
            metrics = server.call("GET", "/metrics").body.decode()
        receiver.shutdown()
        receiver.server_close()
    counted = 'opensandbox_egress_deny_webhook_total{outcome="delivered"}'
    assert any(line.startswith(counted) and not line.endswith(" 0") for line in metrics.splitlines())
