"""How long the poll loop waits for the next parked record, by the clock by which that becomes due."""

import time
from types import SimpleNamespace
from typing import Any

import pytest

from bridge.consumer.poll_loop import PollLoop


@pytest.mark.parametrize("skew", [-30.0, 0.0, 30.0])
def test_the_wait_for_a_parked_record_is_measured_by_the_clock_of_redis(skew: float):
    """By its own clock a bridge that is ahead of Redis would poll without a pause until the record is due."""

    def now() -> float:
        return time.time() + skew

    parked = SimpleNamespace(ripe=False, next_due=now() + 0.5)
    loop: Any = SimpleNamespace(
        _assignment=SimpleNamespace(busy_parked=[parked]),
        _retry_time=SimpleNamespace(left=0.0),
        _dispatch=SimpleNamespace(holds=False),
        _buffer=(),
        _now=now,
    )
    assert PollLoop._until_due(loop, 1.0) == pytest.approx(0.5, abs=0.1)
