"""The watchdog of one handler after another: in time, not a message too late, and never after the handler's end."""

import signal
import threading
import time
from collections.abc import Iterator

import pytest
from billiard.exceptions import SoftTimeLimitExceeded
from billiard.pool import soft_timeout_sighandler

from tasks.execution import time_limits
from tasks.execution.time_limits import TimeLimits, Watchdog


class Killed:
    """What stands for the end of the process."""

    def __init__(self) -> None:
        self.happened = threading.Event()
        self.before: list[str] = []

    def __call__(self) -> None:
        self.before.append("killed")
        self.happened.set()


@pytest.fixture
def killed() -> Killed:
    return Killed()


@pytest.fixture
def dog(killed: Killed) -> Iterator[Watchdog]:
    made = Watchdog(killed)
    made.begin_batch()
    before = signal.signal(signal.SIGUSR1, made.on_signal)
    yield made
    signal.signal(signal.SIGUSR1, before)


def test_each_message_has_the_whole_of_its_limit(dog: Watchdog) -> None:
    for _ in range(20):
        with dog.watching(TimeLimits(0.2, None), lambda: None):
            time.sleep(0.02)
    with pytest.raises(SoftTimeLimitExceeded), dog.watching(TimeLimits(0.2, 60), lambda: None):
        time.sleep(30)
    with dog.watching(TimeLimits(0.2, 60), lambda: None):
        time.sleep(0.02)


def test_at_the_hard_limit_what_was_done_before_is_written_and_then_the_process_ends(
    dog: Watchdog, killed: Killed
) -> None:
    with dog.watching(TimeLimits(None, 0.1), lambda: killed.before.append("marked")):
        assert killed.happened.wait(30)
    assert killed.before == ["marked", "killed"]


def test_a_signal_that_comes_when_the_handler_has_returned_undoes_nothing(dog: Watchdog, killed: Killed) -> None:
    with dog.watching(TimeLimits(0.05, 0.1), lambda: None):
        pass
    # A mark that takes longer than both limits.
    time.sleep(0.2)
    signal.raise_signal(signal.SIGUSR1)
    assert not killed.happened.is_set()
    with dog.watching(TimeLimits(60, 60), lambda: None):
        # Of the message before.
        signal.raise_signal(signal.SIGUSR1)


def test_a_task_that_is_no_delivery_keeps_celerys_own_limit(dog: Watchdog) -> None:
    dog.end_batch()
    with pytest.raises(SoftTimeLimitExceeded):
        signal.raise_signal(signal.SIGUSR1)


def test_only_a_process_of_prefork_has_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(time_limits, "_of_process", None)
    before = signal.getsignal(signal.SIGUSR1)
    try:
        assert time_limits.find_watchdog() is None
        signal.signal(signal.SIGUSR1, soft_timeout_sighandler)
        made = time_limits.find_watchdog()
        assert made is not None
        assert made is time_limits.find_watchdog()
    finally:
        signal.signal(signal.SIGUSR1, before)
