"""The location of a delivery, in words."""

from types import SimpleNamespace
from typing import Any

import pytest

from bridge.dispatch.carrier_message import CarrierMessage, DeliveryKey
from bridge.formats.dead_letter_record import DeadLetterSummary
from bridge.formats.delivery import Attempts
from bridge.formats.group_decision import append_decision, make_decision_entry, set_policy_options
from bridge.formats.halt_scope import HaltScope
from bridge.inspection.dead_holds import find_dead_holds, find_order_lanes
from bridge.inspection.delivery_trace import DeliveryLocator
from bridge.inspection.record_search import _delivery, find_halted_deliveries
from bridge.ledger import Fate
from bridge.settings import TopicSettings

WHICH = (0, 7, "orders.handlers.charge")
ASIDE = CarrierMessage("shop", "aside", None, Attempts(), 0, "")


def locator(**known: Any) -> DeliveryLocator:
    given = {
        "topic": "orders",
        "dead_letters": "orders.dlq",
        "again": 600.0,
        "since": {},
        "before": (),
        "forgotten": (),
        "halted": False,
        "carriers": {},
        "silent": None,
        "letters": {},
        "parked": {},
        "queues": {WHICH[2]: "shop"},
    }
    return DeliveryLocator(**{**given, **known})


def where(fate: Fate, **known: Any) -> str:
    return str(locator(**known).locate(WHICH, fate)["where"])


def test_what_was_handed_off_before_a_wipe_is_forgotten_and_not_from_before_its_handler_joined():
    assert where(Fate.OPEN) == "orders-0, not handed off"
    assert where(Fate.OPEN, before=[WHICH]) == "orders-0, before this handler joined"
    wiped = where(Fate.OPEN, before=[WHICH], forgotten=[WHICH])
    assert "forgotten" in wiped
    assert "joined" not in wiped


def test_what_a_halt_keeps_back_waits_for_its_topic_and_not_for_what_it_needs():
    assert "until its dependency works again" in where(Fate.HANDED, carriers={WHICH: ASIDE})
    halted = where(Fate.HANDED, carriers={WHICH: ASIDE}, halted=True)
    assert halted == "queue shop, set aside until the topic is resumed (bridge resume orders)"


@pytest.mark.parametrize(
    ("fate", "failed_at", "told"),
    [(Fate.OPEN, 0.0, True), (Fate.DEAD, 7.0, True), (Fate.DEAD, 3.0, False), (Fate.DONE, 0.0, False)],
)
def test_a_change_of_the_policy_is_told_of_a_delivery_unless_that_had_ended_before(
    fate: Fate, failed_at: float, told: bool
):
    """Nobody knows when one was done: no change is held to be older."""
    whose: Any = None
    letter = DeadLetterSummary("orders.dlq-0-1", "orders", whose, "bridge", 1, None, "failed", "", failed_at)
    traced: Any = SimpleNamespace(fates={WHICH: fate}, ran={})
    policies = {WHICH[2]: set_policy_options(None, {"max_retries": 20}, "ann", 5.0, "the bank is slow")}
    found = _delivery(locator(letters={WHICH: letter}), traced, policies, {}, WHICH)
    assert found["policy"] == ("changed by ann at 1970-01-01T00:00:05+00:00" if told else None)


def test_what_a_halted_handler_or_key_keeps_back_says_what_to_resume():
    held = where(Fate.HANDED, carriers={WHICH: ASIDE}, held={WHICH: "its key is resumed (bridge status)"})
    assert held == "queue shop, set aside until its key is resumed (bridge status)"


def test_a_dead_delivery_that_was_sent_back_says_where_its_replay_is():
    held: Any = SimpleNamespace(delivery=SimpleNamespace(error="", attempts=Attempts(), due=None), failed_at=0, due=0)
    record: Any = SimpleNamespace(place=("orders.replay", 0), offset=4, fate=Fate.OPEN)
    assert where(Fate.DEAD, parked={WHICH: (record, held)}) == "orders.dlq; sent back: orders.replay-0-4"
    record.fate = Fate.HANDED
    known = {"parked": {WHICH: (record, held)}, "carriers": {WHICH: ASIDE}, "held": {WHICH: "its key is resumed"}}
    assert where(Fate.DEAD, **known) == (
        "orders.dlq; sent back: queue shop, set aside until its key is resumed (by orders.replay-0-4)"
    )


def letter_of(which: DeliveryKey, key: bytes | None) -> DeadLetterSummary:
    whose: Any = which
    return DeadLetterSummary(f"orders.dlq-0-{which[1]}", "orders", whose, "bridge", 1, None, "failed", "", 0.0, key)


@pytest.mark.parametrize(("order", "held"), [("key", {5: 2}), ("partition", {4: 2, 5: 2, 6: 2})])
def test_what_waits_behind_a_dead_delivery_in_its_order_names_the_first(order: Any, held: dict[int, int]):
    chosen = TopicSettings(commit="completion", order=order, after_dead="hold")
    keys = {(0, 1): b"a", (0, 4): b"b", (0, 5): b"a", (0, 6): None, (0, 7): b"a"}
    fates = {(*place, "charge"): Fate.DONE if place[1] == 7 else Fate.OPEN for place in keys}
    traced: Any = SimpleNamespace(fates=fates, before=(), forgotten=())
    dead = {(0, offset, "charge"): letter_of((0, offset, "charge"), b"a") for offset in (2, 3)}
    lanes = find_order_lanes(chosen, traced, keys)
    assert find_dead_holds(lanes, dead, chosen, "orders") == {
        (0, offset, "charge"): {"record": f"orders-0-{first}", "letter": f"orders.dlq-0-{first}"}
        for offset, first in held.items()
    }
    assert find_order_lanes(chosen.model_copy(update={"after_dead": "continue"}), traced, keys) == {}


def test_of_a_halted_key_only_its_own_deliveries_are_held_and_none_that_has_ended():
    charge, mail, audit = (
        HaltScope("orders", "charge", "4711"),
        HaltScope("orders", "mail"),
        HaltScope("orders", "audit"),
    )
    halts = [charge, mail, mail._replace(key="4711"), HaltScope("other", "charge"), audit]
    decided = {
        each.decision_key: append_decision(each.decision_key, None, make_decision_entry({}, "ann", 1.0, "why"))
        for each in halts
    }
    fates = {
        (0, offset, name): Fate.DONE if name == "audit" else Fate.HANDED
        for offset in (1, 2, 3)
        for name in ("charge", "mail", "audit")
    }
    fates[0, 3, "audit"] = Fate.DEAD
    traced: Any = SimpleNamespace(decided=decided, fates=fates, parked={(0, 3, "audit"): "its replay"})
    found = find_halted_deliveries(traced, "orders", {(0, 1): b"4711", (0, 2): b"4712", (0, 3): None})
    assert {which: scope for which, (scope, _) in found.items()} == {
        (0, 1, "charge"): charge,
        **{(0, offset, "mail"): mail for offset in (1, 2, 3)},
        (0, 3, "audit"): audit,
    }
