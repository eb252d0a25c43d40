"""A run in a forked process, which may be killed at any moment: its parent keeps what it told."""

import gc
import json
import os
import select
import signal
import sys
import time
import traceback
import warnings
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from bridge.formats.inherited_connections import find_django_connections, find_engines, leave_connections

Tell = Callable[[Any], None]
#: Seconds between two looks whether a silent process has ended.
_LOOK_SECONDS = 0.1


class ForkedRunner:
    """Runs functions in forked processes, one after another.

    Parameters:
        seconds: the longest time for one run.
    """

    def __init__(self, seconds: float) -> None:
        if not hasattr(os, "fork"):
            raise RuntimeError("crash_everywhere forks processes, which this system cannot: run it on Linux or macOS.")
        self._seconds = seconds
        self._engines = find_engines()
        _refuse_django_transaction()

    def run(self, work: Callable[[Tell], None]) -> list[Any]:
        """Run a function in a process of its own, and return what it told, JSON-able data, until it ended or died.

        Raises:
            TimeoutError: it did not end in time, and was killed.
            RuntimeError: the function raised, or its process ended by itself.
        """
        reader, writer = os.pipe()
        with warnings.catch_warnings():
            # Threads of the test's own stay behind; the handler runs in the one that is forked.
            warnings.simplefilter("ignore", DeprecationWarning)
            child = os.fork()
        if not child:
            self._run_and_exit(work, reader, writer)
        os.close(writer)
        try:
            told = self._read(reader, child)
        finally:
            os.close(reader)
            status = _end_group(child)
        if not told:
            raise RuntimeError(
                f"the handler's process ended by itself, with exit code {os.waitstatus_to_exitcode(status)}: a worker "
                "would lose it, too. Find what ends it (os._exit, a fault in a C library)."
            )
        if isinstance(told[-1], dict) and "fault" in told[-1]:
            raise RuntimeError(told[-1]["fault"])
        return told

    def _run_and_exit(self, work: Callable[[Tell], None], reader: int, writer: int) -> None:
        """Run the function in the child, which never returns to the test."""
        try:
            # A group of its own, so that what the handler begins can be ended with it.
            os.setpgid(0, 0)
            os.close(reader)
            # Its collector need not look through what belongs to the test.
            gc.freeze()

            def tell(said: Any) -> None:
                os.write(writer, json.dumps(said).encode() + b"\n")

            try:
                leave_connections(self._engines)
                work(tell)
            except BaseException:
                tell({"fault": traceback.format_exc()})
        finally:
            os._exit(0)

    def _read(self, reader: int, child: int) -> list[Any]:
        until, read = time.monotonic() + self._seconds, b""
        while True:
            left = until - time.monotonic()
            if left <= 0:
                raise TimeoutError(
                    f"a run of the handler did not end within {self._seconds:g} s: find what it waits for, or give "
                    "crash_everywhere a longer time_limit."
                )
            ended = _has_ended(child)
            if select.select([reader], [], [], 0 if ended else min(left, _LOOK_SECONDS))[0]:
                if not (part := os.read(reader, 65_536)):
                    break
                read += part
            elif ended:
                # A process that the handler forked still has the pipe.
                break
        return [json.loads(line) for line in read.splitlines() if line]


def _has_ended(child: int) -> bool:
    """Return whether a process has ended, which stays for `waitpid`; elsewhere than on Linux that is not known."""
    return hasattr(os, "waitid") and os.waitid(os.P_PID, child, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None


def _end_group(child: int) -> int:
    """Kill a process and all that it began: late effects would be those of another run; return its exit status."""
    for kill in (os.killpg, os.kill):
        # It has ended, or had no time to make its group.
        with suppress(ProcessLookupError, PermissionError):
            kill(child, signal.SIGKILL)
    return os.waitpid(child, 0)[1]


def _refuse_django_transaction() -> None:
    django = sys.modules.get("django.db")
    if django is not None and any(each.in_atomic_block for each in find_django_connections(django)):
        raise RuntimeError(
            "crash_everywhere: the test holds a transaction of Django's, which another process does not see: use "
            "TransactionTestCase, or @pytest.mark.django_db(transaction=True)."
        )
