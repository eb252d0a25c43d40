"""What Prometheus is shown of the desk."""

from threading import Event
from typing import Any

import pytest
from sqlalchemy import insert, update

from bridge.deadletters.db import kind_rows, sql
from bridge.deadletters.db.database import Database
from bridge.deadletters.db.table_definitions import items, plans
from bridge.deadletters.model.stored_letter import LetterStatus
from bridge.deadletters.recorder.dead_letter_metrics import EVERY, DeadLetterMetrics
from tests.desk import rows
from tests.processes import eventually
from tests.unit.test_operator_pages import DESK
from tests.unit.test_reference_docs import labels_on_page


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def shown(metrics: DeadLetterMetrics) -> dict[tuple[str, ...], float]:
    samples = (sample for family in metrics.collect() for sample in family.samples)
    return {
        (sample.name.removeprefix("bridge_deadletters_"), *sample.labels.values()): sample.value for sample in samples
    }


def plan(connection: Any, state: str, ended_at: int | None = None) -> int:
    texts = {"by": "ann", "why": "", "asked": "{}", "options": "{}", "counts": "{}"}
    row = {"what": "replay", "state": state, "at": 1, "ended_at": ended_at, **texts}
    return int(connection.execute(insert(plans).values(row).returning(plans.c.id)).scalar_one())


def item(connection: Any, plan_id: int, position: int, state: str, ended_at: int | None = None) -> None:
    row = {"plan_id": plan_id, "position": position, "state": state, "ended_at": ended_at}
    connection.execute(insert(items).values(row))


@pytest.fixture
def seconds() -> Clock:
    return Clock()


def test_open_letters_are_shown_by_handler_and_reason_with_the_age_of_the_oldest(database, seconds):
    with database.writing() as connection:
        now = sql.read_clock(connection)
        one, other = rows.kind(connection), rows.kind(connection, reason="poison")
        rows.letter(connection, one, 1, failed_at=now - 60_000)
        rows.letter(connection, one, 2, failed_at=now)
        rows.letter(connection, other, 3, LetterStatus.RESOLVED, failed_at=now - 90_000)
    found = shown(DeadLetterMetrics(database, seconds))
    assert found["open", "orders.handlers.charge", "exhausted"] == 2
    assert found["open", "orders.handlers.charge", "poison"] == 0
    assert 60 <= found["oldest_open_seconds",] < 80


def test_what_is_shown_is_what_the_page_on_metrics_says(database, seconds):
    families: list[Any] = [*DeadLetterMetrics(database, seconds).collect()]
    assert {family.name for family in families} < DESK
    for family in families:
        name = f"{family.name}_total" if family.type == "counter" else family.name
        assert labels_on_page(name) == tuple(family._labelnames)


def test_plans_that_await_a_second_person_are_counted(database, seconds):
    with database.writing() as connection:
        for state in ("awaiting", "awaiting", "planned"):
            plan(connection, state)
    assert shown(DeadLetterMetrics(database, seconds))["plans_awaiting",] == 2


def test_groups_that_grow_are_counted_by_handler(database, seconds):
    with database.writing() as connection:
        now = sql.read_clock(connection)
        kind = rows.kind(connection)
        rows.letter(connection, kind, 1, failed_at=now)
        kind_rows.add_failure_hours(connection, {(kind, now // kind_rows.HOUR_MS): 10})
    assert shown(DeadLetterMetrics(database, seconds))["growing_groups", "orders.handlers.charge"] == 1


def test_replays_are_counted_by_how_they_ended_from_when_the_process_began(database, seconds):
    metrics = DeadLetterMetrics(database, seconds)
    with database.writing() as connection:
        now = sql.read_clock(connection)
        before = plan(connection, "applying")
        item(connection, before, 1, "done", now - 1_000)
    assert shown(metrics)["replays_total", "done"] == 0
    with database.writing() as connection:
        now = sql.read_clock(connection)
        item(connection, before, 2, "dead", now)
        item(connection, before, 3, "sent")
        short = plan(connection, "done", now)
        item(connection, short, 1, "done", now)
    seconds.now += EVERY
    found = shown(metrics)
    assert (found["replays_total", "done"], found["replays_total", "dead"]) == (1, 1)
    with database.writing() as connection:
        connection.execute(update(plans).values(state="done", ended_at=1))
        connection.execute(update(items).where(items.c.state == "sent").values(state="done", ended_at=now))
    seconds.now += EVERY
    assert shown(metrics)["replays_total", "done"] == 2
    seconds.now += EVERY
    assert shown(metrics)["replays_total", "done"] == 2


def test_several_who_scrape_read_once(database, seconds, monkeypatch):
    metrics = DeadLetterMetrics(database, seconds)
    first = shown(metrics)
    with database.writing() as connection:
        rows.letter(connection, rows.kind(connection), 1)
    assert shown(metrics) == first
    seconds.now += EVERY
    assert shown(metrics) != first


def test_a_database_that_is_away_shows_nothing_and_fails_no_scrape(seconds):
    metrics = DeadLetterMetrics(Database("postgresql://nobody@127.0.0.1:1/none"), seconds)
    assert shown(metrics) == {}


def test_who_scrapes_does_not_wait_for_a_database_that_hangs_and_is_shown_all_when_it_answers(
    database: Database, monkeypatch: pytest.MonkeyPatch
):
    metrics, answers = DeadLetterMetrics(database), Event()
    read = metrics._read
    monkeypatch.setattr("bridge.deadletters.recorder.dead_letter_metrics.WITHIN", 0.1)
    monkeypatch.setattr(metrics, "_read", lambda: read() if answers.wait(30) else [])
    for _ in range(3):
        assert shown(metrics) == {}
    answers.set()
    eventually(lambda: ("oldest_open_seconds",) in shown(metrics), 20)
