"""The outcome of a call of a bulk handler for each of its messages: done, failed, or run again (pure)."""

from collections.abc import Mapping, Sequence, Set
from typing import NamedTuple

from celery.exceptions import Ignore, Reject

from bridge.errors import AlreadySettled
from tasks.errors import RetryAsked, RetryLater, StopConsuming
from tasks.policy.failure_decision import FailureDecision, HaltTopic, RetryDelivery


class BulkOutcome(NamedTuple):
    """The outcome of one call; messages are known by their positions.

    Attributes:
        done: those whose work is done.
        failed: the errors of those that failed, each by itself.
        again: the calls that follow.
        carried: the errors of those that have failed, and are settled after the messages before them have ended.
    """

    done: Sequence[int] = ()
    failed: Mapping[int, BaseException] = {}
    again: Sequence[Sequence[int]] = ()
    carried: Mapping[int, BaseException] = {}


def asks_for_all(error: BaseException) -> bool:
    """Return whether a handler asks by an error for something for all messages of the call, but those blamed."""
    if isinstance(error, Reject):
        return bool(vars(error)["requeue"])
    return isinstance(error, RetryLater | RetryAsked | StopConsuming | Ignore)


def concerns_all(error: BaseException, decision: FailureDecision, *, blames: bool = False) -> bool:
    """Return whether an error is about all messages of the call, so that no culprit is searched for.

    Parameters:
        decision: on the first message of the call: a topic that the policy halts and an open circuit breaker keep all.
        blames: whether the handler has blamed messages, which explain an error that asks for nothing.
    """
    if asks_for_all(error):
        return True
    keeps_all = isinstance(decision, HaltTopic) or (isinstance(decision, RetryDelivery) and not decision.spent)
    return keeps_all and not blames


def read_bulk_outcome(
    count: int,
    error: BaseException | None,
    *,
    set_aside: Mapping[int, BaseException] | None = None,
    blamed: Mapping[int, BaseException] | None = None,
    committed: Set[int] = frozenset(),
    of_all: bool = False,
    ordered: bool = False,
) -> BulkOutcome:
    """Return the outcome of a call for each of its messages.

    An error without blame splits the messages in two halves, until the culprit is alone. An error with blame is
    explained by that: the others run again together.

    Parameters:
        count: how many messages there are.
        error: what the handler raised.
        set_aside: the errors of messages that the handler was not given.
        blamed: the errors of those that it has failed or put off.
        committed: those whose work an earlier run has committed.
        of_all: whether the error is about all messages.
        ordered: whether a message is settled after those before it.
    """
    set_aside, blamed = set_aside or {}, blamed or {}
    given = count - len(set_aside)
    rest = [position for position in range(count) if position not in blamed and position not in committed]
    open_ones = [position for position in rest if position not in set_aside]
    if error is None or (isinstance(error, AlreadySettled) and given == 1):
        return BulkOutcome((*sorted(committed), *open_ones), {**set_aside, **blamed})
    done = sorted(committed)
    if of_all or given == 1:
        return BulkOutcome(done, {**set_aside, **blamed, **dict.fromkeys(open_ones, error)})
    if blamed and ordered:
        return BulkOutcome(done, again=[sorted({*rest, *blamed})], carried=blamed)
    if blamed or committed:
        return BulkOutcome(done, blamed, [rest] if rest else [])
    middle = len(rest) // 2
    return BulkOutcome(again=[rest[:middle], rest[middle:]])
