"""What an exception reported to the main process stands for."""

import pickle

import pytest
from billiard.einfo import ExceptionWithTraceback  # type: ignore[attr-defined]
from billiard.exceptions import SoftTimeLimitExceeded, TimeLimitExceeded, WorkerLostError
from celery.exceptions import Ignore, Reject, Retry
from hypothesis import given
from hypothesis import strategies as st
from kombu.exceptions import EncodeError, OperationalError

from lossless.worker.poison_isolation import LOST_LIMIT, LOST_PAUSES, find_lost_pause
from lossless.worker.run_outcome import (
    REQUEUE_BACKOFF,
    ComeBack,
    RunOutcome,
    decide_outcome,
    unwrap_exception,
)

AWAY = OperationalError("away")

# error, returned, internal, ending
CASES = [
    (Retry(), True, False, RunOutcome.SETTLED),
    (Ignore(), True, True, RunOutcome.SETTLED),
    (ValueError(), True, False, RunOutcome.SETTLED),
    (MemoryError(), True, False, RunOutcome.SETTLED),
    (SoftTimeLimitExceeded(), True, False, RunOutcome.SETTLED),
    (Reject("no", requeue=False), True, True, RunOutcome.REJECTED),
    (Reject("no", requeue=True), True, True, RunOutcome.REQUEUED),
    (Reject("no", requeue=True), False, False, RunOutcome.REQUEUED),
    (Reject(AWAY, requeue=False), True, True, RunOutcome.REQUEUED),
    (Reject(ConnectionError(), requeue=False), True, True, RunOutcome.REQUEUED),
    (Reject(EncodeError(), requeue=False), True, True, RunOutcome.REJECTED),
    (ValueError(), False, False, RunOutcome.FAILED),
    (ValueError(), True, True, RunOutcome.FAILED),
    (SoftTimeLimitExceeded(), False, False, RunOutcome.FAILED),
    (WorkerLostError(), False, False, RunOutcome.LOST),
    (TimeLimitExceeded(1), False, False, RunOutcome.LOST),
    (MemoryError(), False, False, RunOutcome.LOST),
    (MemoryError(), True, True, RunOutcome.LOST),
    (SystemExit(1), False, False, RunOutcome.LOST),
    (KeyboardInterrupt(), False, False, RunOutcome.LOST),
    (GeneratorExit(), False, False, RunOutcome.LOST),
]


@pytest.mark.parametrize(("error", "returned", "internal", "ending"), CASES, ids=repr)
def test_an_error_stands_for_an_ending(error, returned, internal, ending):
    assert decide_outcome(error, returned=returned, internal=internal) is ending


def test_an_error_that_travels_between_processes_is_found_in_its_wrapper_and_one_without_is_itself():
    class NamedAlike(ValueError):
        exc = KeyError("of its own")

    error = NamedAlike("no")
    assert unwrap_exception(ExceptionWithTraceback(error, None)) is error
    assert unwrap_exception(error) is error


@pytest.mark.parametrize("protocol", range(2, pickle.HIGHEST_PROTOCOL + 1))
def test_a_comeback_keeps_its_headers_and_its_gate_on_its_way_out_of_the_process(protocol: int) -> None:
    sent = ComeBack("why", {"kafka": {"messages": [[1, None, None, "MQ==", None]]}}, "needs", 7.0, True)
    found = pickle.loads(pickle.dumps(sent, protocol))
    assert vars(found) == vars(sent)
    assert (found.reason, found.requeue, found.gate, found.after, found.first) == ("why", True, "needs", 7.0, True)


def test_a_message_that_comes_back_is_the_first_at_its_gate_only_if_its_task_says_so():
    assert not ComeBack("gate shut", {}, "needs").first


@given(st.integers(), st.lists(st.floats(0, 100), min_size=1).map(sorted))
def test_pauses_never_shrink_and_the_last_goes_on(times, pauses):
    assert find_lost_pause(times, pauses) <= find_lost_pause(times + 1, pauses) <= pauses[-1]
    assert find_lost_pause(len(pauses) + abs(times), pauses) == pauses[-1]


def test_poison_is_found_within_half_a_minute_by_default():
    assert LOST_LIMIT == 3
    assert sum(find_lost_pause(lost, LOST_PAUSES) for lost in range(1, LOST_LIMIT)) == 6


def test_a_message_that_is_put_back_for_ever_is_tried_once_a_minute():
    assert [REQUEUE_BACKOFF.compute_pause(times - 1) for times in (1, 2, 7, 1000)] == [1, 2, 60, 60]
