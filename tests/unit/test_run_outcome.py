"""What an exception reported to the main process stands for."""

import pytest
from billiard.exceptions import SoftTimeLimitExceeded, TimeLimitExceeded, WorkerLostError
from celery.exceptions import Ignore, Reject, Retry
from hypothesis import given
from hypothesis import strategies as st
from kombu.exceptions import EncodeError, OperationalError

from lossless.worker.poison_isolation import LOST_LIMIT, LOST_PAUSES
from lossless.worker.run_outcome import REQUEUE_PAUSES, RunOutcome, decide_outcome, find_pause

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


@given(st.integers(), st.lists(st.floats(0, 100), min_size=1).map(sorted))
def test_pauses_never_shrink_and_the_last_goes_on(times, pauses):
    assert find_pause(times, pauses) <= find_pause(times + 1, pauses) <= pauses[-1]
    assert find_pause(len(pauses) + abs(times), pauses) == pauses[-1]


def test_poison_is_found_within_half_a_minute_by_default():
    assert LOST_LIMIT == 3
    assert sum(find_pause(lost, LOST_PAUSES) for lost in range(1, LOST_LIMIT)) == 6


def test_a_message_that_is_put_back_for_ever_is_tried_once_a_minute():
    assert [find_pause(times, REQUEUE_PAUSES) for times in (1, 2, 7, 1000)] == [1, 2, 60, 60]
