"""A run of `crash_everywhere` in a forked process: it ends with all that it began, and says how it ended."""

import os
import signal
import subprocess
import time
from collections.abc import Callable

import pytest

from tasks.testing.forked_run import ForkedRunner, Tell


def fork_a_process(tell: Tell) -> None:
    """It keeps the pipe of the run."""
    if not (child := os.fork()):
        time.sleep(60)
        os._exit(0)
    tell(child)


def start_a_program(tell: Tell) -> None:
    tell(subprocess.Popen(["sleep", "60"]).pid)


def is_alive(pid: int) -> bool:
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


@pytest.mark.skipif(not hasattr(os, "waitid"), reason="looks into /proc of Linux")
@pytest.mark.parametrize("begin", [fork_a_process, start_a_program])
@pytest.mark.parametrize("end", [lambda: None, lambda: os.kill(os.getpid(), signal.SIGKILL)])
def test_what_a_run_began_ends_with_it(begin: Callable[[Tell], None], end: Callable[[], None]):
    def work(tell: Tell) -> None:
        begin(tell)
        end()

    begun = time.monotonic()
    (pid,) = ForkedRunner(40).run(work)
    assert time.monotonic() - begun < 20
    until = time.monotonic() + 10
    while is_alive(pid) and time.monotonic() < until:
        time.sleep(0.01)
    assert not is_alive(pid)


def test_a_run_that_ends_its_own_process_is_said_to():
    with pytest.raises(RuntimeError, match="the handler's process ended by itself, with exit code 3"):
        ForkedRunner(40).run(lambda tell: os._exit(3))
    with pytest.raises(RuntimeError, match="with exit code -11"):
        ForkedRunner(40).run(lambda tell: os.kill(os.getpid(), signal.SIGSEGV))


def test_all_that_a_run_told_is_read():
    def work(tell: Tell) -> None:
        for number in range(20_000):
            tell(number)

    assert ForkedRunner(40).run(work) == [*range(20_000)]
