"""What an exception reported to the main process stands for."""

import pytest
from billiard.exceptions import SoftTimeLimitExceeded, TimeLimitExceeded, WorkerLostError
from celery.exceptions import Ignore, Reject, Retry
from hypothesis import given
from hypothesis import strategies as st
from kombu.exceptions import EncodeError, OperationalError

from lossless.worker.ending import REQUEUE_PAUSES, Ending, ending_of, pause_after
from lossless.worker.request import LOST_LIMIT, LOST_PAUSES

AWAY = OperationalError("away")

# error, returned, internal, ending
CASES = [
    (Retry(), True, False, Ending.SETTLED),
    (Ignore(), True, True, Ending.SETTLED),
    (ValueError(), True, False, Ending.SETTLED),
    (MemoryError(), True, False, Ending.SETTLED),
    (SoftTimeLimitExceeded(), True, False, Ending.SETTLED),
    (Reject("no", requeue=False), True, True, Ending.REJECTED),
    (Reject("no", requeue=True), True, True, Ending.REQUEUED),
    (Reject("no", requeue=True), False, False, Ending.REQUEUED),
    (Reject(AWAY, requeue=False), True, True, Ending.REQUEUED),
    (Reject(ConnectionError(), requeue=False), True, True, Ending.REQUEUED),
    (Reject(EncodeError(), requeue=False), True, True, Ending.REJECTED),
    (ValueError(), False, False, Ending.FAILED),
    (ValueError(), True, True, Ending.FAILED),
    (SoftTimeLimitExceeded(), False, False, Ending.FAILED),
    (WorkerLostError(), False, False, Ending.LOST),
    (TimeLimitExceeded(1), False, False, Ending.LOST),
    (MemoryError(), False, False, Ending.LOST),
    (MemoryError(), True, True, Ending.LOST),
    (SystemExit(1), False, False, Ending.LOST),
    (KeyboardInterrupt(), False, False, Ending.LOST),
    (GeneratorExit(), False, False, Ending.LOST),
]


@pytest.mark.parametrize(("error", "returned", "internal", "ending"), CASES, ids=repr)
def test_an_error_stands_for_an_ending(error, returned, internal, ending):
    assert ending_of(error, returned=returned, internal=internal) is ending


@given(st.integers(), st.lists(st.floats(0, 100), min_size=1).map(sorted))
def test_pauses_never_shrink_and_the_last_goes_on(times, pauses):
    assert pause_after(times, pauses) <= pause_after(times + 1, pauses) <= pauses[-1]
    assert pause_after(len(pauses) + abs(times), pauses) == pauses[-1]


def test_poison_is_found_within_half_a_minute_by_default():
    assert LOST_LIMIT == 3
    assert sum(pause_after(lost, LOST_PAUSES) for lost in range(1, LOST_LIMIT)) == 6


def test_a_message_that_is_put_back_for_ever_is_tried_once_a_minute():
    assert [pause_after(times, REQUEUE_PAUSES) for times in (1, 2, 7, 1000)] == [1, 2, 60, 60]
