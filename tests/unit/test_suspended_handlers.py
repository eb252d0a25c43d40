"""Which handlers' deliveries a bridge keeps in Kafka while what they need is down."""

from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import Message as Record

from bridge.backpressure.pause_applier import find_suspended_partitions
from bridge.dispatch.suspended_handlers import HaltedHandlers, SuspendedHandlers, find_halted_handlers
from bridge.formats.halt_scope import HaltScope
from bridge.formats.pause_reasons import PauseReason
from bridge.handler_routes import Handler
from bridge.jobs.dependency_gates import must_wait
from bridge.ledger import Fate
from bridge.ledger.breaker_state import BreakerStatus
from bridge.partitions.partition import Partition
from bridge.partitions.partition_limits import WAITING
from bridge.partitions.retry_read_ahead import MOST as MOST_RECORDS
from bridge.settings import DEFAULT_WINDOW, TopicSettings
from lossless.transport.message_gates import AsideSize
from tests.unit.test_retry_partition import CHARGE as RETRIED
from tests.unit.test_retry_partition import World, record


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


def filled(*done: str, size: int, ordered: bool = True, window: int = DEFAULT_WINDOW) -> Partition:
    """A partition of one key whose handlers have been handed what may go out; some are done with it."""
    handlers = [Handler(name, ("orders",), "celery", 1_000, 0) for name in ("charge", "notify")]
    chosen = TopicSettings(commit="completion", order="key" if ordered else None)
    made = Partition("orders", 0, 0, handlers, chosen, "id", window)
    records = [
        Record(topic="orders", partition=0, offset=offset, key=b"k", value=b"v", headers=[], timestamp=(1, 5))
        for offset in range(size)
    ]
    made.receive(records, {name: bytes(size) for name in made.accounts})
    while taken := made.take():
        for group, _ in taken:
            made.note_handed(group.handler, group.offsets)
            if group.handler in done:
                made.take_in_fates(group.handler, group.offsets[0], bytes([Fate.DONE] * len(group.offsets)))
    return made


FILLED = [
    ({"size": WAITING + 1_002}, PauseReason.KEYS_BUSY),
    ({"size": 12, "window": 10}, PauseReason.WINDOW_FULL),
    ({"size": 12, "window": 10, "ordered": False}, PauseReason.WINDOW_FULL),
]


def why_paused(partition: Partition, scope: HaltScope) -> PauseReason | None:
    halted = SuspendedHandlers(by_halt=find_halted_handlers({scope: AsideSize(1)}, MOST))
    return find_suspended_partitions([partition], halted, {partition.place}).get(partition.place)


@pytest.mark.parametrize(("how", "pressure"), FILLED)
def test_a_partition_that_a_halted_handler_fills_says_so_before_as_much_waits_for_it_as_may(
    how: dict[str, Any], pressure: PauseReason
):
    partition = filled("notify", **how)
    assert partition.pressure() == pressure
    assert why_paused(partition, CHARGE) is PauseReason.SOME_HALTED
    assert why_paused(partition, HaltScope("mail", "charge")) is None


@pytest.mark.parametrize(("how", "pressure"), FILLED)
def test_a_partition_that_another_handler_fills_too_does_not_say_that_the_halt_is_the_cause(
    how: dict[str, Any], pressure: PauseReason
):
    for done in ((), ("charge",)):
        partition = filled(*done, **how)
        assert partition.pressure() == pressure
        assert why_paused(partition, CHARGE) is None


@pytest.mark.parametrize(("done", "why"), [("notify", PauseReason.SOME_HALTED), ("charge", None)])
def test_a_partition_with_much_memory_says_whose_records_take_it(done: str, why: PauseReason | None):
    partition = filled(done, size=WAITING)
    assert partition.pressure(share=1_000.0) == PauseReason.MEMORY_FULL
    assert why_paused(partition, CHARGE) is why


@pytest.mark.parametrize(("how", "pressure"), FILLED[:2])
def test_an_ordered_partition_that_a_halted_key_fills_says_so(how: dict[str, Any], pressure: PauseReason):
    partition = filled("notify", **how)
    assert partition.pressure() == pressure
    assert why_paused(partition, HaltScope("orders", "charge", "k")) is PauseReason.SOME_HALTED
    assert why_paused(partition, HaltScope("orders", "charge", "another")) is None


def test_an_unordered_partition_whose_window_may_be_held_by_a_halted_key_does_not_send_anybody_to_a_slow_delivery():
    partition = filled("notify", size=12, window=10, ordered=False)
    assert partition.pressure() == PauseReason.WINDOW_FULL
    assert why_paused(partition, HaltScope("orders", "charge", "k")) is PauseReason.SOME_HALTED
    assert why_paused(partition, HaltScope("orders", "notify", "k")) is None


def test_a_retry_topic_whose_due_records_are_all_of_a_halted_handler_says_so():
    world = World()
    world.receive(*(record(number) for number in range(MOST_RECORDS + 1)))
    assert world.partition.pressure() == PauseReason.SHARE_USED
    assert why_paused(world.partition, HaltScope("orders", RETRIED)) is PauseReason.SOME_HALTED
    assert why_paused(world.partition, CHARGE) is None


def test_as_many_messages_wait_for_a_handler_and_its_keys_as_may():
    key, another = HaltScope("orders", "charge", "1"), HaltScope("orders", "charge", "2")
    charge = ("orders", "charge")
    two = frozenset({charge, ("orders", "notify")})
    assert find_halted_handlers({CHARGE: AsideSize(2), NOTIFY: AsideSize()}, MOST) == HaltedHandlers(two)
    keys = frozenset({(charge, b"1"), (charge, b"2")})
    assert find_halted_handlers({key: AsideSize(4), another: AsideSize(4)}, MOST) == HaltedHandlers(keys=keys)
    assert find_halted_handlers({key: AsideSize(8), another: AsideSize(1)}, MOST) == HaltedHandlers(
        full=frozenset({charge}), keys=keys
    )
    assert find_halted_handlers({key: AsideSize(1, 60), another: AsideSize(1, 40)}, MOST).full == {charge}


def test_without_gates_nothing_of_a_halted_handler_goes_out_and_a_halted_key_holds_nothing_up():
    assert find_halted_handlers({CHARGE: None}, MOST).full == {("orders", "charge")}
    assert find_halted_handlers({HaltScope("orders", "charge", "1"): None}, MOST).full == frozenset()
