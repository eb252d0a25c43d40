"""The location of a delivery, in words."""

from typing import Any

from bridge.dispatch.carrier_message import CarrierMessage
from bridge.formats.delivery import Attempts
from bridge.inspection.delivery_trace import DeliveryLocator
from bridge.ledger import Fate

WHICH = (0, 7, "orders.handlers.charge")
ASIDE = CarrierMessage("shop", "aside", None, Attempts(), 0, "")


def where(fate: Fate, **known: Any) -> str:
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
    return str(DeliveryLocator(**{**given, **known}).locate(WHICH, fate)["where"])


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
