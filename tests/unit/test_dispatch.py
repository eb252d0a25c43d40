"""From records to the broker: what is published is never published again, and no message is larger than it may be."""

from typing import Any

import pytest
from confluent_kafka import Message as Record

from bridge.errors import LedgerUnavailable
from bridge.handlers import Handler, Routes
from bridge.handoff.dispatch import Dispatch
from bridge.handoff.marks import Marks
from bridge.handoff.seeing import receive
from bridge.handoff.shares import Shares
from bridge.handoff.sizes import Sizes
from bridge.handoff.templates import Outgoing
from bridge.ledger import Fate
from bridge.metrics import BridgeMetrics
from bridge.partitions.partition import Partition
from bridge.partitions.turns import MESSAGE_BYTES
from bridge.records.header import HEADER, Contents
from bridge.settings import TopicSettings
from tests.memory_ledger import MemoryLedger

CHARGE = "shop.charge"


class Broker:
    """Takes whatever is published."""

    def __init__(self) -> None:
        self.published: list[list[int]] = []

    def publish(self, outgoing: Any) -> None:
        each: Outgoing
        for each in outgoing:
            contents = Contents.of({HEADER: each.header})
            assert contents is not None
            self.published.append(list(contents.offsets))


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
        self.marks = Marks(ledger)
        sizes = Sizes(Routes({}), None, broker)
        shares = Shares(0.5, sizes, broker, None)
        self.dispatch = Dispatch(broker, ledger, self.marks, sizes, shares, False, "cluster", "bridge", BridgeMetrics())
        handler = Handler(CHARGE, ("orders",), "celery", batch, 0)
        self.partition = Partition("orders", 0, 0, [handler], TopicSettings.model_validate(chosen), "id")

    def receive(self, *records: Record) -> None:
        place = self.partition.place
        ledger: Any = self.ledger
        self.marks.add(receive(ledger, {place: list(records)}, {place: self.partition}))

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
