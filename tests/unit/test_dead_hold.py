"""With `after_dead="hold"` what is behind a dead delivery in its order runs in no step of its message's way."""

from typing import Any

import pytest

from bridge.formats.celery_header import HEADER, to_header
from bridge.formats.delivery import Batch, Delivery, Message
from bridge.ledger import Fate
from tasks import app
from tasks.errors import TopicHalted
from tasks.execution import dead_letter_writer
from tasks.execution.dead_letter_writer import bury
from tasks.execution.halt_gate import HaltGuard
from tests.unit.test_batch_run import World, ran

KEYS = (b"b", b"b", b"a")


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> World:
    made = World(monkeypatch)
    made.book.holds_dead = True
    monkeypatch.setattr(dead_letter_writer, "send_on", made.send_on)
    return made


def keyed(*values: int) -> Batch:
    """Two deliveries of key b, and one of key a."""
    deliveries = tuple(
        Delivery(Message("orders", 0, offset, key=key, value=b"%d" % value), "unit.charge")
        for (offset, value), key in zip(enumerate(values), KEYS, strict=True)
    )
    return Batch("unit.charge", "orders", 0, deliveries, order="key")


def behind(batch: Batch) -> dict[int, int | None]:
    """By offset of a message's deliveries, the one behind which each waits."""
    return {delivery.message.offset: delivery.after for delivery in batch.deliveries}


def test_it_stays_behind_the_dead_one_if_the_run_breaks_off(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    def check(self: HaltGuard) -> None:
        if ran:
            raise TopicHalted("the topic is halted")

    monkeypatch.setattr(HaltGuard, "check", check)
    left = world.comes_back_from(keyed(101, 2, 3))
    assert behind(left) == {1: 0, 2: None}


def test_it_does_not_run_either_once_the_ledger_takes_the_mark_that_travelled(world: World) -> None:
    world.book.silent = True
    left = world.comes_back_from(keyed(101, 2, 3))
    assert [delivery.ended for delivery in left.deliveries] == ["dead", "", ""]
    world.book.silent = False
    ran.clear()
    world.run_batch(left)
    assert ran == [3]
    (again,) = world.batches
    assert behind(again) == {1: 0}


def test_it_is_sent_on_behind_the_dead_one_if_another_of_its_message_is_buried(world: World) -> None:
    world.book.fates = {0: Fate.DEAD}
    batch = keyed(101, 2, 3)
    lost = batch.holding([*batch.deliveries[:2], batch.deliveries[2].lost(3)])
    task: Any = app.tasks["tasks.bury"]
    bury.__get__(task)({"task": "unit.charge", "headers": {HEADER: to_header(lost)}, "reason": "poison"})
    assert [letter for letter, _ in world.letters] == [2]
    (rest,) = world.batches
    assert behind(rest) == {1: 0}
