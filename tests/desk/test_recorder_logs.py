"""Topics that change under a recorder, letters that are not its group's, and a database that is not its own."""

from itertools import count

import pytest
from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from sqlalchemy import text

from bridge.deadletters.db.database import Database
from bridge.deadletters.db.table_definitions import kinds, positions, tallies
from tests.desk.recorders import bury, has, kept, offsets, recorded, recorder
from tests.processes import Stack, eventually, mortal_stack, pytest_runtest_makereport, stack
from tests.servers.kafka import KafkaServer

__all__ = ["mortal_stack", "pytest_runtest_makereport", "stack"]

#: Each is some processes; what tests/desk/test_recorder.py promises is tested every time.
pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]


@pytest.fixture
def desk(stack: Stack, database_url: str) -> Stack:
    """A stack with a topic, its dead letters' topic, and a database that is empty yet."""
    stack.environ["DEADLETTERS_DATABASE_URL"] = database_url
    stack.make_topics("orders", "orders.dlq")
    return stack


def cut(desk: Stack, before: int) -> None:
    """Have Kafka drop what lies before an offset, as its retention does."""
    admin = AdminClient({"bootstrap.servers": desk.kafka, "log_level": 0})
    for future in admin.delete_records([TopicPartition(desk.topic("orders.dlq"), 0, before)]).values():
        future.result(30)


def make_again(desk: Stack) -> None:
    admin = AdminClient({"bootstrap.servers": desk.kafka, "log_level": 0})
    for future in admin.delete_topics([desk.topic("orders.dlq")]).values():
        future.result(30)
    eventually(lambda: not desk.has_topic("orders.dlq"))
    desk.make_topics("orders.dlq")


def test_what_retention_took_before_the_recorder_came_is_said_and_counted(desk: Stack, database_url: str):
    bury(desk, range(10))
    cut(desk, 4)
    first = recorder(desk)
    has(database_url, 6)
    assert "4 records were dropped by Kafka (its retention has passed) before the recorder came." in first.text
    assert first.metric("bridge_deadletters_missed_total") == 4
    first.terminate()
    bury(desk, range(10, 20))
    cut(desk, 13)
    second = recorder(desk)
    has(database_url, 13)
    assert "retention has passed: 3 records up to offset 12 were dropped" in second.text
    assert kept(recorded(database_url, positions), "next", "missed") == [(20, 7)]


def test_a_topic_that_is_made_again_while_nobody_records_is_another_log(desk: Stack, database_url: str):
    bury(desk, range(5))
    recorder(desk, "--once", wait=False).ends(40)
    make_again(desk)
    bury(desk, range(100, 103))
    again = recorder(desk)
    has(database_url, 8)
    assert "the topic was recreated" in again.text
    assert kept(recorded(database_url, positions), "next") == [(3,), (5,)]


def test_a_topic_that_is_made_again_under_a_recorder_is_read_from_its_beginning(desk: Stack, database_url: str):
    bury(desk, range(5))
    recorder(desk)
    has(database_url, 5)
    make_again(desk)
    # More than the old one had: by offsets alone it would look as if it went on.
    bury(desk, range(100, 120))
    has(database_url, 25, within=60)


@pytest.mark.parametrize("new_database", ["sqlite"], indirect=True)
@pytest.mark.parametrize("runs", [True, False], ids=["under a running recorder", "while none runs"])
@pytest.mark.parametrize("after", [8, 2], ids=["past its old end", "short of its old end"])
def test_what_comes_after_a_log_has_lost_its_end_is_recorded_and_nothing_twice(
    mortal_stack: Stack, mortal_kafka: KafkaServer, database_url: str, runs: bool, after: int
):
    stack = mortal_stack
    stack.environ["DEADLETTERS_DATABASE_URL"] = database_url
    stack.make_topics("orders", "orders.dlq")
    # Long enough that Kafka is back before the group goes on without the recorder: it hears of it from the log alone.
    process = recorder(stack, KAFKA_SESSION_TIMEOUT_MS="45000")
    bury(stack, range(10))
    bury(stack, range(10, 15))
    has(database_url, 15)
    if not runs:
        assert process.terminate() == 0
    mortal_kafka.stop()
    mortal_kafka.cut(stack.topic("orders.dlq"), 10)
    mortal_kafka.start()
    # One that had written before is out of step with such a log for ever.
    stack.producer = Producer({"bootstrap.servers": stack.kafka})
    bury(stack, range(100, 100 + after))
    if not runs:
        process = recorder(stack)
    has(database_url, 15 + after, 60)
    assert "the log was truncated" in process.text
    eventually(lambda: kept(recorded(database_url, positions), "next") == [(10 + after,)])
    assert {row["occurrences"] for row in recorded(database_url)} == {1}
    assert {row["status"]: row["count"] for row in recorded(database_url, tallies)} == {"open": 15 + after}


def test_a_dead_letter_topic_that_is_made_later_is_recorded(stack: Stack, database_url: str):
    stack.environ["DEADLETTERS_DATABASE_URL"] = database_url
    stack.make_topics("orders")
    process = recorder(stack, wait=False, KAFKA_TOPIC_METADATA_REFRESH_INTERVAL_MS="1000")
    eventually(lambda: "none of its topics exists yet" in process.get("/readyz")[1])
    stack.make_topics("orders.dlq")
    bury(stack, range(3))
    has(database_url, 3)


def test_letters_of_other_groups_are_left_to_them_and_recorded_where_everybody_s_are_asked_for(
    desk: Stack, database_url: str
):
    bury(desk, range(5))
    bury(desk, range(10, 15), group="another")
    desk.produce("orders.dlq", b"nobody's")
    first = recorder(desk)
    has(database_url, 6)
    first.says("holds letters of another group too ('another')")
    eventually(lambda: first.metric("bridge_deadletters_recorded_total", what="another group's") == 5)
    first.terminate()
    recorder(desk, "--topics", desk.topic("orders.dlq"))
    has(database_url, 11)
    assert {row["occurrences"] for row in recorded(database_url)} == {1}
    assert {row["origin"] for row in recorded(database_url, kinds)} == {"bridge", "unknown"}


def test_a_dead_letter_topic_of_no_handler_is_recorded_with_topics(desk: Stack, database_url: str):
    desk.make_topics("payments.DLT")
    desk.produce("payments.DLT", b"1", b"2")
    bury(desk, [7])
    process = recorder(desk, "--once", "--topics", desk.topic("payments.DLT"), wait=False)
    assert process.ends(40) == 0
    assert offsets(database_url) == [0, 1, 7]
    assert "recorded all records of 2 partitions: 3 records: 3 new; 2 of them by others (unknown 2)." in process.text


def test_a_database_of_another_kafka_is_refused_with_what_to_do(desk: Stack, database_url: str):
    database = Database(database_url)
    database.migrate()
    with database.writing() as connection:
        connection.execute(text("INSERT INTO facts (name, value) VALUES ('cluster', 'elsewhere')"))
    database.close()
    process = recorder(desk, wait=False)
    assert process.ends(40) == 1
    assert "holds those of the Kafka cluster 'elsewhere'" in process.text
    assert "DEADLETTERS_DATABASE_URL" in process.text


def test_what_is_no_topic_s_name_is_refused(desk: Stack):
    process = recorder(desk, "--topics", "^payments.*", wait=False)
    assert process.ends(40) == 1
    assert "--topics: '^payments.*' is no name of a topic" in process.text


def test_records_that_nobody_can_read_stop_none_behind_them(desk: Stack, database_url: str):
    ours = {"origin_topic": b"o\0", "origin_partition": b"0", "origin_offset": b"1", "handler": b"\xed\xa0\x80"}
    ours |= {"bridge_group": desk.environ["BRIDGE_GROUP"].encode(), "attempts": b"9" * 19, "error_message": b"\0\xff"}
    odd: list[list[tuple[str, bytes]]] = [
        [("origin_topic", b"orders"), ("origin_partition", b"x"), ("handler", b"\0")],
        [*ours.items()],
        [("kafka_dlt-original-topic", b"orders"), ("kafka_dlt-original-partition", b"\xff\xff\xff\xff")],
        [(f"h{n}", b"x" * 100) for n in range(1_000)],
    ]
    process = recorder(desk)
    number = count()
    for headers in odd:
        desk.produce("orders.dlq", b"\0", key=b"\0" * 10_000, headers=headers)
        bury(desk, [next(number)])
    has(database_url, 2 * len(odd))
    assert process.metric("bridge_deadletters_recorded_total", what="refused") == 0
    eventually(lambda: process.metric("bridge_deadletters_lag_records") == 0)
