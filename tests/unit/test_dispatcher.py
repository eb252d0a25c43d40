"""From records to the broker: what is published is never published again, and no message is larger than it may be."""

from typing import Any
from unittest.mock import patch

import pytest
from confluent_kafka import Message as Record

from bridge.bridge_metrics import BridgeMetrics
from bridge.dispatch.batch_sizer import BatchSizer
from bridge.dispatch.celery_message import OutgoingBatch
from bridge.dispatch.dispatcher import (
    Dispatcher,
    HandoffCounts,
    HandoffRoom,
    HandoffScope,
    ReplayCounter,
)
from bridge.dispatch.fate_sync import PendingMarks, take_in_records
from bridge.dispatch.retry_share import RetryShareAllocator
from bridge.dispatch.suspended_handlers import HaltedHandlers, SuspendedHandlers
from bridge.errors import HandoffFailed, LedgerUnavailable
from bridge.formats.celery_header import HEADER, HeaderContents
from bridge.formats.delivery import Delivery, Message
from bridge.formats.retry_record import retry_headers
from bridge.handler_routes import Handler, Routes
from bridge.kafka.topic_names import TopicNames
from bridge.ledger import Fate
from bridge.partitions.ordering import MESSAGE_BYTES, Portion
from bridge.partitions.partition import Partition
from bridge.partitions.retry_partition import RetryPartition, RetryTopicOwner
from bridge.partitions.retry_read_ahead import ReadAheadBudget
from bridge.settings import TopicSettings
from tests.memory_ledger import MemoryLedger

CHARGE, NOTIFY = "shop.charge", "shop.notify"


class Broker:
    """Takes whatever is published."""

    def __init__(self) -> None:
        self.published: list[list[int]] = []

    def publish(self, outgoing: Any) -> None:
        each: OutgoingBatch
        for each in outgoing:
            contents = HeaderContents.from_headers({HEADER: each.header})
            assert contents is not None
            self.published.append(list(contents.offsets))

    def queue_of(self, handler: str) -> str:
        return "celery"

    def read_lengths(self, queues: list[str]) -> dict[str, int]:
        return dict.fromkeys(queues, 0)

    def count_delayed(self, queues: list[str]) -> dict[str, int]:
        return dict.fromkeys(queues, 0)


class Silent(MemoryLedger):
    """A ledger on a server of its own, which may fall silent."""

    silent = False

    def write(self, items: Any) -> Any:
        if self.silent:
            raise LedgerUnavailable("no answer")
        return super().write(items)

    def fates_many(self, questions: Any) -> list[bytes]:
        return [self.fates(*question) for question in questions]


class World:
    """A dispatch whose ledger is not the broker's Redis."""

    def __init__(self, batch: int = 1, **chosen: Any) -> None:
        self.broker, self.ledger = Broker(), Silent()
        broker: Any = self.broker
        ledger: Any = self.ledger
        self.marks = PendingMarks(ledger)
        sizes = BatchSizer(Routes({}), None, broker)
        shares = RetryShareAllocator(0.5, sizes, broker, None)
        names = TopicNames("bridge")
        self.replays = ReplayCounter(None, names, ["orders"], [CHARGE])
        room, counts = HandoffRoom(sizes, shares), HandoffCounts(BridgeMetrics(), self.replays)
        scope = HandoffScope("cluster", "bridge", one_step=False)
        self.dispatch = Dispatcher(broker, ledger, self.marks, room, counts, scope)
        handler = Handler(CHARGE, ("orders",), "celery", batch, 0)
        self.partition = Partition("orders", 0, 0, [handler], TopicSettings.model_validate(chosen), "id")

    def receive(self, *records: Record) -> None:
        place = self.partition.place
        ledger: Any = self.ledger
        self.marks.add(take_in_records(ledger, {place: list(records)}, {place: self.partition}))

    def hand_out(self) -> int:
        return self.dispatch.hand_out([self.partition])

    def fates(self, last: int) -> list[int]:
        return list(self.ledger.fates(self.partition.accounts[CHARGE], 0, last))


def record(offset: int, value: bytes = b"1", headers: Any = ()) -> Record:
    return Record(topic="orders", partition=0, offset=offset, value=value, headers=list(headers), timestamp=(1, 5))


@pytest.mark.parametrize("commit", ["handoff", "completion"])
@pytest.mark.parametrize("batch", [1, 2])
def test_a_ledger_that_falls_silent_after_the_publishing_makes_nothing_go_out_twice(commit: str, batch: int) -> None:
    world = World(batch, commit=commit)
    world.receive(*map(record, range(4)))
    world.ledger.silent = True
    for _ in range(3):
        with pytest.raises(LedgerUnavailable):
            world.hand_out()
    world.ledger.silent = False
    while world.hand_out():
        pass
    assert sorted(offset for sent in world.broker.published for offset in sent) == [0, 1, 2, 3]
    assert world.fates(3) == [Fate.HANDED] * 4


def test_headers_count_in_the_size_of_a_message() -> None:
    world = World(200)
    heavy = [("trace", b"x" * (MESSAGE_BYTES - 100_000))]
    world.receive(*(record(offset, b"1", heavy) for offset in range(6)))
    while world.hand_out():
        pass
    assert world.broker.published == [[0], [1], [2], [3], [4], [5]]


def parked(offset: int, handler: str) -> Record:
    """A record of a retry topic that is due."""
    written: Any = retry_headers(
        Delivery(Message("orders", 3, 100 + offset), handler, number=1, runs=2), "bridge", due=1
    )
    return Record(topic="orders.retry.1m", partition=0, offset=offset, value=b"v", headers=written, timestamp=(1, 5))


def test_what_was_parked_stays_in_kafka_while_what_its_handler_needs_is_down_and_others_go_on() -> None:
    world = World()
    of = RetryTopicOwner("orders", TopicSettings(), "bridge", "cluster")
    partition = RetryPartition("orders.retry.1m", 0, 0, of, "id", 1_000, ReadAheadBudget())
    partition.receive([parked(n, handler) for n, handler in enumerate((CHARGE, NOTIFY, CHARGE))], {"own": bytes(3)})
    kept = SuspendedHandlers(parked=frozenset({CHARGE}))
    assert [world.dispatch.hand_out([partition], kept, parked=True) for _ in range(2)] == [1, 0]
    assert not world.dispatch.holds, "the next turn need not hurry"
    assert partition.ready == {CHARGE: 2}
    assert world.dispatch.hand_out([partition], parked=True) == 1
    assert partition.ready == {CHARGE: 1}


def test_what_was_parked_of_a_halted_handler_stays_in_kafka_and_others_go_on() -> None:
    world = World()
    of = RetryTopicOwner("orders", TopicSettings(), "bridge", "cluster")
    partition = RetryPartition("orders.retry.1m", 0, 0, of, "id", 1_000, ReadAheadBudget())
    partition.receive([parked(n, handler) for n, handler in enumerate((CHARGE, NOTIFY, CHARGE))], {"own": bytes(3)})
    halted = SuspendedHandlers(by_halt=HaltedHandlers(frozenset({("orders", CHARGE)})))
    assert [world.dispatch.hand_out([partition], halted, parked=True) for _ in range(2)] == [1, 0]
    elsewhere = SuspendedHandlers(by_halt=HaltedHandlers(frozenset({("mail", CHARGE)})))
    assert world.dispatch.hand_out([partition], elsewhere, parked=True) == 1


def test_what_waits_for_its_share_still_does_after_live_records_went_out() -> None:
    world = World()
    of = RetryTopicOwner("orders", TopicSettings(), "bridge", "cluster")
    partition = RetryPartition("orders.retry.1m", 0, 0, of, "id", 1_000, ReadAheadBudget())
    partition.receive([parked(n, CHARGE) for n in range(5)], {"own": bytes(5)})
    assert world.dispatch.hand_out([partition], parked=True) < 5
    assert world.dispatch.holds
    world.receive(*(Record(topic="orders", partition=0, offset=n, value=b"{}") for n in range(3)))
    assert world.hand_out() == 3
    assert world.dispatch.holds
    # Its source is halted: nothing of it waits for room.
    assert world.dispatch.hand_out([], parked=True) == 0
    assert not world.dispatch.holds


def test_what_could_not_be_sent_goes_out_in_the_order_in_which_it_stood() -> None:
    world = World()
    of = RetryTopicOwner("orders", TopicSettings(), "bridge", "cluster")
    partition = RetryPartition("orders.retry.1m", 0, 0, of, "id", 1_000, ReadAheadBudget())
    partition.receive([parked(n, CHARGE) for n in range(2)], {"own": bytes(2)})

    def refuses(outgoing: Any) -> None:
        raise HandoffFailed("no answer")

    with patch.object(world.broker, "publish", refuses), pytest.raises(HandoffFailed):
        world.dispatch.hand_out([partition], parked=True)
    assert world.dispatch.hand_out([partition], parked=True) == 2
    assert world.broker.published == [[100], [101]]


def test_messages_of_a_failed_step_that_the_broker_has_confirmed_go_out_once() -> None:
    world = World()
    world.receive(*map(record, range(4)))
    publish = world.broker.publish

    def takes_one(outgoing: Any) -> None:
        publish([next(iter(outgoing))])
        error = HandoffFailed("RabbitMQ blocks publishers")
        error.confirmed = 1
        raise error

    with patch.object(world.broker, "publish", takes_one), pytest.raises(HandoffFailed):
        world.hand_out()
    while world.hand_out():
        pass
    assert world.broker.published == [[0], [1], [2], [3]]
    assert world.fates(3) == [Fate.HANDED] * 4


def test_a_halted_handler_goes_out_to_its_gate_whatever_its_room_and_takes_none_from_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world, noted = World(), list[str]()
    handlers = [Handler(name, ("orders",), "celery", 1, 0) for name in (CHARGE, NOTIFY)]
    world.partition = Partition("orders", 0, 0, handlers, TopicSettings(), "id")
    room = world.dispatch._room
    monkeypatch.setattr(room, "find_portions", lambda ready, parked: {name: Portion(1, 1, room=0) for name in ready})
    monkeypatch.setattr(room, "note_handoff", lambda packed: noted.extend(each.group.handler for each in packed))
    world.receive(*map(record, range(3)))
    assert world.hand_out() == 0
    halted = SuspendedHandlers(by_halt=HaltedHandlers(frozenset({("orders", CHARGE)})))
    assert world.dispatch.hand_out([world.partition], halted) == 3
    assert (world.partition.waiting, noted) == ({CHARGE: 0, NOTIFY: 3}, [])
    assert world.dispatch.holds, "the other handler waits for room"
