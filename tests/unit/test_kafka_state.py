"""What a running bridge knows of Kafka besides its records."""

import time
from types import SimpleNamespace
from typing import Any, ClassVar

import pytest

from bridge.bridge_metrics import BridgeMetrics
from bridge.dispatch.suspended_handlers import HaltedHandlers
from bridge.jobs.kafka_state import LOGGED_FOR, KafkaState
from bridge.jobs.open_transactions import TransactionWatch
from bridge.kafka.clients import KafkaError
from bridge.kafka.topic_names import DerivedTopic


class Catalog:
    """Kafka lists its topics, and nothing else was asked for."""

    def asking(self) -> Any:
        return self

    def take_answer(self) -> None:
        """Nothing was asked for."""

    unlisted: str | None = None

    def hear_topics(self) -> bool:
        return self.unlisted is None

    def ends(self) -> None:
        """No end was asked for."""


class Assignment(list[tuple[str, int]]):
    """The partitions that a bridge has."""

    low: ClassVar[dict[Any, int]] = {}
    parked = busy_parked = ()


def test_a_bridge_without_partitions_knows_that_kafka_answers_again():
    catalog: Any = Catalog()
    state = KafkaState(catalog, BridgeMetrics())
    assigned: Any = Assignment([("orders", 0)])
    state.note_outage("Kafka does not answer.")
    state.take_answers(assigned)
    # Who has partitions asks where they end: that topics are listed says little of them.
    assert state.down == "Kafka does not answer."
    none: Any = Assignment()
    state.take_answers(none)
    assert state.down is None


def test_a_bridge_that_lost_its_partitions_says_that_kafka_does_not_answer():
    """A frozen Kafka takes them away by its silence, and then no end is asked for."""
    catalog: Any = Catalog()
    catalog.unlisted = "Kafka does not answer: timed out."
    state, none = KafkaState(catalog, BridgeMetrics()), Assignment()
    state.take_answers(none)  # type: ignore[arg-type]
    assert state.down == "Kafka does not answer: timed out."


class Parts(Assignment):
    """A partition of a source and one of its retry topic, of which nothing is committed."""

    low: ClassVar[dict[Any, int]] = {("orders", 0): 2, ("orders.retry.5m", 0): 3}
    committed: ClassVar[dict[Any, int]] = {}


def test_what_is_parked_for_later_is_not_behind():
    catalog: Any = Catalog()
    catalog.belonging = lambda topic: None if topic == "orders" else DerivedTopic("retry", "orders", 300)
    metrics = BridgeMetrics()
    state, assigned = KafkaState(catalog, metrics), Parts()
    state.ends = {("orders", 0): 12, ("orders.retry.5m", 0): 20_003}
    given: Any = assigned
    state.show_lag(given)
    shown = {
        (family.name, sample.labels["topic"]): sample.value
        for family in metrics.registry.collect()
        if family.name in ("bridge_lag_records", "bridge_parked_records")
        for sample in family.samples
    }
    assert shown == {("bridge_lag_records", "orders"): 10, ("bridge_parked_records", "orders"): 20_000}


def test_what_is_due_of_a_halted_handler_is_not_late_and_of_the_others_it_is():
    catalog: Any = Catalog()
    catalog.belonging = lambda topic: None
    metrics = BridgeMetrics()
    late_by_handler = {"h": 900.0, "g": 90.0}
    retries = SimpleNamespace(
        source="orders",
        topic="orders.retry.5m",
        measure_late=lambda halted: max(late_by_handler[name] for name in late_by_handler.keys() - halted),
    )
    assigned: Any = SimpleNamespace(low={}, parked=[retries], busy_parked=[retries])
    late = []
    for halted in (set(), {("orders", "h")}, {("mail", "h")}):
        KafkaState(catalog, metrics).show_lag(assigned, HaltedHandlers(frozenset(halted)))
        late.append(
            metrics.registry.get_sample_value(
                "bridge_parked_late_seconds", {"topic": "orders", "tier": "orders.retry.5m"}
            )
        )
    assert late == [900.0, 90.0, 900.0]


def test_kafka_is_not_asked_about_quiet_partitions_but_about_one_if_there_are_no_others():
    asked: list[set[tuple[str, int]]] = []
    catalog: Any = Catalog()
    catalog.complete, catalog.missing = True, ()
    catalog.belonging = lambda topic: None if topic == "orders" else DerivedTopic("retry", "orders", 300)
    catalog.ask_topics = catalog.ask_ids = lambda *_: None
    catalog.ask_ends = lambda places: asked.append({(each.topic, each.partition) for each in places})
    catalog.ask_offsets = lambda places: asked.append({*places})
    retry = [("orders.retry.5m", number) for number in range(3)]
    state = KafkaState(catalog, BridgeMetrics())
    state.ask_ends([("orders", 0), *retry], {retry[0]: 7, retry[2]: 9})
    assert asked == [{("orders", 0), retry[1]}, {retry[1]}]
    assert state.ends == {retry[0]: 7, retry[2]: 9}
    asked.clear()
    state.ask_ends(retry, dict.fromkeys(retry, 7))
    assert asked == [{retry[0]}, {retry[0]}]


def test_what_hundreds_of_partitions_are_behind_is_shown_once_for_all_that_begin_together():
    looked_at: list[str] = []
    catalog: Any = Catalog()
    catalog.belonging = looked_at.append
    state, assigned = KafkaState(catalog, BridgeMetrics()), Parts()
    given: Any = assigned
    given.low = {("orders", number): 0 for number in range(500)}
    for place in given.low:
        state.note_end(place, 7)
    for _ in range(3):
        state.take_answers(given)
    assert looked_at == ["orders"]


def test_a_transaction_that_stays_open_is_said_once_and_names_the_offset(caplog: pytest.LogCaptureFixture):
    now, here, other = [0.0], ("orders", 0), ("orders", 1)
    stable: dict[Any, int] = {}
    asked: list[Any] = []
    asking = SimpleNamespace(take_answer=lambda: stable, ask_offsets=lambda places: asked.append(sorted(places)))
    catalog: Any = SimpleNamespace(asking_stable=lambda: asking)
    hanging = TransactionWatch(catalog, lambda: now[0])
    for _ in range(30):
        # Of the other one something is read now and then, and Kafka has told of it at the wrong moment.
        hanging.poll({here: (4, 9), other: (int(now[0]), 500)})
        stable.update({here: 4, other: int(now[0])} if asked[-1] else {})
        now[0] += 5
    assert asked[0] == []
    assert asked[-1] == [here]
    (said,) = caplog.messages
    assert said.startswith("orders-0: nothing was read for")
    assert "Kafka has 5 more records: the transaction that began at offset 4 is still open" in said
    assert [(each.partition, each.offset, each.records) for each in hanging.found.values()] == [(0, 4, 5)]
    assert time.time() - hanging.found[here].since == pytest.approx(now[0] - 5, abs=30)
    # Once something was read it holds back nothing.
    hanging.poll({here: (9, 12)})
    assert hanging.found == {}
    # What a slow reader has before it is held back by nobody.
    stable[here] = 9
    hanging = TransactionWatch(catalog, lambda: now[0])
    for _ in range(30):
        hanging.poll({here: (4, 9)})
        now[0] += 5
    assert len(caplog.messages) == 1


def test_an_error_that_comes_at_each_try_is_logged_once_a_minute(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
):
    catalog: Any = Catalog()
    state = KafkaState(catalog, BridgeMetrics())
    for number in (0, 1, 0, 1):
        state.note_error(KafkaError(KafkaError.UNKNOWN_TOPIC_OR_PART, f"orders [{number}]: topic does not exist"))
    assert caplog.messages == [f"Kafka: orders [{number}]: topic does not exist" for number in (0, 1)]
    now = time.monotonic()
    monkeypatch.setattr(time, "monotonic", lambda: now + LOGGED_FOR)
    state.note_error(KafkaError(KafkaError.UNKNOWN_TOPIC_OR_PART, "orders [0]: topic does not exist"))
    assert len(caplog.messages) == 3
