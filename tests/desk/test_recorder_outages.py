"""Recorders beside each other, frozen ones, and a Kafka and a database that go away."""

import signal
import sys
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from sqlalchemy import text

from bridge.deadletters.db.database import Database
from tests.desk.recorders import bury, has, offsets, once_each, recorder
from tests.processes import Served, Stack, eventually, mortal_stack, pytest_runtest_makereport, stack
from tests.servers import postgres
from tests.servers.kafka import KafkaServer
from tests.servers.missing import need
from tests.servers.postgres import PostgresServer

__all__ = ["mortal_stack", "pytest_runtest_makereport", "stack"]

#: Each is some processes; what tests/desk/test_recorder.py promises is tested every time.
pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]


@pytest.fixture
def desk(stack: Stack, database_url: str) -> Stack:
    """A stack with a topic of four partitions, its dead letters' topic, and a database that is empty yet."""
    stack.environ["DEADLETTERS_DATABASE_URL"] = database_url
    stack.make_topics("orders", "orders.dlq", partitions=4)
    return stack


@pytest.fixture
def own_postgres() -> Iterator[PostgresServer]:
    """A PostgreSQL that the test may stop and freeze."""
    need(postgres.missing())
    with PostgresServer() as server:
        yield server


def test_two_recorders_share_the_partitions_and_one_takes_over_what_the_other_had(desk: Stack, database_url: str):
    first, second = recorder(desk), recorder(desk)
    number = 0

    def more(count: int) -> None:
        nonlocal number
        for partition in range(4):
            bury(desk, range(number, number + count), partition=partition)
            number += count

    def both() -> bool:
        more(5)
        return all(each.metric("bridge_deadletters_recorded_total") > 0 for each in (first, second))

    eventually(both, 40, "both record")
    first.kill()
    more(50)
    once_each(database_url, number)
    assert second.terminate() == 0


def test_a_recorder_that_was_frozen_past_its_session_writes_nothing_twice(desk: Stack, database_url: str):
    frozen = recorder(desk)
    bury(desk, range(100))
    has(database_url, 100)
    for partition in range(4):
        # While it writes these, or has read them.
        bury(desk, range(100 + 500 * partition, 600 + 500 * partition), partition=partition)
    frozen.signal(signal.SIGSTOP)
    other = recorder(desk, wait=False)
    # Where it holds a SQLite file, the other goes on only once it is woken.
    eventually(lambda: len(offsets(database_url)) == 2_100 or "has it and is stopped" in other.text, 120)
    frozen.signal(signal.SIGCONT)
    bury(desk, range(2_100, 2_200))
    once_each(database_url, 2_200)
    eventually(frozen.ready)


def test_while_the_database_is_away_nothing_is_lost_and_it_goes_on_by_itself(
    stack: Stack, own_postgres: PostgresServer
):
    url = own_postgres.url
    stack.make_topics("orders", "orders.dlq", partitions=4)
    process = recorder(stack, DEADLETTERS_DATABASE_URL=url)
    bury(stack, range(50))
    has(url, 50)
    own_postgres.process.kill()
    bury(stack, range(50, 6_000))
    process.says("nothing is recorded")
    assert not process.ready()
    assert "could not be written" in process.get("/readyz")[1]
    assert process.get("/healthz")[0] == 200
    assert process.metric("bridge_deadletters_database_errors_total") > 0
    own_postgres.start()
    once_each(url, 6_000)
    process.says("letters are recorded again")
    eventually(process.ready)


def test_a_recorder_to_which_no_letter_comes_says_too_that_the_database_is_away(
    stack: Stack, own_postgres: PostgresServer
):
    stack.make_topics("orders", "orders.dlq")
    process = recorder(stack, DEADLETTERS_DATABASE_URL=own_postgres.url)
    bury(stack, range(5))
    has(own_postgres.url, 5)
    own_postgres.process.kill()
    eventually(lambda: not process.ready(), 30, "it says so")
    assert "could not be" in process.get("/readyz")[1]
    # Where the database went as it was asked where to begin, that is said first.
    eventually(lambda: process.metric("bridge_deadletters_database_errors_total") > 0, 30, "it is counted")
    own_postgres.start()
    eventually(process.ready, 40, "it answers again")


def test_a_database_that_hangs_is_said_and_nothing_is_lost(stack: Stack, own_postgres: PostgresServer):
    url = own_postgres.url
    stack.make_topics("orders", "orders.dlq")
    process = recorder(stack, DEADLETTERS_DATABASE_URL=url)
    bury(stack, range(50))
    has(url, 50)
    own_postgres.freeze()
    try:
        bury(stack, range(50, 100))
        process.says("nothing is recorded", 40)
        assert not process.ready()
        why = process.get("/readyz")[1]
        # What hangs, and then that it was given up.
        assert "DEADLETTERS_DATABASE_URL" in why
        assert "has not answered" in why or "timeout expired" in why
        assert process.get("/healthz")[0] == 200
        once = recorder(stack, "--once", wait=False, DEADLETTERS_DATABASE_URL=url)
        assert once.ends(90) == 75
        # Longer by now than what was read is shown.
        assert "bridge_deadletters_recorder_ready 0" in process.get("/metrics")[1]
    finally:
        own_postgres.thaw()
    once_each(url, 100)
    process.says("letters are recorded again")
    eventually(process.ready)


def test_who_loses_all_partitions_while_the_database_is_away_goes_on_too_when_it_is_back(
    stack: Stack, own_postgres: PostgresServer
):
    url = own_postgres.url
    stack.make_topics("orders", "orders.dlq", partitions=2)
    first = recorder(stack, DEADLETTERS_DATABASE_URL=url)
    bury(stack, range(50))
    has(url, 50)
    own_postgres.kill()
    bury(stack, range(50, 100))
    first.says("nothing is recorded")
    first.signal(signal.SIGSTOP)
    second = recorder(stack, wait=False, DEADLETTERS_DATABASE_URL=url)
    second.says("assigned: ")
    first.signal(signal.SIGCONT)
    first.says("the consumer group continued without this recorder")
    own_postgres.start()
    once_each(url, 100)
    eventually(lambda: first.ready() and second.ready(), 60)
    bury(stack, range(100, 200))
    once_each(url, 200)


def test_a_recorder_may_start_before_its_database_and_says_so(stack: Stack, own_postgres: PostgresServer):
    own_postgres.process.kill()
    stack.make_topics("orders", "orders.dlq")
    bury(stack, range(5))
    process = recorder(stack, wait=False, DEADLETTERS_DATABASE_URL=own_postgres.url)
    process.says("where to begin is not known")
    assert not process.ready()
    own_postgres.start()
    once_each(own_postgres.url, 5)


def test_told_to_stop_while_the_database_hangs_it_ends_within_seconds(stack: Stack, own_postgres: PostgresServer):
    stack.make_topics("orders", "orders.dlq")
    process = recorder(stack, DEADLETTERS_DATABASE_URL=own_postgres.url)
    with closing(Database(own_postgres.url)) as database, database.writing() as connection:
        connection.execute(text("LOCK TABLE positions IN ACCESS EXCLUSIVE MODE"))
        bury(stack, range(5))
        time.sleep(1)
        begun = time.monotonic()
        assert process.terminate(20) == 0
        assert time.monotonic() - begun < 12
    recorder(stack, DEADLETTERS_DATABASE_URL=own_postgres.url)
    once_each(own_postgres.url, 5)


def test_a_recorder_whose_database_stands_still_for_longer_than_it_may_not_poll_keeps_its_partitions(
    stack: Stack, own_postgres: PostgresServer
):
    url = own_postgres.url
    stack.make_topics("orders", "orders.dlq", partitions=2)
    first = recorder(stack, DEADLETTERS_DATABASE_URL=url, KAFKA_MAX_POLL_INTERVAL_MS="6000")
    bury(stack, range(50), partition=0)
    has(url, 50)
    assigned = first.count("assigned: ")
    with closing(Database(url)) as database, database.writing() as connection:
        connection.execute(text("LOCK TABLE positions IN ACCESS EXCLUSIVE MODE"))
        # More than one batch, so that it has read what it cannot write.
        bury(stack, range(50, 3_000), partition=0)
        begun = time.monotonic()
        while time.monotonic() - begun < 13:
            assert first.get("/healthz")[0] == 200
            # Longer than who holds a lock in silence is let.
            connection.execute(text("SELECT 1"))
            time.sleep(0.5)
    once_each(url, 3_000)
    assert "maximum poll interval" not in first.text
    assert "the consumer group continued without this recorder" not in first.text
    assert first.count("assigned: ") == assigned
    assert first.metric("bridge_deadletters_recorded_total", what="new") == 3_000


def test_with_once_a_database_that_is_away_ends_it_with_a_code_to_try_again(stack: Stack, tmp_path: Path):
    stack.make_topics("orders", "orders.dlq")
    bury(stack, range(5))
    process = recorder(stack, "--once", wait=False, DEADLETTERS_DATABASE_URL=f"sqlite:///{tmp_path}/missing/x.db")
    assert process.ends(60) == 75
    assert "its folder must exist" in process.text


def test_while_kafka_is_away_the_recorder_waits_for_it(
    mortal_stack: Stack, mortal_kafka: KafkaServer, database_url: str
):
    mortal_stack.environ["DEADLETTERS_DATABASE_URL"] = database_url
    mortal_stack.make_topics("orders", "orders.dlq")
    process = recorder(mortal_stack)
    bury(mortal_stack, range(5))
    has(database_url, 5)
    mortal_kafka.stop()
    process.says("nothing is read")
    assert not process.ready()
    mortal_kafka.start()
    bury(mortal_stack, range(5, 10))
    once_each(database_url, 10)
    eventually(process.ready, 40)


def recording_bridge(desk: Stack) -> Served:
    """`bridge run --record`."""
    command = (sys.executable, "-m", "bridge", "run", "--record")
    bridge: Served = desk.start("bridge", *command, kind=Served, BRIDGE_HTTP_PORT="0")
    bridge.port = int(bridge.says("/healthz").partition("http://localhost:")[2].partition("/")[0])
    return bridge


def test_a_recorder_runs_beside_a_bridge_and_its_end_is_said_and_ends_nothing(desk: Stack, database_url: str):
    bury(desk, range(5))
    bridge = recording_bridge(desk)
    has(database_url, 5)
    eventually(lambda: bridge.metric("bridge_deadletters_recorded_total") == 5)
    eventually(lambda: bridge.ready() and "recorder" not in bridge.get("/readyz")[1])
    assert bridge.terminate() == 0


def test_while_the_database_of_the_recorder_beside_a_bridge_is_away_its_hand_off_goes_on(
    stack: Stack, own_postgres: PostgresServer
):
    stack.environ["DEADLETTERS_DATABASE_URL"] = own_postgres.url
    stack.make_topics("orders", "orders.dlq")
    stack.worker(wait=False)
    bridge = recording_bridge(stack)
    stack.produce("orders", {"dead": True})
    has(own_postgres.url, 1)
    own_postgres.kill()
    stack.produce("orders", {"dead": True})
    bridge.says("nothing is recorded")
    taken = []
    for number in range(20):
        begun = time.monotonic()
        (place,) = stack.produce("orders", {"n": number})
        eventually(lambda: place in stack.done("work"), 30)  # noqa: B023
        taken.append(time.monotonic() - begun)
    # Each attempt to reach the database takes longer.
    assert sorted(taken)[10] < 1, taken
    assert bridge.get("/readyz")[0] == 200
    assert "the recorder" in bridge.get("/readyz")[1]
    own_postgres.start()
    has(own_postgres.url, 2, 60)
    eventually(lambda: "the recorder" not in bridge.get("/readyz")[1], 60)


def test_a_database_of_another_kafka_ends_the_recorder_beside_a_bridge_and_not_the_bridge(
    desk: Stack, database_url: str
):
    database = Database(database_url)
    database.migrate()
    with database.writing() as connection:
        connection.execute(text("INSERT INTO facts (name, value) VALUES ('cluster', 'elsewhere')"))
    database.close()
    bridge = recording_bridge(desk)
    eventually(lambda: "the recorder: it has ended" in bridge.get("/readyz")[1])
    eventually(bridge.ready)
