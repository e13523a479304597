"""Runs cells in a kernel and prints what came of each as JSON. Runs inside the environment, which has
jupyter_client: `python3 -c "$(cat cells.py)" LANGUAGE '["1 + 1"]'`.

A cell is code, or `[code, text]`, which is interrupted once it has printed the text.
"""

import json
import queue
import sys
import time

from jupyter_client import KernelManager

STARTS_WITHIN = 30
#: How often a kernel is started that does not answer.
TRIES = 4
ENDS_WITHIN = 60
#: After so many seconds an interrupt counts as lost: a kernel that is about to wait may not hear it.
HEARD_WITHIN = 5


def run(manager, client, cell):
    code, interrupted_at = (cell, None) if isinstance(cell, str) else cell
    began = time.monotonic()
    asked = client.execute(code, allow_stdin=False)
    seen = {"stdout": "", "stderr": "", "results": [], "error": None}
    interrupted = False
    while True:
        try:
            message = client.get_iopub_msg(timeout=HEARD_WITHIN if interrupted else ENDS_WITHIN)
        except queue.Empty:
            if not interrupted or time.monotonic() - began > ENDS_WITHIN:
                raise
            manager.interrupt_kernel()
            continue
        if message["parent_header"].get("msg_id") != asked:
            continue
        kind, content = message["msg_type"], message["content"]
        if kind == "stream":
            seen[content["name"]] += content["text"]
            if interrupted_at is not None and interrupted_at in seen["stdout"]:
                interrupted_at, interrupted = None, True
                manager.interrupt_kernel()
        elif kind in ("execute_result", "display_data"):
            seen["results"].append(content["data"])
        elif kind == "error":
            seen["error"] = [content["ename"], content["evalue"]]
        elif kind == "status" and content["execution_state"] == "idle":
            break
    while True:
        reply = client.get_shell_msg(timeout=ENDS_WITHIN)
        if reply["parent_header"].get("msg_id") == asked:
            break
    seen["status"] = reply["content"]["status"]
    seen["seconds"] = round(time.monotonic() - began, 3)
    return seen


def main(language, cells):
    manager = KernelManager(kernel_name=language)
    for left in reversed(range(TRIES)):
        began = time.monotonic()
        manager.start_kernel()
        client = manager.client()
        client.start_channels()
        try:
            client.wait_for_ready(timeout=STARTS_WITHIN)
            break
        except RuntimeError:
            # The one for Java is asked before it can answer, now and then, and then never does.
            client.stop_channels()
            manager.shutdown_kernel(now=True)
            if left == 0:
                raise
    try:
        ready = round(time.monotonic() - began, 3)
        ran = []
        for cell in cells:
            try:
                ended = run(manager, client, cell)
                # A kernel may drop what comes soon after an error, as if it had been queued before.
                while ended["status"].startswith("abort") and not ended["stdout"]:
                    ended = run(manager, client, cell)
                ran.append(ended)
            except queue.Empty:
                sys.exit(f"{language}: nothing came of {cell!r} within {ENDS_WITHIN} s")
        print(json.dumps({"ready": ready, "cells": ran}))
    finally:
        client.stop_channels()
        manager.shutdown_kernel(now=True)


main(sys.argv[1], json.loads(sys.argv[2]))
