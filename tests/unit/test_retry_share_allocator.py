"""What may be taken of retry topics, by what is seen of the queues."""

from typing import Any

import pytest

from bridge.dispatch.retry_share import (
    BATCH_SECONDS_SHARED,
    COUNTS_FOR,
    FAILED_EVERY,
    MESSAGES_PER_PROCESS,
    RetryShareAllocator,
)
from bridge.errors import HandoffFailed
from bridge.ledger import RETRY_RECORD, Account, Fate, Mark
from tests.memory_ledger import MemoryLedger

TIER = Account(RETRY_RECORD, "orders.retry.1m", "id", 0)
PROCESSES = 2


class World:
    """A broker with one queue, a ledger, sizes of up to 100, and a clock that a test sets."""

    def __init__(self, share: float = 0.5, high: float = 1_000) -> None:
        self.now, self.length, self.later, self.away = 100.0, 0, 0, False
        world: Any = self
        self.ledger = MemoryLedger()
        self.shares = RetryShareAllocator(share, world, world, None, high, lambda: self.now)
        self.shares._ledger = self.ledger  # type: ignore[assignment]

    def queue_of(self, handler: str) -> str:
        return "mail"

    def processes(self, queue: str) -> int:
        return PROCESSES

    def is_automatic(self, handler: str) -> bool:
        return True

    def most(self, handler: str) -> int:
        return 100

    def run_seconds(self, handler: str) -> float | None:
        return None

    def read_lengths(self, queues: Any) -> dict[str, int]:
        if self.away:
            raise HandoffFailed("no answer")
        return dict.fromkeys(queues, self.length)

    def count_delayed(self, queues: Any) -> dict[str, int]:
        return dict.fromkeys(queues, self.later)

    def portion(self, ready: int = 100_000) -> tuple[int, int | None]:
        self.now += 0.2
        found = self.shares.portions({"charge": ready})["charge"]
        return found.size, found.room

    def hand(self, first: int, count: int = 10) -> None:
        """A message that workers take at once."""
        offsets = range(first, first + count)
        self.ledger.write([Mark(TIER, offsets, Fate.HANDED)])
        self.shares.note_handed("charge", TIER, offsets, parked=True)


def test_what_workers_have_taken_counts_until_it_has_ended() -> None:
    world = World()
    assert world.portion() == (100, MESSAGES_PER_PROCESS * PROCESSES)
    for n in range(3):
        world.hand(10 * n)
    assert world.portion() == (100, MESSAGES_PER_PROCESS * PROCESSES - 3)
    world.ledger.write([Mark(TIER, range(20), Fate.DONE)])
    assert world.portion() == (100, MESSAGES_PER_PROCESS * PROCESSES - 1)


def test_where_all_has_ended_at_each_look_more_goes_out_and_less_again_when_any_waits() -> None:
    world, rooms = World(), []
    for n in range(6):
        rooms.append(world.portion()[1])
        world.hand(10 * n)
        world.ledger.write([Mark(TIER, range(10 * n, 10 * n + 10), Fate.DONE)])
    assert rooms == [4, 8, 16, 32, 32, 32]
    world.length = 1
    # One of them is what waits.
    assert [world.portion()[1] for _ in range(4)] == [15, 7, 3, 3]


def test_what_failed_again_and_waits_for_its_time_counts_for_a_moment_only() -> None:
    world = World()
    world.portion()
    for n in range(4):
        world.hand(10 * n)
    assert world.portion() == (100, 0)
    world.now += COUNTS_FOR
    assert world.portion()[1] >= MESSAGES_PER_PROCESS * PROCESSES  # type: ignore[operator]


def test_beside_live_records_messages_are_small() -> None:
    world = World()
    world.portion()
    world.shares.note_handed("charge", Account("charge", "orders", "id", 0), [5], parked=False)
    assert world.portion()[0] == int(100 * BATCH_SECONDS_SHARED / 0.05)


def test_a_long_queue_is_shared_and_one_full_of_retries_takes_nothing() -> None:
    world = World()
    world.length = 500
    assert world.portion() == (10, 50)
    world.later = 1_001
    assert world.portion() == (10, 0)


def test_few_that_are_due_are_shared_by_the_processes() -> None:
    assert World().portion(6) == (3, MESSAGES_PER_PROCESS * PROCESSES)


def test_while_the_broker_does_not_answer_all_stays_as_it_was(caplog: pytest.LogCaptureFixture) -> None:
    world = World()
    world.portion()
    world.away = True
    assert world.portion() == (100, MESSAGES_PER_PROCESS * PROCESSES)
    world.now += FAILED_EVERY
    assert world.portion() == (100, MESSAGES_PER_PROCESS * PROCESSES)
    assert len(caplog.records) == 1
