"""A worker that does not know what lies in a queue is not in the way of those that do, nor of what it knows."""

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.lossless.harness import ENDS_APP, QUICK, Broker, entry, wait_until, worker

COUNT = 60
TAKES = 0.05


@pytest.mark.slow
@pytest.mark.parametrize("shared", [False, True], ids=["rolling deploy", "beside a plain application"])
def test_an_idle_worker_that_knows_no_task_of_a_queue_leaves_it_to_one_that_does(
    broker: Broker, tmp_path: Path, start_worker: Callable[..., Any], send: Any, shared: bool
):
    ignorant: dict[str, Any] = {"unknown_for": 600, "broker_transport_options": QUICK}
    if shared:
        ignorant["burial_wants"] = "tests.lossless.ends_app:wants"
    start_worker(transport="kombu" if shared else "lossless")
    with worker(broker.url, tmp_path, app=ENDS_APP, **ignorant):
        began = time.monotonic()
        for number in range(COUNT):
            send("nap", TAKES, number)
        wait_until(lambda: len(broker.noted("ran")) == COUNT, 60)
        assert time.monotonic() - began < 2 * COUNT * TAKES + 5


def test_what_a_worker_knows_runs_promptly_behind_much_that_nobody_knows(broker: Broker, tmp_path: Path):
    for number in range(1_000):
        broker.push(entry("nobody.knows", f"unknown {number}"))
    broker.push(entry("done", "known"))
    with worker(broker.url, tmp_path, app=ENDS_APP, unknown_for=600):
        began = time.monotonic()
        wait_until(lambda: broker.noted("done") == ["known"], 60)
        assert time.monotonic() - began < 10
