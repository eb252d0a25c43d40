"""What is stuck is found in slices, and nothing that others put into a queue stops the search."""

import json
from base64 import b64encode
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from bridge.dispatch.broker_search import read_message_headers
from bridge.dispatch.carrier_message import PartitionHandler, find_carried_deliveries, read_offsets
from bridge.errors import HandoffFailed, LedgerUnavailable
from bridge.jobs.stuck_deliveries import SLICE, SUSPECTS, StuckDeliveryFinder

STUCK_AFTER = 3_600.0


def header(*offsets: int) -> dict[str, Any]:
    return {"topic": "orders", "partition": 0, "messages": [[offset, 1, None, "MQ==", None] for offset in offsets]}


class World:
    """One handler on some partitions, a broker whose messages are looked through at 10 ms each, and a clock."""

    def __init__(self, suspects: list[int], there: list[int], partitions: int = 1) -> None:
        self.now = 0.0
        self.found, self.there = suspects, there
        self.read = self.wanted = 0
        self.away = self.silent = False
        self.opened: list[tuple[int, list[int]]] = []
        self.reread: list[tuple[int, int]] = []
        handler = SimpleNamespace(name="charge", queue="mail")
        made = [SimpleNamespace(place=("orders", n), handlers=[handler]) for n in range(partitions)]
        world: Any = self
        assigned: Any = SimpleNamespace(partitions=made, parked=[])
        self.search_for = StuckDeliveryFinder(world, world, assigned, STUCK_AFTER, lambda: self.now)

    def find_places(self, partitions: Any) -> set[tuple[str, int]]:
        return {partition.place for partition in partitions}

    def find(self, partition: Any, handler: str) -> list[int]:
        if partition.place[1] == 9:
            raise ValueError("an odd field in the index")
        return self.found

    def search(self, queue: str, suspects: dict[PartitionHandler, set[int]]) -> Iterator[None]:
        self.wanted = max(self.wanted, sum(map(len, suspects.values())))
        for offset in self.there:
            if self.away:
                raise HandoffFailed("no answer")
            self.read, self.now = self.read + 1, self.now + 0.01
            for owner in suspects:
                suspects[owner].discard(offset)
            yield

    def reopen(self, partition: Any, handler: str, nowhere: list[int]) -> None:
        if self.silent:
            raise LedgerUnavailable("no answer; it may be done all the same")
        self.opened.append((partition.place[1], nowhere))

    def go_on(self) -> bool:
        for partition, offset in self.search_for.go_on():
            self.reread.append((partition.place[1], offset))
        return self.search_for.more

    def all(self) -> int:
        """How many slices a whole search took."""
        slices = 1
        while self.go_on():
            slices += 1
        return slices


def test_a_search_goes_on_in_slices_and_opens_what_is_nowhere() -> None:
    world = World([3, 4, 5], [*range(100, 200), 4])
    assert world.all() >= 101 * 0.01 / SLICE
    assert (world.reread, world.opened) == ([(0, 3)], [(0, [3, 5])])


def test_without_a_suspect_no_queue_is_read() -> None:
    world = World([], [1, 2, 3])
    world.all()
    assert world.read == 0


def test_a_long_queue_is_not_read_again_every_minute() -> None:
    world = World([1], [1] * 10)
    world.all()
    world.now += 60
    world.all()
    assert world.read == 10
    world.now += STUCK_AFTER / 10
    world.all()
    assert world.read == 20


def test_what_may_be_open_again_is_read_again_although_the_ledger_did_not_answer() -> None:
    world = World([3], [])
    world.silent = True
    with pytest.raises(LedgerUnavailable):
        world.all()
    assert (world.reread, world.opened) == ([(0, 3)], [])


def test_a_partition_that_cannot_be_looked_at_stops_no_other() -> None:
    world = World([7], [], partitions=11)
    world.all()
    assert [number for number, _ in world.opened] == [0, 1, 2, 3, 4, 5, 6, 7, 8, 10]


def test_a_broker_that_falls_silent_opens_nothing_and_is_asked_again() -> None:
    world = World([1], [5])
    world.away = True
    world.all()
    assert world.opened == []
    world.away, world.now = False, world.now + STUCK_AFTER
    world.all()
    assert world.opened == [(0, [1])]


def test_more_suspects_than_one_search_may_have_are_looked_for_by_the_next() -> None:
    world = World(list(range(SUSPECTS + 10)), [])
    for _ in range(2):
        world.all()
        world.now += STUCK_AFTER
    assert world.wanted == SUSPECTS
    assert world.opened == [(0, list(range(SUSPECTS))), (0, list(range(SUSPECTS, SUSPECTS + 10)))]


OTHERS: list[Any] = [
    None,
    "text",
    7,
    [],
    {},
    {"topic": "orders"},
    {"topic": "orders", "partition": "x", "messages": []},
    {"topic": "orders", "partition": 0, "messages": 5},
    {"topic": "orders", "partition": 0, "messages": [5, []]},
    {"topic": "orders", "partition": None, "messages": [[1]]},
]
FOREIGN = [
    b"",
    b"[]",
    b"7",
    b"\xff",
    b"{}",
    b'{"headers": null, "body": null}',
    b'{"headers": [], "body": "W1tdLHt9LHt9XQ=="}',
    b'{"headers": {}, "body": 5}',
    *(json.dumps({"headers": {"task": "charge", "kafka": foreign}, "body": ""}).encode() for foreign in OTHERS),
]


@pytest.mark.parametrize("raw", FOREIGN)
def test_whatever_others_put_into_a_queue_carries_nothing_and_raises_nothing(raw: bytes) -> None:
    for headers in read_message_headers(raw):
        assert list(read_offsets(headers)) == [] or read_offsets(headers) == [(("charge", "orders", 0), [])]
        assert list(find_carried_deliveries(headers, "orders", {(0, 1, "charge")})) == []


def test_what_a_message_carries_is_found_in_its_burial_too() -> None:
    headers = {"task": "charge", "kafka": header(4, 5)}
    body = b64encode(json.dumps([[{"headers": headers}], {}, {}]).encode()).decode()
    for raw in ({"headers": headers, "body": ""}, {"headers": {"task": "tasks.bury"}, "body": body}):
        found = [each for one in read_message_headers(json.dumps(raw).encode()) for each in read_offsets(one)]
        assert found == [(("charge", "orders", 0), [4, 5])]
