"""A call of a bulk handler: which of its messages are done, which have failed, and which run again."""

from typing import Any

import pytest
from celery.exceptions import Ignore, Reject
from hypothesis import given
from hypothesis import strategies as st

from bridge.errors import AlreadySettled
from tasks.errors import DeadLetter, RetryAsked, RetryLater, StopConsuming
from tasks.policy.bulk_outcome import BulkOutcome, concerns_all, read_bulk_outcome
from tasks.policy.failure_decision import decide_failure
from tasks.policy.retry_policy import RetryPolicy

AWAY, BAD, FAULT = ConnectionError("away"), DeadLetter("bad"), ValueError("fault")


@pytest.mark.parametrize(
    ("count", "error", "more", "outcome"),
    [
        (3, None, {}, BulkOutcome((0, 1, 2), {})),
        (3, None, {"blamed": {1: BAD}}, BulkOutcome((0, 2), {1: BAD})),
        (3, None, {"blamed": {1: BAD}, "set_aside": {0: FAULT}}, BulkOutcome((2,), {0: FAULT, 1: BAD})),
        (1, AWAY, {}, BulkOutcome([], {0: AWAY})),
        (2, AWAY, {"set_aside": {0: FAULT}}, BulkOutcome([], {0: FAULT, 1: AWAY})),
        (3, AWAY, {}, BulkOutcome(again=[[0], [1, 2]])),
        (4, AWAY, {"set_aside": {0: FAULT}}, BulkOutcome(again=[[0, 1], [2, 3]])),
        (3, AWAY, {"of_all": True}, BulkOutcome([], {0: AWAY, 1: AWAY, 2: AWAY})),
        (3, AWAY, {"of_all": True, "set_aside": {1: FAULT}}, BulkOutcome([], {0: AWAY, 1: FAULT, 2: AWAY})),
        (4, AWAY, {"blamed": {1: BAD}}, BulkOutcome([], {1: BAD}, [[0, 2, 3]])),
        (2, AWAY, {"blamed": {0: BAD, 1: BAD}}, BulkOutcome([], {0: BAD, 1: BAD}, [])),
        (4, AWAY, {"blamed": {1: BAD}, "ordered": True}, BulkOutcome([], again=[[0, 1, 2, 3]], carried={1: BAD})),
        (1, AlreadySettled("x"), {}, BulkOutcome((0,), {})),
        (3, AlreadySettled("x"), {"committed": {1}}, BulkOutcome([1], {}, [[0, 2]])),
        (3, AlreadySettled("x"), {"committed": {0, 1, 2}}, BulkOutcome([0, 1, 2], {}, [])),
        (3, AlreadySettled("x"), {}, BulkOutcome(again=[[0], [1, 2]])),
    ],
)
def test_each_message_is_done_or_failed_or_runs_again(
    count: int, error: Any, more: dict[str, Any], outcome: BulkOutcome
) -> None:
    assert read_bulk_outcome(count, error, **more) == outcome


@pytest.mark.parametrize(
    ("error", "is_of_all"),
    [
        (RetryLater(5), True),
        (RetryAsked(5, None, None), True),
        (StopConsuming("why"), True),
        (Ignore(), True),
        (Reject("x", requeue=True), True),
        (Reject("x"), False),
        (DeadLetter("bad"), False),
        (ConnectionError("away"), False),
    ],
)
def test_an_error_that_asks_for_something_is_about_all_and_any_other_has_a_culprit(
    error: BaseException, is_of_all: bool
) -> None:
    assert concerns_all(error, decide_failure(RetryPolicy(), error, 0)) is is_of_all


def test_an_error_that_asks_for_nothing_is_explained_by_blame_also_if_the_policy_would_halt() -> None:
    halting = decide_failure(RetryPolicy(stop_for=(ConnectionError,)), AWAY, 0)
    assert concerns_all(AWAY, halting)
    assert not concerns_all(AWAY, halting, blames=True)
    assert concerns_all(RetryLater(5), decide_failure(RetryPolicy(), RetryLater(5), 0), blames=True)


@given(st.integers(1, 300), st.sets(st.integers(0, 299), max_size=5), st.booleans(), st.booleans())
def test_only_culprits_fail_and_each_message_ends_once_however_the_handler_tells(
    count: int, culprits: set[int], blames: bool, ordered: bool
) -> None:
    culprits = {place for place in culprits if place < count}
    ends: dict[int, bool] = {}
    carried: dict[int, BaseException] = {}
    parts, calls = [list(range(count))], 0
    while parts:
        part = parts.pop(0)
        aside = {at: carried[place] for at, place in enumerate(part) if place in carried}
        found = [at for at, place in enumerate(part) if place in culprits and at not in aside]
        calls += len(aside) < len(part)
        blamed = {found[0]: BAD} if blames and found else {}
        outcome = read_bulk_outcome(len(part), AWAY if found else None, set_aside=aside, blamed=blamed, ordered=ordered)
        for at in outcome.done:
            assert part[at] not in ends
            ends[part[at]] = True
        for at in outcome.failed:
            assert part[at] not in ends
            ends[part[at]] = False
        carried.update({part[at]: error for at, error in outcome.carried.items()})
        parts[:0] = [[part[at] for at in again] for again in outcome.again]
        if ordered and ends:
            assert sorted(ends) == list(range(len(ends)))
    assert sorted(ends) == list(range(count))
    assert {place for place, is_done in ends.items() if not is_done} == culprits
    assert calls <= 1 + (len(culprits) if blames else 2 * len(culprits) * count.bit_length())
