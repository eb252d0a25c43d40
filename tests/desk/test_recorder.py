"""The recorder as users run it: a real process, on a real Kafka and both databases."""

import time
from contextlib import ExitStack
from pathlib import Path
from threading import Thread
from typing import Any

import pytest
from confluent_kafka import Producer

from bridge.deadletters.db.table_definitions import hours, positions, tallies
from bridge.deadletters.recorder.recorder import Recorder
from tests.delivery_checks import json_of
from tests.desk.recorders import bury, has, kept, offsets, recorded, recorder
from tests.desk_of_stack import desk as opened
from tests.processes import Stack, eventually, pytest_runtest_makereport, stack

__all__ = ["pytest_runtest_makereport", "stack"]


@pytest.fixture
def desk(stack: Stack, database_url: str) -> Stack:
    """A stack with a topic of two partitions, its dead letters' topic, and a database that is empty yet."""
    stack.environ["DEADLETTERS_DATABASE_URL"] = database_url
    stack.make_topics("orders", "orders.dlq", partitions=2)
    return stack


def test_what_lies_there_and_what_comes_is_recorded_and_kafka_is_told_how_far(desk: Stack, database_url: str):
    bury(desk, range(50), partition=0)
    process = recorder(desk)
    has(database_url, 50)
    bury(desk, range(50, 60), partition=1)
    has(database_url, 60)
    eventually(lambda: process.metric("bridge_deadletters_lag_records") == 0)
    assert process.metric("bridge_deadletters_recorded_total", what="new") == 60
    page = process.get("/metrics?by=partition")[1].splitlines()
    missed = [line for line in page if line.startswith("bridge_deadletters_missed_")]
    assert [line.rpartition(" ")[2] for line in missed if "_total{" in line] == ["0.0", "0.0"]
    assert process.terminate() == 0
    assert kept(recorded(database_url, positions), "partition", "next", "missed") == [(0, 50, 0), (1, 10, 0)]
    desk.environ["BRIDGE_GROUP"] += ".recorder"
    eventually(lambda: desk.committed("orders.dlq") == 60)


@pytest.mark.slow
def test_a_recorder_with_another_database_refuses_to_start_and_takes_nothing(
    desk: Stack, database_url: str, tmp_path: Path
):
    first = recorder(desk)
    second = recorder(desk, DEADLETTERS_DATABASE_URL=f"sqlite:///{tmp_path}/other.db")
    assert second.exit_code == 1
    assert "records into another database" in second.text
    bury(desk, range(20), partition=0)
    bury(desk, range(20, 40), partition=1)
    has(database_url, 40)
    # Another one of the same database shares the work.
    assert recorder(desk).terminate() == 0
    assert first.terminate() == 0


def test_letters_are_recorded_while_all_that_is_done_besides_holds_every_connection(desk: Stack, database_url: str):
    with opened(desk) as here, ExitStack() as held:
        here.database.migrate()
        pool: Any = here.database._engine.pool
        for _ in range(pool.size() + pool._max_overflow):
            held.enter_context(here.database.reading())
        process = Recorder(here, topics=[desk.topic("orders.dlq")], duties=())
        thread = Thread(target=process.run, daemon=True)
        thread.start()
        try:
            bury(desk, range(5))
            has(database_url, 5)
        finally:
            process.stop()
            thread.join(20)
    assert not thread.is_alive()


def test_the_marks_of_transactions_leave_nothing_to_be_recorded(desk: Stack, database_url: str):
    process = recorder(desk)
    writer = Producer({"bootstrap.servers": desk.kafka, "transactional.id": desk.topic("letters")})
    writer.init_transactions()
    for number, ends in enumerate((writer.commit_transaction, writer.abort_transaction, writer.commit_transaction)):
        writer.begin_transaction()
        bury(desk, range(5 * number, 5 * number + 5), producer=writer, partition=0)
        ends()
    has(database_url, 10)
    eventually(lambda: process.metric("bridge_deadletters_lag_records") == 0, 20, "no lag")
    assert [each for each in json_of(desk, "status")["problems"] if "database" in each] == []
    assert process.terminate() == 0
    # Eighteen with the marks, of which each transaction has one.
    assert kept(recorded(database_url, positions), "partition", "next", "missed") == [(0, 18, 0), (1, 0, 0)]
    assert recorder(desk, "--once", wait=False).ends(40) == 0
    assert len(offsets(database_url)) == 10


def test_with_once_it_ends_when_what_lay_there_is_recorded(desk: Stack, database_url: str):
    bury(desk, range(10))
    assert recorder(desk, "--once", wait=False).ends(40) == 0
    assert offsets(database_url) == list(range(10))
    assert recorder(desk, "--once", wait=False).ends(40) == 0
    assert offsets(database_url) == list(range(10))


#: Of a recorder, in their order; tests/handlers/recorder_killed.py.
STEPS = ("begun", "read", "position", "tallies", "seen", "letters", "committed", "told kafka")
#: The one that the others hang on; the others take their time.
ALWAYS = ("committed",)


@pytest.mark.parametrize(
    "step", [pytest.param(step, marks=[] if step in ALWAYS else pytest.mark.slow) for step in STEPS]
)
def test_killed_after_any_step_each_letter_is_there_once_with_its_occurrences(
    desk: Stack, database_url: str, step: str
):
    at = time.time_ns() // 1_000_000
    bury(desk, range(30), partition=0, at=at)
    # Written twice by a crash.
    bury(desk, range(10), partition=1, at=at)
    killed = recorder(desk, wait=False, TEST_KILL_AFTER=step, HANDLERS="tests.handlers.recorder_killed")
    number = 30
    while killed.exit_code is None:
        # One after another, so that there is more than one transaction.
        bury(desk, [number], partition=number % 2)
        number += 1
        time.sleep(0.1)
        assert number < 300, "it does not kill itself"
    assert "kills itself" in killed.text
    recorder(desk)
    found = has(database_url, number)
    eventually(lambda: sum(row["occurrences"] for row in recorded(database_url)) == number + 10)
    assert {row["occurrences"] for row in found if row["offset"] >= 10} == {1}
    assert {row["occurrences"] for row in recorded(database_url) if row["offset"] < 10} == {2}
    counts = {row["status"]: row["count"] for row in recorded(database_url, tallies)}
    assert counts == {"open": number}
    assert sum(row["count"] for row in recorded(database_url, hours)) == number
