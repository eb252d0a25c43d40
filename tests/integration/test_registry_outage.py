"""A schema registry that is down: operators see it at once, and what waits for it runs by itself."""

import datetime
import json
import sys
import time
from decimal import Decimal
from pathlib import Path
from typing import Any

from tests.processes import Stack, eventually
from tests.schema_registry import ORDER_SCHEMA, frame, serve_registry, write_avro

ORDER = {"id": 7, "amount": Decimal("1.50"), "placed": datetime.datetime(2026, 11, 26, tzinfo=datetime.UTC)}


def find_problems(stack: Stack) -> list[str]:
    done = stack.start("status", sys.executable, "-m", "bridge", "status", "--json")
    assert done.ends(60) == 0, done.text
    found: list[Any] = json.loads(done.text[done.text.index("{") :])["problems"]
    return [text for text in found if "schema registry" in text]


def test_an_outage_of_the_schema_registry_is_said_within_thirty_seconds_and_spends_no_attempt(
    kafka: Any, redis_url: str, topic_prefix: str, tmp_path: Path
):
    with (
        serve_registry() as registry,
        Stack(kafka.bootstrap_servers, redis_url, topic_prefix, tmp_path, "tests.handlers.schemas") as stack,
    ):
        stack.environ["SCHEMA_REGISTRY_URL"] = registry.url
        stack.make_topics("orders")
        value = frame(registry.add(ORDER_SCHEMA), write_avro(ORDER_SCHEMA, {**ORDER, "customer": None}))
        registry.status = 503
        worker, bridge = stack.worker(), stack.bridge()
        placed, began = stack.produce("orders", *[value] * 5), time.monotonic()
        (problem,) = eventually(lambda: find_problems(stack), 30, "status says it")
        assert time.monotonic() - began < 30
        assert f"the schema registry {registry.url} is unavailable: it answered with HTTP 503. 5 deliveries" in problem
        assert "no attempt is spent" in problem
        assert worker.metric("worker_retried_total", reason="registry") >= 5
        registry.status = 0
        eventually(lambda: sorted(stack.done()) == sorted(placed), 60, "all are done by themselves")
        assert {run.attempts["failed"] for run in stack.runs()} == {0}
        for process in (bridge, worker):
            assert process.terminate() == 0
