"""What waits for its time is seen where Celery's users look for it."""

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from celery import Celery

from tests.lossless.event_listeners import listening
from tests.lossless.harness import ENDS_APP, Broker, entry, sender, wait_until, worker

ETA = datetime.now(UTC).replace(microsecond=5) + timedelta(hours=2)


def listed(app: Celery) -> Any:
    """Asked until it is answered: a broadcast that comes before the worker listens is lost, as on any transport."""
    answers = wait_until(lambda: app.control.inspect(timeout=2, limit=1).scheduled(), 20, "the worker answers")
    (found,) = answers.values()
    return found


def test_inspect_scheduled_lists_what_waits_as_celery_lists_it(broker: Broker, tmp_path: Path):
    with worker(broker.url, tmp_path, app=ENDS_APP), sender(broker) as app:
        app.send_task("sleeps", (1,), task_id="last", eta=ETA + timedelta(hours=1), priority=3)
        app.send_task("sleeps", (), {"seconds": 5}, task_id="first", eta=ETA)
        found = listed(app)
        assert [(item["eta"], item["priority"]) for item in found] == [
            (ETA.isoformat(), 6),
            ((ETA + timedelta(hours=1)).isoformat(), 6),
        ]
        requests = [item["request"] for item in found]
        assert requests[0] == {
            "id": "first",
            "name": "sleeps",
            "args": [],
            "kwargs": {"seconds": 5},
            "type": "sleeps",
            "hostname": requests[0]["hostname"],
            "time_start": None,
            "acknowledged": False,
            "delivery_info": {"exchange": "", "routing_key": "celery", "priority": 0, "redelivered": False},
            "worker_pid": None,
        }
        assert (requests[1]["args"], requests[1]["delivery_info"]["priority"]) == ([1], 3)


def test_what_no_task_could_run_with_hides_nothing_else(broker: Broker, tmp_path: Path):
    with worker(broker.url, tmp_path, app=ENDS_APP), sender(broker) as app:
        odd: dict[str, Any] = entry("nobody.knows", "odd", eta=ETA.isoformat())
        broker.push(odd)
        broker.push(entry("done", "plain", eta=ETA.isoformat()))
        wait_until(lambda: broker.client.zcard("_waiting.celery") == 2, what="both wait")
        assert sorted(item["request"]["id"] for item in listed(app)) == ["odd", "plain"]


def test_a_query_by_id_finds_what_waits(broker: Broker, tmp_path: Path):
    with worker(broker.url, tmp_path, app=ENDS_APP), sender(broker) as app:
        app.send_task("sleeps", (1,), task_id="waits", eta=ETA)
        listed(app)
        answers: Any = app.control.inspect(timeout=5, limit=1).query_task("waits", "of nobody")
        (found,) = answers.values()
        assert [(name, state, info["name"]) for name, (state, info) in found.items()] == [
            ("waits", "scheduled", "sleeps")
        ]


def test_whoever_listens_to_events_is_told_of_what_waits_whenever_it_was_sent(broker: Broker, tmp_path: Path):
    """Flower lists a task from its `task-received` on, which Celery's worker sends as soon as the task is sent."""
    with worker(broker.url, tmp_path, "-E", app=ENDS_APP), sender(broker) as app:
        app.send_task("sleeps", (1,), task_id="before", eta=ETA)
        with listening(broker) as flower:
            wait_until(lambda: flower.types("before"), 20, "it is told of what was sent before")
            app.send_task("sleeps", (2,), task_id="now", eta=ETA)
            wait_until(lambda: flower.types("now"), 20, "it is told of what is sent")
            seen = {name: flower.state.tasks[name] for name in ("before", "now")}
            assert [(task.state, task.name, task.eta) for task in seen.values()] == [
                ("RECEIVED", "sleeps", ETA.isoformat())
            ] * 2
        assert flower.types("before") == flower.types("now") == ["task-received"]
