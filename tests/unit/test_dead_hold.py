"""With `after_dead="hold"` what is behind a dead delivery in its order runs in no step of its message's way."""

import json
import time
from dataclasses import replace
from typing import Any

import pytest

from bridge.bridge_metrics import BridgeMetrics
from bridge.formats.celery_header import HEADER, to_header
from bridge.formats.delivery import Batch, Delivery, Message
from bridge.handler_routes import Handler, Routes
from bridge.jobs.bridge_announcement import BridgeAnnouncement
from bridge.ledger import Fate, Ledger
from bridge.ledger.group_members import read_announcement
from bridge.partitions.partition import Partition
from bridge.settings import TopicSettings
from tasks import app
from tasks.errors import DeadLettered, TopicHalted
from tasks.execution import dead_letter_writer
from tasks.execution.dead_letter_writer import bury
from tasks.execution.halt_gate import HaltGuard
from tests.unit.test_batch_run import World, ran
from tests.unit.test_partition import records

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


def test_each_that_dies_once_the_one_before_it_has_ended_holds_the_rest(world: World) -> None:
    """The first dies, is replayed and done; the second runs and dies."""
    first = keyed(101, 102, 3)
    batch = first.holding(
        replace(delivery, message=replace(delivery.message, key=b"b")) for delivery in first.deliveries
    )
    for number, left in ((0, [1, 2]), (1, [2])):
        with pytest.raises(DeadLettered):
            world.run_batch(batch)
        assert [value for value, _ in world.letters] == [*range(number + 1)]
        batch = world.batches.pop()
        assert behind(batch) == dict.fromkeys(left, number)
        world.book.fates[number] = Fate.DONE


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


def test_those_in_the_batch_of_the_dead_one_wait_behind_it_too() -> None:
    chosen = TopicSettings(commit="completion", order="key", after_dead="hold")
    held = Partition("orders", 3, 0, [Handler("h", ("orders",), "q", 10, 0.0)], chosen, "id")
    held.receive([*records(0, 1, 2, key=b"b"), *records(3, key=b"a"), *records(4, key=b"b")], {"h": bytes(5)})
    held.take()
    held.settle("h", [0], Fate.DEAD)
    (hold,) = held.dead_holds()
    assert (hold.dead, hold.behind) == (1, 3)


def test_a_bridge_tells_which_dead_deliveries_hold_since_when_and_how_many_wait_and_shows_it() -> None:
    chosen = TopicSettings(commit="completion", order="key", after_dead="hold")
    held = Partition("orders", 3, 0, [Handler("h", ("orders",), "q", 1, 0.0)], chosen, "id")
    held.receive([*records(0, 1, key=b"b"), *records(2, key=b"a"), *records(3, key=b"b")], {"h": bytes(4)})
    held.take()
    metrics = BridgeMetrics()
    made = BridgeAnnouncement(Ledger("redis://localhost:1/0", "a-cluster", "shop"), "tasks", Routes({}), metrics)
    made.leave()
    made.update_state([], [held], busy=[held])
    assert made._state["dead_holds"] == []
    held.settle("h", [0], Fate.DEAD)
    for _ in range(2):
        made.update_state([], [held], busy=[held])
    told = read_announcement(json.dumps(made._state), "bridges")
    assert told is not None
    (hold,) = told["dead_holds"]
    assert time.time() - hold.pop("since") < 5
    assert hold == {"topic": "orders", "partition": 3, "handler": "h", "offset": 0, "dead": 1, "behind": 2}
    shown = [
        metrics.registry.get_sample_value(name, {"topic": "orders", "handler": "h"})
        for name in ("bridge_dead_holds", "bridge_dead_holds_waiting")
    ]
    assert shown == [1, 2]
    held.settle("h", [0], Fate.DISCARDED)
    made.update_state([], [held], busy=[held])
    assert metrics.registry.get_sample_value("bridge_dead_holds", {"topic": "orders", "handler": "h"}) is None
