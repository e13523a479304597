"""Metrics: what the sandbox may use and uses, not what the host has."""

import json
import time

from clients import Box


def test_the_numbers_are_those_of_the_sandbox(make_box):
    box: Box = make_box(resource={"cpu": "1", "memory": "256Mi"})
    for metrics in (box.metrics.get_metrics(box.id), box.whole.get_metrics()):
        assert metrics.cpu_count == 1
        assert 0 <= metrics.cpu_used_percentage <= 100
        assert metrics.memory_total_in_mib == 256
        assert 0 < metrics.memory_used_in_mib <= metrics.memory_total_in_mib
        assert abs(metrics.timestamp / 1000 - time.time()) < 60


def test_memory_that_is_used_is_counted(make_box):
    box: Box = make_box(resource={"cpu": "1", "memory": "256Mi"})
    before = box.metrics.get_metrics(box.id).memory_used_in_mib
    box.commands.run("head -c 100000000 /dev/zero > /dev/shm/much")
    assert box.metrics.get_metrics(box.id).memory_used_in_mib > before + 50


def test_the_watch_keeps_telling(box: Box):
    with box.http() as http, http.stream("GET", "/metrics/watch", timeout=30) as answer:
        assert answer.headers["content-type"].startswith("text/event-stream")
        lines = (line for line in answer.iter_lines() if line)
        samples = [json.loads(next(lines)) for _ in range(2)]
    assert samples[1]["timestamp"] > samples[0]["timestamp"]
    assert all(sample["cpu_count"] > 0 for sample in samples)


def test_the_sandbox_says_that_it_is_healthy(box: Box):
    assert box.whole.is_healthy()
