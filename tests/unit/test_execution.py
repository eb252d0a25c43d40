"""A batch in the worker: every delivery has a fate of its own, whatever its neighbours do."""

from typing import Any

import pytest
from celery.exceptions import Reject, Retry

from bridge.errors import PublishFailed
from bridge.ledger import Fate
from bridge.message import HEADER, Batch, Delivery, Message, from_header, to_header
from bridge.publisher import Publisher
from tasks import DeadLetter, StopConsuming, app, execution, handler
from tasks.book import Book
from tasks.errors import DeadLettered

ran: list[int] = []


class BankAway(Exception):
    """Passes."""


@handler("orders", name="unit.charge", codec=int, batch=9, max_retries=1, retry_jitter=False, retry_backoff=4)
def charge(number: int) -> str:
    ran.append(number)
    if number < 0:
        raise BankAway
    if number > 100:
        raise DeadLetter("too much")
    if number == 77:
        raise StopConsuming("the bank is on fire")
    return f"charged {number}"


class FakeBook:
    """The ledger, as far as a batch sees it."""

    def __init__(self, settled: set[int]) -> None:
        self.fates = dict.fromkeys(settled, Fate.DONE)

    def settled(self, offsets: list[int]) -> set[int]:
        return {offset for offset in offsets if offset in self.fates}

    def done(self, offset: int, *, now: bool = False) -> None:
        self.fates[offset] = Fate.DONE

    def mark(self, offset: int, fate: Fate) -> None:
        self.fates[offset] = fate

    def flush(self) -> None:
        pass

    def forgot_at(self, message: Message) -> float | None:
        return None


class World:
    """What a run of a batch has done."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.letters: list[tuple[int, str]] = []
        self.sent: list[tuple[float, list[int]]] = []
        self.batches: list[Batch] = []
        self.kafka_down = False
        self.book = FakeBook(set())
        monkeypatch.setattr(Book, "of", lambda app, batch: self.book)
        monkeypatch.setattr(Publisher, "of", lambda app: self)
        monkeypatch.setattr(execution, "send_on", self.send_on)
        ran.clear()

    def dead_letter(self, delivery: Delivery, dead: Any) -> None:
        if self.kafka_down:
            raise PublishFailed("Kafka is away")
        self.letters.append((delivery.message.offset, dead.reason))

    def has_dead_letter(self, delivery: Delivery, written_before: float | None = None) -> bool:
        return any(offset == delivery.message.offset for offset, _ in self.letters)

    def send_on(self, app: Any, batch: Batch, delay: float, delivery_info: Any) -> None:
        self.sent.append((delay, batch.offsets))
        self.batches.append(batch)

    def run(self, *values: int, keys: list[bytes] | None = None, order: str | None = None, **headers: Any) -> Any:
        deliveries = tuple(
            Delivery(
                Message("orders", 0, offset, key=keys[offset] if keys else None, value=b"%d" % value), "unit.charge"
            )
            for offset, value in enumerate(values)
        )
        return self.run_batch(Batch("unit.charge", "orders", 0, deliveries, order=order), **headers)

    def run_batch(self, batch: Batch, **headers: Any) -> Any:
        header = to_header(batch)
        assert from_header(batch.handler, header) == batch
        charge.push_request(headers={HEADER: header, **headers}, called_directly=False, delivery_info={}, id="x")
        try:
            return execution.execute(charge, header)
        finally:
            charge.pop_request()


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> World:
    return World(monkeypatch)


def test_one_that_fails_leaves_its_batch_and_its_neighbours_are_done(world: World) -> None:
    assert world.run(1, -2, 3) == "2 done, 1 again"
    assert world.book.fates == {0: Fate.DONE, 2: Fate.DONE}
    assert world.sent == [(4, [1])]


def test_those_that_are_due_together_are_retried_together(world: World) -> None:
    world.run(-1, 2, -3)
    assert world.sent == [(4, [0, 2])]


def test_a_retry_that_fails_again_is_dead_and_only_then_marked(world: World) -> None:
    world.run(-1, 2, -3)
    again = world.batches[0]
    assert [delivery.failures for delivery in again.deliveries] == [1, 1]
    with pytest.raises(DeadLettered, match=r"^2 dead; the last: exhausted: "):
        world.run_batch(again)
    assert world.letters == [(0, "exhausted"), (2, "exhausted")]
    assert world.book.fates == {0: Fate.DEAD, 1: Fate.DONE, 2: Fate.DEAD}


def test_what_is_settled_is_not_run_again(world: World) -> None:
    world.book = FakeBook({0, 2})
    world.run(1, 2, 3)
    assert ran == [2]


def test_a_failing_key_takes_its_later_messages_along_and_no_other_key(world: World) -> None:
    world.run(1, -2, 3, 4, keys=[b"a", b"b", b"b", b"a"], order="key")
    assert ran == [1, -2, 4]
    assert world.sent == [(4, [1, 2])]
    assert [delivery.failures for delivery in world.batches[0].deliveries] == [1, 0]


def test_in_partition_order_all_that_follows_waits(world: World) -> None:
    world.run(1, -2, 3, order="partition")
    assert ran == [1, -2]
    assert world.sent == [(4, [1, 2])]


def test_a_dead_message_frees_its_key(world: World) -> None:
    with pytest.raises(DeadLettered, match=r"^1 dead, 1 done; "):
        world.run(101, 2, keys=[b"a", b"a"], order="key")
    assert world.book.fates == {0: Fate.DEAD, 1: Fate.DONE}


def test_while_kafka_takes_no_dead_letter_its_key_waits_and_the_handler_does_not_run_again(world: World) -> None:
    world.kafka_down = True
    world.run(101, 2, keys=[b"a", b"a"], order="key")
    assert (ran, world.book.fates) == ([101], {})
    world.kafka_down = False
    with pytest.raises(DeadLettered):
        world.run_batch(world.batches[0])
    assert ran == [101, 2]
    assert world.letters == [(0, "permanent")]


def test_after_a_lost_process_each_runs_alone(world: World) -> None:
    world.book = FakeBook({1})
    world.run(1, 2, 3, lost=1)
    assert ran == []
    assert world.sent == [(0, [0]), (0, [2])]


def test_a_dead_letter_that_a_killed_process_has_written_is_not_written_twice(world: World) -> None:
    world.letters.append((0, "permanent"))
    with pytest.raises(DeadLettered):
        world.run(101, restored=1)
    assert world.letters == [(0, "permanent")]
    assert world.book.fates[0] is Fate.DEAD


def test_when_its_time_is_over_the_rest_goes_back_as_a_batch_of_its_own(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(charge, "batch_seconds", -1)
    assert world.run(1, 2, 3) == "1 done, 2 put back"
    assert world.sent == [(0, [1, 2])]


def test_a_handler_that_asks_to_stop_keeps_its_message_without_spending_a_retry(world: World) -> None:
    world.run(77, 1)
    assert world.sent[0][1] == [0]
    assert world.batches[0].deliveries[0].failures == 0


def test_one_alone_ends_its_task_as_its_delivery_ends(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    assert world.run(1) == "charged 1"
    world.book.fates.clear()
    with pytest.raises(DeadLettered, match="permanent"):
        world.run(101)
    world.book.fates.clear()
    monkeypatch.setattr(type(charge), "apply_async", lambda *a, **k: None)
    with pytest.raises(Retry):
        world.run(-1)


def test_what_cannot_be_settled_stays_in_the_broker(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: Any) -> None:
        raise OSError("the broker is away")

    monkeypatch.setattr(execution, "send_on", broken)
    with pytest.raises(Reject) as caught:
        world.run(-1, 2)
    assert vars(caught.value)["requeue"]


def test_the_handler_is_one_of_the_app() -> None:
    assert app.tasks["unit.charge"] is charge
