"""Long waits: the worker writes the clone to a retry topic, waits for Kafka, marks, acknowledges; in that order."""

import time
from itertools import groupby, pairwise
from typing import Any

import pytest
from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import (  # type: ignore[attr-defined]
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
)

from bridge.formats import retry_record
from bridge.formats.attempt_history import read_history
from bridge.formats.delivery import Attempts, Dead, Delivery, Message
from bridge.formats.failure import Failure
from bridge.formats.retry_record import RetryRecordPosition
from bridge.kafka.publisher import ParkRequest, Publisher
from bridge.ledger import RETRY_RECORD, Account, Fate, Mark
from bridge.settings import EnvironmentSettings, FileSettings, Settings
from tests.delivery_checks import all_settled, audit, choose, in_order, json_of, ledger
from tests.processes import Stack, eventually, headers_of

NAME = "tests.handlers.parking.charge"


def parking(stack: Stack, park_after: float = 60, **settings: Any) -> Stack:
    choose(stack, {"orders": {"commit": "completion"}}, kafka_park_after=park_after, **settings)
    stack.environ |= {"HANDLERS": "tests.handlers.parking", "TEST_DELAYS": "300,1800"}
    return stack


def waits_in(stack: Stack, delay: str, count: int, within: float = 30) -> list[Any]:
    """Wait until a retry topic of `orders` has so many records."""
    found: list[Any] = eventually(
        lambda: records if len(records := stack.records(f"orders.retry.{delay}")) >= count else None, within
    )
    assert len(found) == count
    return found


def change(stack: Stack, topic: str, name: str, value: str) -> None:
    """Set a topic's configuration."""
    entry = ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ConfigResource.Type.TOPIC, stack.topic(topic), incremental_configs=[entry])
    admin = AdminClient({"bootstrap.servers": stack.kafka})
    admin.incremental_alter_configs([resource])[resource].result(30)


def fate_of(stack: Stack, offset: int = 0) -> Fate:
    with ledger(stack, "orders") as (book, account):
        return Fate(book.fates(account._replace(handler=NAME), offset, offset)[0])


def test_a_long_wait_goes_to_a_retry_topic_that_is_made_for_it(stack: Stack):
    parking(stack)
    stack.make_topics("orders", partitions=2)
    bridge, worker = stack.bridge(), stack.worker()
    (failed,) = stack.produce(
        "orders", {"fail": 9}, key=b"k", headers=[("handler", b"theirs"), ("trace", b"1")], partition=1
    )
    (later,) = stack.produce("orders", {"later": 70}, key=b"l", partition=0)
    before = time.time()
    (record,) = waits_in(stack, "5m", 1)
    (asked,) = waits_in(stack, "2m", 1)
    assert (record.key(), record.value(), record.partition()) == (b"k", b'{"fail": 9}', 1)
    assert headers_of(record)[:2] == [("handler", b"theirs"), ("trace", b"1")]
    held = retry_record.read_retry_record(record, "c", "r")
    assert held is not None
    assert held.delivery.identity == f"{failed}:{NAME}"
    assert held.delivery.message.headers == (("handler", b"theirs"), ("trace", b"1"))
    assert (held.delivery.number, held.delivery.runs, held.delivery.attempts) == (1, 1, Attempts(failed=1))
    assert held.delivery.error == "ConnectionError: no line"
    assert held.group == stack.environ["BRIDGE_GROUP"]
    assert abs(held.due / 1000 - before - 300) < 20
    other = retry_record.read_retry_record(asked, "c", "r")
    assert other is not None
    assert (other.delivery.identity, other.delivery.attempts) == (f"{later}:{NAME}", Attempts(postponed=1))
    # Neither Redis nor a worker has anything of it.
    eventually(lambda: stack.held_ids() == [] and stack.waiting() == 0, 10)
    found = audit(stack)
    assert (found["parked"], found["unaccounted"]) == (2, 0)
    admin = AdminClient({"bootstrap.servers": stack.kafka})
    metadata = admin.list_topics(timeout=10).topics[stack.topic("orders.retry.5m")]
    assert len(metadata.partitions) == 2
    said = worker.says(f"{failed}:{NAME}: run 1, parked in {stack.topic('orders.retry.5m')} until 20")
    assert "(attempts: 1 failed): ConnectionError: no line" in said
    assert worker.metric("worker_parked_total", handler=NAME, tier="5m") == 1
    assert bridge.exit_code is None


@pytest.mark.slow
@pytest.mark.parametrize("after", ["acknowledged", "marked"])
def test_killed_after_kafka_has_it_and_before_the_next_step_it_is_there_once_and_settled_once(stack: Stack, after: str):
    parking(stack)
    stack.make_topics("orders")
    stack.bridge()
    worker = stack.worker("-c", "1", TEST_KILL_AFTER=after, HANDLERS="tests.handlers.killed")
    (coordinates,) = stack.produce("orders", {"fail": 9})
    worker.says("kills itself")
    worker.kill()
    assert fate_of(stack) == (Fate.HANDED if after == "acknowledged" else Fate.PARKED)
    worker = stack.worker("-c", "1")
    eventually(lambda: fate_of(stack) == Fate.PARKED and stack.held_ids() == [], 30)
    waits_in(stack, "5m", 1)
    runs = stack.runs(coordinates=coordinates)
    assert len(runs) == (2 if after == "acknowledged" else 1)
    assert audit(stack)["parked"] == 1


@pytest.mark.slow
def test_a_retry_topic_that_would_lose_what_waits_is_not_parked_into(stack: Stack):
    parking(stack, kafka_retry_tiers=[300, 3600])
    stack.make_topics("orders")
    stack.bridge()
    change(stack, "orders.retry.5m", "retention.ms", "60000")
    worker = stack.worker("-c", "1")
    stack.produce("orders", {"fail": 9}, {"later": 100})
    waits_in(stack, "30m", 2)
    worker.says("keeps records for 60 s (retention.ms), and they wait there for 300 s")
    assert stack.records("orders.retry.5m") == []


@pytest.mark.slow
def test_while_kafka_takes_nothing_it_waits_in_celery_and_is_parked_when_it_does(stack: Stack):
    """Here: the topic is there and takes no record of this size."""
    parking(stack)
    stack.make_topics("orders")
    stack.bridge()
    change(stack, "orders.retry.5m", "max.message.bytes", "300")
    worker = stack.worker("-c", "1")
    (coordinates,) = stack.produce("orders", {"fail": 9, "padding": "x" * 500})
    worker.says("could not be parked in a retry topic; it waits in Celery for 300 s")
    assert stack.records("orders.retry.5m") == []
    eventually(lambda: stack.held_ids() == [f"{coordinates}:{NAME}"], 10)
    assert fate_of(stack) == Fate.HANDED


@pytest.mark.slow
def test_what_kafka_has_taken_and_nobody_has_heard_of_is_written_once(stack: Stack):
    parking(stack)
    stack.make_topics("orders")
    stack.bridge()
    stack.worker("-c", "1", HANDLERS="tests.handlers.unheard")
    stack.produce("orders", {"dead": True}, {"fail": 9})
    eventually(lambda: (fate_of(stack), fate_of(stack, 1)) == (Fate.DEAD, Fate.PARKED), 30)
    waits_in(stack, "5m", 1)
    assert len(stack.dead_letters("orders")) == 1


# The whole circle: parked, due, handed off, and settled at both


def circle(stack: Stack, order: str | None = None, delays: str = "1,2", **settings: Any) -> Stack:
    choose(
        stack,
        {"orders": {"commit": "completion", **({"order": order} if order else {})}},
        kafka_park_after=1,
        **{"kafka_retry_tiers": [1, 2], **settings},
    )
    stack.environ |= {"HANDLERS": "tests.handlers.parking", "TEST_DELAYS": delays}
    return stack


def test_what_was_parked_runs_when_it_is_due_with_its_attempts_counted_and_ends_once(stack: Stack):
    circle(stack)
    stack.make_topics("orders", partitions=2)
    stack.bridge()
    worker = stack.worker()
    cured, asked, patient, dies = stack.produce("orders", {"fail": 2}, {"later": 1.5}, {"later": 4.5}, {"fail": 9})
    # What is parked is settled, too: until it comes due.
    eventually(lambda: len(stack.done()) == 3 and stack.dead_letters("orders"), 60)
    found = all_settled(stack, "orders", done=3, dead=1)
    assert found["clean"]
    assert sorted(stack.done()) == sorted([cured, asked, patient])
    begun = {
        where: [run for run in stack.runs(coordinates=where) if run.outcome == "begun"]
        for where in (cured, asked, patient, dies)
    }
    assert [run.attempt for run in begun[cured]] == [1, 2, 3]
    # Never early: 1 s and 2 s; rounded up to 2 s; and longer than the longest, without a run between.
    gaps = {where: [b.time - a.time for a, b in pairwise(runs)] for where, runs in begun.items()}
    for where, waits in ((cured, [1, 2]), (asked, [2]), (patient, [4.5]), (dies, [1, 2])):
        assert [gap >= wait for gap, wait in zip(gaps[where], waits, strict=True)] == [True] * len(waits), gaps
    assert len(stack.records("orders.retry.1s")) + len(stack.records("orders.retry.2s")) >= 2 + 1 + 2 + 2
    (letter,) = stack.dead_letters("orders")
    assert letter.origin == dies
    said = {name: letter.ours[name] for name in ("reason", "attempts", "attempts_failed", "attempts_postponed")}
    assert said == {"reason": "exhausted", "attempts": "3", "attempts_failed": "3", "attempts_postponed": "0"}
    assert letter.theirs == []
    made = read_history(letter.ours["attempt_history"])
    assert [(note.run, note.end) for note in made] == [(1, "failed"), (2, "failed"), (3, "failed")]
    assert {note.worker.partition("@")[0] for note in made} == {"celery"}
    assert all(note.took is not None and note.took < 5_000 for note in made)
    assert [note.ended_at for note in made] == sorted(note.ended_at for note in made)
    eventually(lambda: stack.held_ids() == [] and stack.waiting() == 0, 10)
    assert worker.exit_code is None


@pytest.mark.slow
@pytest.mark.parametrize("batch", ["0", "10"], ids=["one by one", "in a batch"])
def test_nothing_of_a_key_overtakes_what_is_parked_of_it(stack: Stack, batch: str):
    circle(stack, order="key")
    stack.environ["TEST_BATCH"] = batch
    stack.make_topics("orders")
    # In the queue before there is a worker: they go out together.
    values = [{"fail": 1}, {}, {"fail": 9}, {}]
    for value in values:
        stack.produce("orders", value, key=b"a")
    (free,) = stack.produce("orders", {}, key=b"b")
    stack.bridge()
    stack.worker()
    all_settled(stack, "orders", done=4, dead=1, within=90)
    in_order(stack, "charge")
    assert stack.done()[0] == free
    begun = [run.coordinates for run in stack.runs() if run.outcome == "begun" and run.key == b"a"]
    # Each runs until it has ended, and only then the next one.
    assert [where for where, _ in groupby(begun)] == list(dict.fromkeys(begun))


@pytest.mark.slow
def test_killed_between_the_steps_of_parking_it_is_done_all_the_same(stack: Stack):
    circle(stack)
    stack.make_topics("orders")
    stack.bridge()
    worker = stack.worker("-c", "1", TEST_KILL_AFTER="acknowledged", HANDLERS="tests.handlers.killed")
    (coordinates,) = stack.produce("orders", {"fail": 1})
    worker.says("kills itself")
    worker.kill()
    stack.worker("-c", "1")
    all_settled(stack, "orders", done=1)
    assert stack.done() == [coordinates]


@pytest.mark.slow
def test_what_was_parked_by_a_run_that_was_killed_and_died_in_the_next_does_not_run_again(stack: Stack):
    circle(stack, delays="8", kafka_retry_tiers=[8])
    stack.make_topics("orders")
    stack.bridge()
    worker = stack.worker("-c", "1", TEST_KILL_AFTER="acknowledged", HANDLERS="tests.handlers.killed")
    (coordinates,) = stack.produce("orders", {"fail": 1, "dead": "lost"})
    worker.says("kills itself")
    worker.kill()
    stack.worker("-c", "1")
    stack.dead("orders", 1)
    eventually(lambda: stack.committed("orders.retry.8s") == 1, 20, "the parked record is over")
    assert len(stack.runs(coordinates=coordinates)) == 2
    assert stack.done() == []
    assert len(stack.dead_letters("orders")) == 1


@pytest.mark.slow
def test_killed_after_kafka_has_the_dead_letter_and_before_the_mark_it_runs_once_more_and_what_that_says_counts(
    stack: Stack,
):
    parking(stack)
    stack.make_topics("orders")
    stack.bridge()
    worker = stack.worker("-c", "1", TEST_KILL_AFTER="letter", HANDLERS="tests.handlers.killed")
    done, dead = stack.produce("orders", {"dead": "first"}, {"dead": True})
    worker.says("kills itself")
    worker.kill()
    stack.worker("-c", "1")
    eventually(lambda: (fate_of(stack, 0), fate_of(stack, 1)) == (Fate.DONE, Fate.DEAD), 30)
    # The letter of the first stays where it is. It is one of no dead delivery: nothing counts it.
    assert sorted(letter.origin for letter in stack.dead_letters("orders")) == sorted([done, dead])
    assert len(stack.runs(coordinates=done)) == 3  # begun, begun again, done
    found = audit(stack)
    assert (found["dead"], found["done"], found["clean"]) == (1, 1, True)
    (said,) = [words for words in json_of(stack, "status")["problems"] if "dead" in words]
    assert said.startswith("1 delivery of ")


@pytest.mark.slow
def test_what_was_parked_is_found_and_whether_it_has_gone_out_since(stack: Stack):
    """Where Redis was wiped, nobody else knows that it went out."""
    stack.make_topics("orders", "orders.retry.1m")
    group, topic = stack.environ["BRIDGE_GROUP"], stack.topic("orders")
    tier = stack.topic("orders.retry.1m")
    chosen = Settings(FileSettings(), EnvironmentSettings(), "", {"bootstrap.servers": stack.kafka}).of_group(group)
    delivery = Delivery(Message(topic, 0, 7, timestamp=5, origin=f"c {group} log"), "work").parked()
    assert Publisher(chosen).park([ParkRequest(delivery, 60, 1)], group) == [None]
    assert Publisher(chosen).parked_in([delivery], [60], group) == [[RetryRecordPosition(tier, 0, 0, passed=False)]]
    client = Consumer({"bootstrap.servers": stack.kafka, "group.id": group})
    client.commit(offsets=[TopicPartition(tier, 0, 1)], asynchronous=False)
    client.close()
    assert Publisher(chosen).parked_in([delivery], [60], group) == [[RetryRecordPosition(tier, 0, 0, passed=True)]]


@pytest.mark.slow
def test_what_was_written_before_its_topic_got_more_partitions_is_found(stack: Stack):
    stack.make_topics("orders", "orders.dlq", "orders.retry.1m", partitions=2)
    group, topic = stack.environ["BRIDGE_GROUP"], stack.topic("orders")
    chosen = Settings(FileSettings(), EnvironmentSettings(), "", {"bootstrap.servers": stack.kafka}).of_group(group)
    message = Message(topic, 5, 7, timestamp=5, origin=f"c {group} log")
    dead, parked = Delivery(message, "work"), Delivery(message, "work").parked()
    Publisher(chosen).dead_letter(dead, Dead("permanent", Failure("E", "m", "", 1)), group)
    assert Publisher(chosen).park([ParkRequest(parked, 60, 1)], group) == [None]
    admin = AdminClient({"bootstrap.servers": stack.kafka})
    names = [stack.topic("orders.dlq"), stack.topic("orders.retry.1m")]
    for grown in admin.create_partitions([NewPartitions(name, 6) for name in names]).values():
        grown.result(30)
    eventually(lambda: all(len(admin.list_topics(timeout=10).topics[name].partitions) == 6 for name in names))
    assert Publisher(chosen).has_dead_letter(dead, group)
    assert Publisher(chosen).parked_in([parked], [60], group) == [[RetryRecordPosition(names[1], 1, 0, passed=False)]]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("fate", "written"),
    [(Fate.DONE, 1), (Fate.HANDED, 0), (Fate.OPEN, 0)],
    ids=["has had its run", "is handed off", "is not due"],
)
def test_what_began_anew_is_parked_again_where_its_record_has_had_its_run_committed_or_not(
    stack: Stack, fate: Fate, written: int
):
    """As after `bridge reset --again`, of what Redis may have forgotten: the record is older than its start."""
    parking(stack)
    stack.make_topics("orders", "orders.retry.5m")
    due, yesterday = int((time.time() + 300) * 1000), int((time.time() - 86_400) * 1000)
    with ledger(stack, "orders") as (book, there), ledger(stack, "orders.retry.5m") as (_, tier):
        # The first is not due: nothing behind it is committed.
        for offset in (9, 0):
            message = Message(there.topic, 0, offset, timestamp=yesterday, origin=f"c g {there.topic_id}")
            delivery = Delivery(message, NAME).parked()
            stack.produce(
                "orders.retry.5m",
                b"{}",
                headers=retry_record.retry_headers(delivery, stack.environ["BRIDGE_GROUP"], due=due),
            )
        book.write([Mark(Account(RETRY_RECORD, tier.topic, tier.topic_id, 0), [1], fate)])
    stack.produce("orders", {"fail": 9}, timestamp=yesterday)
    stack.bridge()
    stack.worker("-c", "1")
    eventually(lambda: fate_of(stack) == Fate.PARKED, 30)
    waits_in(stack, "5m", 2 + written)
    found = audit(stack)
    assert (found["parked"], found["unaccounted"]) == (1, 0)
