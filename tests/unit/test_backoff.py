"""The backoff and its timer."""

from lossless.backoff import Backoff, RetryTimer


def test_pauses_grow_by_the_factor_up_to_the_longest():
    assert [Backoff(1, 60).compute_pause(failures) for failures in range(8)] == [1, 2, 4, 8, 16, 32, 60, 60]
    assert [Backoff(5, 100, factor=3).compute_pause(failures) for failures in range(4)] == [5, 15, 45, 100]


def test_a_pause_after_very_many_failures_is_the_longest():
    assert Backoff(0.2, 5.0).compute_pause(10**9) == 5.0


def test_a_timer_puts_the_next_try_off_further_with_each_failure_and_starts_anew_after_a_success():
    timer = RetryTimer(Backoff(1, 60))
    assert timer.is_due(0.0)
    timer.note_failure(0.0)
    assert not timer.is_due(0.9)
    assert timer.is_due(1.0)
    timer.note_failure(1.0)
    assert not timer.is_due(2.9)
    timer.reset()
    assert timer.is_due(2.9)
    timer.note_failure(2.9)
    assert timer.is_due(3.9)
