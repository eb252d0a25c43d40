"""Which handlers' deliveries a bridge keeps in Kafka while what they need is down."""

from types import SimpleNamespace
from typing import Any

import pytest

from bridge.backpressure.pause_applier import find_suspended_partitions
from bridge.dispatch.suspended_handlers import HaltedHandlers, SuspendedHandlers, find_halted_handlers
from bridge.formats.halt_scope import HaltScope
from bridge.formats.pause_reasons import PauseReason
from bridge.jobs.dependency_gates import must_wait
from bridge.ledger.breaker_state import BreakerStatus
from lossless.transport.message_gates import AsideSize


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


MOST = AsideSize(9, 100)
CHARGE, NOTIFY = HaltScope("orders", "charge"), HaltScope("orders", "notify")


def test_a_halted_handler_is_suspended_on_its_topic_alone():
    charge, notify = [SimpleNamespace(name=name) for name in ("charge", "notify")]
    some: list[Any] = [charge, notify]
    halted = SuspendedHandlers(by_halt=HaltedHandlers(frozenset({("orders", "charge")})))
    # Others of the partition go on, so that its deliveries wait at their gate.
    assert halted.find_suspended(some, "orders") == frozenset()
    assert halted.find_suspended(some[:1], "orders") == {"charge"}
    assert halted.find_suspended(some[:1], "mail") == frozenset()
    assert halted.find_parked("orders") == {"charge"}
    assert halted.find_parked("mail") == frozenset()
    full = SuspendedHandlers(by_halt=HaltedHandlers(full=frozenset({("orders", "charge")})))
    assert full.find_suspended(some, "orders") == {"charge"}
    # One waits for its dependency, the other for a person.
    both = halted._replace(down=frozenset({"notify"}))
    assert both.find_suspended(some, "orders") == {"charge", "notify"}


def test_a_partition_whose_handlers_are_halted_is_paused_for_that_reason():
    names = [SimpleNamespace(name=name) for name in ("charge", "notify")]
    orders: Any = SimpleNamespace(place=("orders", 0), handlers=names)
    mail: Any = SimpleNamespace(place=("mail", 0), handlers=names)
    every = SuspendedHandlers(by_halt=HaltedHandlers(frozenset({("orders", "charge"), ("orders", "notify")})))
    assert find_suspended_partitions([orders, mail], every) == {("orders", 0): PauseReason.HALTED}
    full = SuspendedHandlers(by_halt=find_halted_handlers({CHARGE: AsideSize(9)}, MOST))
    assert find_suspended_partitions([orders, mail], full, {("orders", 0)}) == {("orders", 0): PauseReason.SOME_HALTED}
    assert find_suspended_partitions([orders, mail], full) == {}


def test_as_many_messages_wait_for_a_handler_and_its_keys_as_may():
    key, another = HaltScope("orders", "charge", "1"), HaltScope("orders", "charge", "2")
    charge = ("orders", "charge")
    two = frozenset({charge, ("orders", "notify")})
    assert find_halted_handlers({CHARGE: AsideSize(2), NOTIFY: AsideSize()}, MOST) == HaltedHandlers(two)
    assert find_halted_handlers({key: AsideSize(4), another: AsideSize(4)}, MOST) == HaltedHandlers()
    assert find_halted_handlers({key: AsideSize(8), another: AsideSize(1)}, MOST) == HaltedHandlers(
        full=frozenset({charge})
    )
    assert find_halted_handlers({key: AsideSize(1, 60), another: AsideSize(1, 40)}, MOST).full == {charge}


def test_without_gates_nothing_of_a_halted_handler_goes_out_and_a_halted_key_holds_nothing_up():
    assert find_halted_handlers({CHARGE: None}, MOST).full == {("orders", "charge")}
    assert find_halted_handlers({HaltScope("orders", "charge", "1"): None}, MOST) == HaltedHandlers()
