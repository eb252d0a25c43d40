"""Which handlers' deliveries a bridge keeps in Kafka while what they need is down."""

from types import SimpleNamespace
from typing import Any

import pytest

from bridge.backpressure.pause_applier import find_suspended_partitions
from bridge.dispatch.dispatcher import SuspendedHandlers
from bridge.formats.pause_reasons import PauseReason
from bridge.jobs.dependency_gates import must_wait
from bridge.ledger.breaker_state import BreakerStatus


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
    assert must_wait(BreakerStatus(state=state, allowed=allowed), aside) is held


def test_a_partition_is_paused_when_none_of_its_handlers_may_run():
    def partition(number: int, *handlers: str) -> Any:
        return SimpleNamespace(place=("orders", number), handlers=[SimpleNamespace(name=name) for name in handlers])

    both, one, none = partition(0, "charge", "refund"), partition(1, "charge", "notify"), partition(2)
    down = SuspendedHandlers(frozenset({"charge", "refund"}))
    assert find_suspended_partitions([both, one, none], down) == {("orders", 0): PauseReason.DEPENDENCIES_DOWN}
    assert find_suspended_partitions([both, one, none], SuspendedHandlers()) == {}
    full = SuspendedHandlers(down.down, frozenset({"charge"}))
    pressed = {("orders", 0), ("orders", 1)}
    # It says why it pauses: not that "the queue has enough".
    assert find_suspended_partitions([both, one, none], full, pressed) == {
        ("orders", 0): PauseReason.DEPENDENCIES_DOWN,
        ("orders", 1): PauseReason.SOME_DEPENDENCIES_DOWN,
    }
    assert find_suspended_partitions([both, one, none], full) == {("orders", 0): PauseReason.DEPENDENCIES_DOWN}


def test_where_others_go_on_what_waits_is_handed_off_until_as_much_waits_as_may():
    charge, notify, refund = [SimpleNamespace(name=name) for name in ("charge", "notify", "refund")]
    kept = SuspendedHandlers(frozenset({"charge", "refund"}), frozenset({"refund"}))
    some: list[Any] = [charge, notify, refund]
    assert kept.find_suspended(some) == {"refund"}
    assert kept.find_suspended(some[:2]) == frozenset()
    assert kept.find_suspended(some[::2]) == {"charge", "refund"}
    assert kept.find_suspended(some[:1]) == {"charge"}
    assert kept.find_suspended([]) == frozenset()
