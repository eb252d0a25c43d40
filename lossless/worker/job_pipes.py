"""The pipes between the worker's main process and the pool's processes, with fewer steps for a small job than Celery's.

Celery (celery/concurrency/asynpool.py) waits for its event loop before each write and after each message that it reads:
some ten system calls and two turns of the loop for a task. Here a job is written as soon as a process is idle, and all
that a process has reported is read in one call. What is not small, or not there as a whole, goes Celery's way.
"""

import os
import select
from collections.abc import Iterator
from pickle import dumps, loads
from struct import pack, unpack_from
from typing import Any, Final

from celery.concurrency import asynpool as _asynpool

asynpool: Any = _asynpool  # its stubs do not know its pipes
get_job_writer: Any = asynpool._get_job_writer

#: The most bytes that are read at once: what a pipe holds.
READ_AT_ONCE: Final = 65_536
#: The bytes of a message's header, its length.
HEADER: Final = 4


class ReportReader(asynpool.ResultHandler):  # type: ignore[misc]
    """The reader of the processes' reports: starts and results."""

    def _make_process_result(self, hub: Any) -> Any:
        """Return what the event loop calls when a process's pipe can be read."""

        def on_readable(fd: int) -> None:
            if fd not in self.fileno_to_outq:  # the process is gone
                hub.remove_reader(fd)
                return
            try:
                data = os.read(fd, READ_AT_ONCE)
            except (BlockingIOError, InterruptedError):
                return
            except OSError:
                data = b""
            if data:
                self._read(hub, fd, data)
            else:
                hub.remove_reader(fd)

        return on_readable

    def _read(self, hub: Any, fd: int, data: bytes) -> None:
        """Take in whole messages; of one that is there in part, the event loop reads the rest, as Celery has it."""
        reports, rest = split_reports(data)
        if rest:
            reading = self._finish(hub, fd, bytearray(rest))
            hub.add_reader(fd, reading)
            self._report(reports)
            next(reading, None)
        else:
            self._report(reports)

    def _report(self, reports: list[memoryview]) -> None:
        """Call Celery's handlers; what the first of them raises is raised after the last.

        They are no longer in the pipe: a report that nobody hears would be of a task that ended and runs again.
        """
        raised: BaseException | None = None
        for report in reports:
            try:
                if message := loads(report):
                    self.on_state_change(message)
            except BaseException as error:
                raised = raised or error
        if raised is not None:
            raise raised

    def _finish(self, hub: Any, fd: int, begun: bytearray) -> Iterator[None]:
        """Read the rest of one message and no more: as the worker ends, Celery reads on behind it."""
        while missing := count_missing(begun):
            try:
                data = os.read(fd, missing)
            except (BlockingIOError, InterruptedError):
                yield
                continue
            if not data:
                raise OSError("End of file during message")
            begun += data
        hub.add_reader(fd, self.handle_event, fd)
        self._report([memoryview(begun)[HEADER:]])


def split_reports(data: bytes) -> tuple[list[memoryview], bytes]:
    """Return the whole messages in what was read from a pipe, and the beginning of the next one.

    >>> [bytes(report) for report in split_reports(b"\\0\\0\\0\\2ab\\0\\0\\0\\1c")[0]]
    [b'ab', b'c']
    >>> split_reports(b"\\0\\0\\0\\2a")
    ([], b'\\x00\\x00\\x00\\x02a')
    """
    reports, start, view = [], 0, memoryview(data)
    while len(data) - start >= HEADER:
        end = start + HEADER + unpack_from(">i", data, start)[0]
        if end > len(data):
            break
        reports.append(view[start + HEADER : end])
        start = end
    return reports, data[start:]


def count_missing(begun: bytearray) -> int:
    """Return how many bytes are missing of a message, of its header first.

    >>> count_missing(bytearray(b"\\0\\0")), count_missing(bytearray(b"\\0\\0\\0\\2a"))
    (2, 1)
    """
    if len(begun) < HEADER:
        return HEADER - len(begun)
    return HEADER + int(unpack_from(">i", begun)[0]) - len(begun)


class JobWriter:
    """The writer of small jobs to idle processes.

    Celery's own writer takes what is left. It watches the pipes in the event loop, and is called while jobs wait.

    Parameters:
        pool: the pool; Celery's writer is set up.
    """

    def __init__(self, pool: Any) -> None:
        self._pool = pool
        self._celery_put, self._celery_poll_start = pool._quick_put, pool.on_poll_start
        #: Whether Celery's writer may have pipes watched.
        self._watched = True

    def put(self, job: Any) -> None:
        """Write a job now if a process is idle; else it waits for one."""
        self._celery_put(job)
        pool = self._pool
        if pool.sched_strategy == asynpool.SCHED_STRATEGY_FAIR and len(pool.outbound_buffer) == 1:
            self._write_next()

    def _write_next(self) -> None:
        """Write the next job to an idle process; one that the pipe may not take as a whole waits for the loop.

        A pipe takes so many bytes at once, or none of them (pipe(7), PIPE_BUF).
        """
        pool = self._pool
        job = pool.outbound_buffer[0]
        header, body, size = job._payload
        if size + HEADER > select.PIPE_BUF:
            return
        idle = pool._all_inqueues - pool._busy_workers - pool._active_writes
        fd = min(idle, default=-1)
        process = pool._fileno_to_inq.get(fd)
        if process is None:
            return
        try:
            os.write(fd, b"".join((header, body)))
        except OSError:
            return
        job._scheduled_for = job._write_to = process
        pool._busy_workers.add(fd)
        pool.write_stats[process.index] += 1
        pool.outbound_buffer.popleft()

    def on_poll_start(self) -> None:
        """Have Celery watch the pipes while jobs wait, and once more to stop it."""
        waits = bool(self._pool.outbound_buffer)
        if waits or self._watched:
            self._watched = waits
            self._celery_poll_start()


class JobProcess(asynpool.Worker):  # type: ignore[misc]
    """A process of the pool that writes what it reports in one step."""

    def _make_child_methods(self, *more: Any) -> None:
        super()._make_child_methods(*more)
        self.outq.put = ReportWriter(self.outq).put


class ReportWriter:
    """The writer of a process's reports.

    billiard's makes a pickler with a table of its own for each report, which takes longer than all else about it. What
    the plain pickler refuses, or is large, goes billiard's way.

    Parameters:
        queue: the process's queue of reports.
    """

    def __init__(self, queue: Any) -> None:
        self._billiards_put = queue.put
        self._fd = queue._writer.fileno()

    def put(self, report: Any) -> None:
        """Write a report; a small one whole, whatever interrupts this (pipe(7), PIPE_BUF)."""
        try:
            body = dumps(report)
        except Exception:
            body = b""
        if body and len(body) + HEADER <= select.PIPE_BUF:
            os.write(self._fd, pack(">i", len(body)) + body)
        else:
            self._billiards_put(report)
