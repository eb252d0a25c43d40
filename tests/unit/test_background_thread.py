"""Background threads, calls and timers."""

import threading

import pytest

from lossless.background_thread import BackgroundThread, start_call, start_thread, start_timer


def test_an_error_that_ends_a_thread_is_in_the_log_with_the_threads_name(caplog: pytest.LogCaptureFixture) -> None:
    assert start_thread("reads figures", lambda: 1 / 0).stop(10)
    assert "the thread 'reads figures' has ended" in caplog.text
    assert "ZeroDivisionError" in caplog.text


def test_a_thread_does_not_keep_its_process_alive_and_stops_within_the_time_or_says_that_it_does_not() -> None:
    begun, go_on = threading.Event(), threading.Event()

    def work() -> None:
        begun.set()
        thread.stopping.wait()
        go_on.wait(20)

    thread = BackgroundThread("waits", work)
    assert thread.daemon
    thread.start()
    assert begun.wait(20)
    assert not thread.stop(0.01)
    go_on.set()
    assert thread.stop(20)


def test_a_thread_that_never_began_has_stopped() -> None:
    thread = BackgroundThread("never begins", lambda: None)
    assert thread.stop(0)
    assert thread.stopping.is_set()


def test_threads_with_one_event_stop_together() -> None:
    stopping = threading.Event()
    threads = [BackgroundThread(name, stopping.wait, stopping) for name in "ab"]
    for thread in threads:
        thread.start()
    assert [thread.stop(20) for thread in threads] == [True, True]


def test_a_call_has_its_result_or_its_error() -> None:
    assert start_call("adds", lambda: 1 + 1).result(20) == 2
    with pytest.raises(ZeroDivisionError):
        start_call("divides", lambda: 1 / 0).result(20)


def test_a_timer_that_is_cancelled_does_nothing() -> None:
    rung = threading.Event()
    start_timer("never rings", 60, rung.set).cancel()
    start_timer("rings", 0, rung.set)
    assert rung.wait(20)
