"""Broadcast messages: each worker has a copy of its own, in its memory alone, and each copy comes to its end there."""

from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from kombu import Exchange

from tests.lossless.harness import ENDS_APP, Broker, sender, wait_until, worker

QUEUES = {
    "celery": {"exchange": "celery", "routing_key": "celery"},
    "casts": {"exchange": "casts", "exchange_type": "fanout", "routing_key": "casts"},
}
CASTS: Any = Exchange("casts", type="fanout")
#: Task, how often it runs, and why it is buried.
ENDS: dict[str, tuple[int, str | None]] = {
    "killed": (3, "poison"),
    "rejected": (1, "rejected"),
    "on_failure_raises": (1, "failed"),
    "nobody.knows": (0, "unknown_task"),
    "done": (1, None),
}


@pytest.mark.slow
def test_every_worker_sees_its_copy_of_a_broadcast_to_its_end(broker: Broker, tmp_path: Path):
    options: dict[str, Any] = {"app": ENDS_APP, "task_queues": QUEUES, "lost_pauses": (0.1, 0.2)}
    with worker(broker.url, tmp_path, **options), worker(broker.url, tmp_path, **options), sender(broker) as app:
        wait_until(
            lambda: sum(int(one["psub"]) > 0 for one in broker.client.client_list(_type="pubsub")) == 4,
            what="both listen, to these and to control",
        )
        for name in ENDS:
            app.send_task(name, task_id=name, exchange=CASTS, routing_key="casts", declare=[CASTS])
        buried = Counter({name: 2 for name, (_, reason) in ENDS.items() if reason})
        wait_until(lambda: Counter(burial["task"] for burial in broker.noted("buried")) == buried, 30, "all buried")
        wait_until(lambda: broker.noted("done") == ["done"] * 2, 30, "the others are done")
        assert {burial["task"]: burial["reason"] for burial in broker.noted("buried")} == {
            name: reason for name, (_, reason) in ENDS.items() if reason
        }
        runs = Counter(name for name, _, _ in broker.noted("runs"))
        assert runs == Counter({name: 2 * times for name, (times, _) in ENDS.items() if times})
        # No slot of either worker is lost: both take what comes now.
        for number in range(4):
            app.send_task("done", task_id=f"after-{number}", exchange=CASTS, routing_key="casts", declare=[CASTS])
        wait_until(lambda: len(broker.noted("done")) == 2 + 8, 15, "both go on")
        wait_until(lambda: not broker.left(), what="nothing is left")
