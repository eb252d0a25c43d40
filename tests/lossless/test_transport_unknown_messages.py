"""A worker that does not know what lies in a queue is not in the way of those that do, nor of what it knows."""

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from celery import Celery
from celery.result import AsyncResult

from lossless.worker.consumer import find_settings_fault
from lossless.worker.message_burial import UNKNOWN_SINCE
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


def commands(broker: Broker) -> int:
    """How many commands Redis has run, those of scripts included."""
    return sum(stats["calls"] for stats in broker.client.info("commandstats").values())


@pytest.mark.slow
def test_plain_tasks_that_nobody_has_known_for_long_cost_nothing_and_delay_nothing(
    broker: Broker, tmp_path: Path
) -> None:
    # Another worker has seen them first, two minutes ago.
    old = {UNKNOWN_SINCE: int((time.time() - 120) * 1000)}
    costs = []
    with worker(broker.url, tmp_path, app=ENDS_APP, burial_wants="tests.lossless.ends_app:wants"):
        for count in (1, 99):
            for number in range(count):
                broker.push(entry("nobody.knows", f"unknown {count} {number}", **old))
            wait_until(lambda: broker.client.zcard("_waiting.celery") == (1 if count == 1 else 100))  # noqa: B023
            time.sleep(2)
            before = commands(broker)
            time.sleep(4)
            costs.append(commands(broker) - before)
        assert costs[1] < costs[0] + 40
        slowest = 0.0
        for number in range(10):
            broker.push(entry("nobody.knows", f"old {number}", **old))
            began = time.monotonic()
            broker.push(entry("done", f"known {number}"))
            wait_until(lambda: len(broker.noted("done")) > number, 10)  # noqa: B023
            slowest = max(slowest, time.monotonic() - began)
        assert slowest < 0.8
        assert len(broker.queued()) == 110


@pytest.mark.slow
def test_unknown_tasks_are_failures_where_the_app_says_so(broker: Broker, tmp_path: Path) -> None:
    settings = {
        "burial_wants": "tests.lossless.ends_app:wants",
        "unknown_tasks": "discard",
        "result_backend": broker.url,
    }
    broker.push(entry("nobody.knows", "unknown"))
    broker.push(entry("nobody.knows", "delivery", record={}))
    with worker(broker.url, tmp_path, app=ENDS_APP, **settings), Celery(broker=broker.url, backend=broker.url) as app:
        wait_until(lambda: not broker.left() and broker.noted("buried"))
        result: Any = AsyncResult("unknown", app=app)
        assert (result.state, type(result.result).__name__) == ("FAILURE", "NotRegistered")
        assert [burial["id"] for burial in broker.noted("buried")] == ["delivery"]


def bury(burial: Any) -> None:
    """A task that buries."""


def test_another_value_of_unknown_tasks_is_refused(broker: Broker) -> None:
    with Celery(broker=broker.url) as app:
        app.task(name="tasks.bury", Request="lossless.worker.request:Request", acks_late=True)(bury)
        assert find_settings_fault(app) is None
        app.conf.unknown_tasks = "drop"
        assert find_settings_fault(app) == "unknown_tasks is 'drop': it must be 'wait' or 'discard'"
