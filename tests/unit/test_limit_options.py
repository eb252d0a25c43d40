"""`Limit`: its numbers, its keys, and how they are changed at run time."""

import logging
from typing import Any, NamedTuple
from uuid import UUID

import pytest

from bridge.backpressure.pause_applier import find_suspended_partitions
from bridge.dispatch.suspended_handlers import NO_HANDLERS, SuspendedHandlers
from bridge.formats.delivery import Message
from bridge.formats.pause_reasons import PauseReason
from bridge.handler_routes import Handler
from bridge.jobs.limit_backlog import find_full_limits
from bridge.ledger.limit_state import LANES, LimitStatus, LimitTerms, find_lane, read_limit_status
from tasks import DeadLetter, HandlerError, Limit, handler
from tasks.policy import effective_decisions
from tasks.policy.effective_decisions import find_effective_limit

MESSAGE = Message("orders", 0, 7, key=b"4711")


def test_a_burst_is_a_second_of_starts_unless_it_is_given():
    assert Limit("bank", per_second=50).terms == LimitTerms(50, 50, None)
    assert Limit("bank", per_second=0.2).terms == LimitTerms(0.2, 1, None)
    assert Limit("bank", per_second=50, burst=100, concurrency=20).terms == LimitTerms(50, 100, 20)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({}, "limits nothing: give it per_second, concurrency, or both"),
        ({"burst": 2, "concurrency": 2}, "burst says how far per_second may be exceeded for a moment"),
        ({"per_second": 0}, "per_second takes a number from 0.001 to 100,000; it was given 0"),
        ({"per_second": "50"}, "per_second takes a number"),
        ({"per_second": float("nan")}, "per_second takes a number"),
        ({"concurrency": 2.5}, "concurrency takes a whole number from 1 to 10,000"),
        ({"concurrency": True}, "concurrency takes a whole number"),
        ({"per_second": 1, "by": "key"}, "by takes a function of the message that returns its key"),
        ({"per_second": 1, "by": lambda: None}, "is called with the message alone"),
    ],
)
def test_what_limits_nothing_or_is_out_of_range_is_refused(options: dict[str, Any], said: str):
    with pytest.raises(HandlerError, match=said):
        Limit("bank", **options)


@pytest.mark.parametrize("name", ["", "a bank", None, "x" * 101])
def test_its_name_is_short_and_plain(name: Any):
    with pytest.raises(HandlerError, match="Limit takes a name"):
        Limit(name, per_second=1)


@pytest.mark.parametrize(
    ("found", "key"),
    [("a", b"a"), (b"a", b"a"), (7, b"7"), (None, None), (UUID(int=1), str(UUID(int=1)).encode())],
)
def test_a_key_is_text_bytes_a_number_or_a_uuid(found: Any, key: bytes | None):
    assert Limit("bank", per_second=1, by=lambda message: found).find_key(MESSAGE) == key


def test_what_is_no_key_is_a_dead_letter():
    unfit: Any = ["a"]
    with pytest.raises(DeadLetter, match=r"by returned a list for orders-0-7: a key is a text"):
        Limit("bank", per_second=1, by=lambda message: unfit).find_key(MESSAGE)


def test_handlers_that_share_a_limit_have_the_same_numbers():
    @handler("orders", name="unit.limited_charge", limit=Limit("shared", per_second=5))
    def charge(order: Any) -> None: ...

    with pytest.raises(HandlerError, match="has other numbers at another handler"):

        @handler("orders", name="unit.limited_refund", limit=Limit("shared", per_second=6))
        def refund(order: Any) -> None: ...


@pytest.mark.parametrize(
    ("options", "said"),
    [({"limit": 5}, "limit takes a Limit"), ({"limit": Limit("bulky", per_second=5), "bulk": 5}, "leave one out")],
)
def test_what_a_handler_cannot_limit_is_refused(options: Any, said: str):
    with pytest.raises(HandlerError, match=said):

        @handler("orders", name="unit.limited_wrongly", **options)
        def charge(orders: list[Any]) -> None: ...


def test_handlers_and_their_keys_are_lanes():
    assert find_lane("a", None) != find_lane("b", None)
    assert len({find_lane("a", b"%d" % number) for number in range(100)}) > 95
    assert all(0 <= find_lane("a", b"%d" % number) < LANES for number in range(1_000))


def test_its_numbers_are_changed_as_they_are_written():
    changing = Limit("bank", per_second=50, concurrency=20).changing
    assert changing.name == "limit:bank"
    assert changing.policy(changing.read(["per_second=20", "concurrency=none"])) == LimitTerms(20, 20, None)
    assert changing.policy(changing.read(["per_second=none"])) == LimitTerms(None, 1, 20)
    assert changing.shown(changing.policy({"burst": 5})) == {"per_second": 50, "burst": 5, "concurrency": 20}


@pytest.mark.parametrize(
    ("word", "said"),
    [
        ("max_retries=3", "a limit has no option 'max_retries': there are per_second, burst, concurrency"),
        ("burst", "burst to what"),
        ("burst=many", "burst takes a whole number, or none; it was given 'many'"),
    ],
)
def test_what_cannot_be_changed_is_refused(word: str, said: str):
    with pytest.raises(HandlerError, match=said):
        Limit("bank", per_second=50).changing.read([word])


def test_nobody_takes_away_all_that_it_limits():
    with pytest.raises(HandlerError, match="limits nothing"):
        Limit("bank", per_second=50).changing.policy({"per_second": None})


class Decided:
    """What a person has decided for the group."""

    data: Any = None

    def policy(self, name: str) -> Any:
        assert name == "limit:worth"
        return self.data


def test_the_numbers_in_force_are_the_changed_ones_until_they_are_taken_back(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
):
    caplog.set_level(logging.INFO)
    limit, decided = Limit("worth", per_second=50), Decided()
    task: Any = type("Task", (), {"app": None})()
    monkeypatch.setattr(effective_decisions.DecisionCache, "get_cache", lambda app, group: decided)
    assert find_effective_limit(task, limit, "g").per_second == 50
    decided.data = {"set": {"per_second": {"value": 5, "by": "ann", "at": 1_800_000_000.0, "why": "they ask"}}}
    monkeypatch.setattr(effective_decisions, "read_option_values", lambda data: {"per_second": 5})
    monkeypatch.setattr(effective_decisions, "summarize_policy_changes", lambda data: "changed by ann")
    assert find_effective_limit(task, limit, "g").per_second == 5
    monkeypatch.setattr(effective_decisions, "read_option_values", lambda data: {"per_second": -5})
    decided.data = dict(decided.data)
    assert find_effective_limit(task, limit, "g").per_second == 50
    assert "bridge policy unset limit:worth" in caplog.text
    decided.data = None
    assert find_effective_limit(task, limit, "g").per_second == 50


def test_handlers_are_suspended_while_as_much_waits_as_may():
    known = {"bank": LimitStatus(waiting=100, wait=9), "mail": LimitStatus(waiting=101, wait=9)}
    assert find_full_limits(known, NO_HANDLERS, 100) == {"mail"}
    known = {"bank": LimitStatus(waiting=76, wait=9), "mail": LimitStatus(waiting=75, wait=9)}
    assert find_full_limits(known, frozenset({"bank", "mail"}), 100) == {"bank"}


def test_a_fast_limit_always_has_seconds_of_starts_in_front():
    assert find_full_limits({"bank": LimitStatus(waiting=100_000, wait=4.0)}, NO_HANDLERS, 100) == NO_HANDLERS


def test_a_partition_says_that_a_limit_stops_it_and_no_dependency():
    class Partition(NamedTuple):
        place: tuple[str, int]
        handlers: tuple[Handler, ...]

    charge, mail = (Handler(name, ("orders",), "q", 1, 1) for name in ("charge", "mail"))
    partition = Partition(("orders", 0), (charge,))
    full = frozenset({"charge"})
    by_limit = SuspendedHandlers(full, full, full, limited=full)
    assert find_suspended_partitions([partition], by_limit) == {("orders", 0): PauseReason.LIMIT_FULL}
    beside = partition._replace(handlers=(charge, mail))
    assert find_suspended_partitions([beside], by_limit, {("orders", 0)}) == {("orders", 0): PauseReason.LIMIT_FULL}


def test_a_state_that_another_program_wrote_counts_as_nothing():
    assert read_limit_status([b"x", None, None, None], 3, 1) == LimitStatus(running=3, lanes=1)
