"""Which handlers' deliveries a bridge keeps in Kafka while what they need is down."""

from types import SimpleNamespace
from typing import Any

import pytest

from bridge.ledger.breakers import Known
from bridge.pauses import needs
from bridge.upkeep.needs import waits


@pytest.mark.parametrize(
    ("state", "allowed", "aside", "held"),
    [
        ("closed", 0, 5, False),
        ("ramping", 9, 5, False),
        ("open", 0, 5, True),
        ("open", 1, 5, True),
        ("probing", 0, 0, True),
        # Something must be there to try it with.
        ("open", 0, 0, False),
        ("open", 1, 0, False),
        # A broker without gates: workers put off what they may not run.
        ("open", 0, None, True),
        ("open", 1, None, False),
        ("probing", 0, None, True),
    ],
)
def test_nothing_is_handed_off_while_something_waits_for_it_already(
    state: Any, allowed: int, aside: int | None, held: bool
):
    assert waits(Known(state=state, allowed=allowed), aside) is held


def test_a_partition_is_paused_when_none_of_its_handlers_may_run():
    def partition(number: int, *handlers: str) -> Any:
        return SimpleNamespace(place=("orders", number), handlers=[SimpleNamespace(name=name) for name in handlers])

    both, one, none = partition(0, "charge", "refund"), partition(1, "charge", "notify"), partition(2)
    assert needs.pauses([both, one, none], {"charge", "refund"}) == {("orders", 0): needs.NEEDS}
    assert needs.pauses([both, one, none], frozenset()) == {}
