"""A range of a topic is looked through without holding its records."""

from weakref import WeakSet

from bridge.deadletters.replay.redrive_range import DeliveryStand, RangeLook
from bridge.kafka.partition_offsets import Extent


class Record:
    """One whose value may be large."""

    def __init__(self, offset: int) -> None:
        self._offset = offset

    def partition(self) -> int:
        return 0

    def offset(self) -> int:
        return self._offset

    def key(self) -> bytes:
        return b"k"


def test_of_the_records_that_are_looked_at_together_no_more_than_two_are_held_at_once(monkeypatch):
    def known(_, asked):
        return {
            (0, offset, account.handler): DeliveryStand.DONE for account, offsets in asked.items() for offset in offsets
        }

    monkeypatch.setattr(RangeLook, "_stands", known)
    look = RangeLook(None, None, [Extent("orders", 0, 0, 2_500, 0)], {0: "log"})  # type: ignore[arg-type]
    alive: WeakSet[Record] = WeakSet()
    held = []

    def coming():
        for offset in range(2_500):
            record = Record(offset)
            alive.add(record)
            held.append(len(alive))
            yield record

    found = [len(some) for some in look.deliveries(coming(), ["charge", "mail"])]
    assert (found, max(held)) == ([2_000, 2_000, 1_000], 2)
