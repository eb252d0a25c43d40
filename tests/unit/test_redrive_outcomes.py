"""How what a redrive has sent ends, as the ledger and the desk tell."""

import pytest

from bridge.deadletters.model.bulk_plan import (
    BulkPlan,
    PlanCounts,
    PlanItemState,
    PlanKind,
    PlanOptions,
    PlanState,
)
from bridge.deadletters.replay.copy_action import mark_copy
from bridge.deadletters.replay.redrive_action import find_redriven_delivery
from bridge.deadletters.replay.redrive_outcomes import decide_redrive_end
from bridge.formats.delivery_identity import Origin
from bridge.ledger import Fate


@pytest.mark.parametrize("again", [False, True])
@pytest.mark.parametrize(
    ("own", "died", "end"),
    [
        (Fate.DONE, False, PlanItemState.DONE),
        (Fate.DEAD, False, PlanItemState.DEAD),
        (Fate.DISCARDED, False, PlanItemState.DISCARDED),
        (Fate.PARKED, True, PlanItemState.DEAD),
        (Fate.PARKED, False, None),
        (Fate.HANDED, False, None),
        (Fate.OPEN, False, None),
    ],
)
def test_the_fate_of_the_record_by_which_it_was_sent_says_how_it_ended(own, died, end, again):
    assert decide_redrive_end(own, Fate.DEAD, died=died, again=again) is end


@pytest.mark.parametrize("own", [Fate.PARKED, Fate.OPEN, Fate.HANDED])
def test_the_origins_fate_says_it_too_but_not_of_what_was_done_before(own):
    assert decide_redrive_end(own, Fate.DONE, died=False, again=False) is PlanItemState.DONE
    assert decide_redrive_end(own, Fate.DONE, died=False, again=True) is None


def test_a_delivery_is_known_by_its_place_whatever_its_topic_is_called():
    options = PlanOptions(logs={"3": "log"})
    plan = BulkPlan(
        7, PlanKind.REDRIVE, PlanState.DONE, "ann", 0, "", {"topic": "shop-eu.orders"}, options, PlanCounts(), {}
    )
    found = find_redriven_delivery(plan, "bridge", "shop-eu.orders-3-1234:orders.handlers.charge")
    assert found == Origin("shop-eu.orders", "log", 3, 1234, "orders.handlers.charge", "bridge")


def test_a_copy_is_marked_behind_the_producers_own_headers():
    headers = mark_copy([("trace", b"1"), ("copy_of", None)], "orders-3-1:charge", 17, "jürgen@host")
    assert headers[:2] == [("trace", b"1"), ("copy_of", None)]
    assert dict(headers[2:]) == {"copy_of": b"orders-3-1:charge", "copy_at": b"17", "copy_by": b"j\\xfcrgen@host"}
