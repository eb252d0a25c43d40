"""The pipes between the worker's main process and the pool's: small jobs at once, all reports in one call."""

import os
import pickle
import select
from collections import Counter, deque
from collections.abc import Iterator
from inspect import isgenerator
from struct import pack
from types import SimpleNamespace
from typing import Any

import pytest
from celery.concurrency import asynpool

from lossless.worker.job_pipes import JobWriter, ReportReader, ReportWriter


class Hub:
    """An event loop that notes what it is to watch."""

    def __init__(self) -> None:
        self.readers: dict[int, Any] = {}

    def add_reader(self, fd: int, callback: Any, *_: Any) -> None:
        self.readers[fd] = callback

    def remove_reader(self, fd: int) -> None:
        self.readers.pop(fd, None)


class Reports:
    """A reader with one process's pipe, and what was reported through it."""

    def __init__(self) -> None:
        self.read, self.write = os.pipe()
        os.set_blocking(self.read, False)
        self.heard: list[Any] = []
        self.hub = Hub()
        reader: Any = object.__new__(ReportReader)
        reader.fileno_to_outq = {self.read: "process"}
        reader.on_state_change = self.hear
        reader.register_with_event_loop(self.hub)
        self.reader = reader

    def hear(self, report: Any) -> None:
        self.heard.append(report)
        if report == "stop":
            raise MemoryError

    def readable(self) -> None:
        self.reader.handle_event(self.read)


@pytest.fixture
def reports() -> Iterator[Reports]:
    made = Reports()
    yield made
    os.close(made.read)
    os.close(made.write)


def framed(report: Any) -> bytes:
    body = pickle.dumps(report)
    return pack(">I", len(body)) + body


def test_all_that_a_process_has_reported_is_heard_in_one_call_and_in_its_order(reports: Reports):
    os.write(reports.write, framed("began") + framed("ended"))
    reports.readable()
    assert reports.heard == ["began", "ended"]
    assert reports.hub.readers == {}  # the loop need not be told again


@pytest.mark.parametrize("cut", [1, 4, 9])
def test_a_report_that_is_there_in_part_is_read_to_its_end_and_no_further(reports: Reports, cut: int):
    large = framed("large" * 1000)
    os.write(reports.write, framed("began") + large[:cut])
    reports.readable()
    assert reports.heard == ["began"]
    reading = reports.hub.readers[reports.read]
    assert isgenerator(reading)  # as Celery has it, which reads on where the loop has stopped
    os.write(reports.write, large[cut:] + framed("next"))
    assert next(reading, "ended") == "ended"
    assert reports.heard == ["began", "large" * 1000]
    assert reports.hub.readers[reports.read] == reports.reader.handle_event
    reports.readable()
    assert reports.heard[2:] == ["next"]


def test_what_came_with_a_report_that_ends_the_loop_is_heard_before_it_ends(reports: Reports):
    os.write(reports.write, framed("stop") + framed("began") + framed("ended"))
    with pytest.raises(MemoryError):
        reports.readable()
    assert reports.heard == ["stop", "began", "ended"]


def test_a_pipe_whose_process_is_gone_is_watched_no_more(reports: Reports):
    reports.hub.readers[reports.read] = reports.reader.handle_event
    reports.readable()
    assert reports.read in reports.hub.readers  # there was nothing to read
    reports.reader.fileno_to_outq.clear()
    reports.readable()
    assert reports.hub.readers == {}


class Pool:
    """A pool of processes, as far as jobs are written to them; what Celery's own writer is called for is noted."""

    sched_strategy = asynpool.SCHED_STRATEGY_FAIR  # type: ignore[attr-defined]

    def __init__(self, processes: int) -> None:
        self.outbound_buffer: deque[Any] = deque()
        self.write_stats: Counter[int] = Counter()
        self._busy_workers: set[int] = set()
        self._active_writes: set[int] = set()
        self.pipes = [os.pipe() for _ in range(processes)]
        for _, write in self.pipes:
            os.set_blocking(write, False)
        self._fileno_to_inq = {write: SimpleNamespace(index=n) for n, (_, write) in enumerate(self.pipes)}
        self._all_inqueues = set(self._fileno_to_inq)
        self.polls = 0

    def _quick_put(self, job: Any) -> None:
        self.outbound_buffer.append(job)

    def on_poll_start(self) -> None:
        self.polls += 1

    def written(self) -> list[bytes]:
        return [os.read(read, 65_536) if select.select([read], [], [], 0)[0] else b"" for read, _ in self.pipes]

    def close(self) -> None:
        for end in sum(self.pipes, ()):
            os.close(end)


@pytest.fixture
def pool() -> Iterator[Pool]:
    made = Pool(processes=2)
    yield made
    made.close()


def job(body: bytes = b"job") -> Any:
    return SimpleNamespace(_payload=(memoryview(b"head"), memoryview(body), len(body)), _write_to=None)


def test_a_small_job_is_written_at_once_to_a_process_that_is_idle(pool: Pool):
    writer, jobs = JobWriter(pool), [job(), job()]
    for one in jobs:
        writer.put(one)
    assert pool.written() == [b"headjob", b"headjob"]
    assert {one._write_to.index for one in jobs} == {0, 1}
    assert not pool.outbound_buffer
    assert len(pool._busy_workers) == 2


@pytest.mark.parametrize("why", ["busy", "large", "behind another", "full", "not fair"])
def test_every_other_job_waits_for_celerys_own_writer(pool: Pool, why: str):
    writer, one = JobWriter(pool), job(bytes(select.PIPE_BUF) if why == "large" else b"job")
    if why == "busy":
        pool._busy_workers |= pool._all_inqueues
    if why == "behind another":
        pool.outbound_buffer.append(job())
    if why == "full":
        for _, write in pool.pipes:
            os.write(write, bytes(65_536))
    if why == "not fair":
        pool.sched_strategy = asynpool.SCHED_STRATEGY_FCFS  # type: ignore[attr-defined]
    writer.put(one)
    assert pool.outbound_buffer[-1] is one
    assert one._write_to is None
    assert all(b"job" not in written for written in pool.written())


def test_celerys_own_writer_is_called_while_jobs_wait_and_once_more(pool: Pool):
    writer = JobWriter(pool)
    writer.on_poll_start()
    assert pool.polls == 1  # what it may have watched before
    writer.on_poll_start()
    assert pool.polls == 1
    pool.outbound_buffer.append(job())
    writer.on_poll_start()
    pool.outbound_buffer.clear()
    writer.on_poll_start()
    writer.on_poll_start()
    assert pool.polls == 3


class Queue:
    """A process's queue of reports; what went billiard's way is noted."""

    def __init__(self, fd: int) -> None:
        self._writer = SimpleNamespace(fileno=lambda: fd)
        self.billiards: list[Any] = []

    def put(self, report: Any) -> None:
        self.billiards.append(report)


def test_a_small_report_is_written_whole_and_is_read_as_it_was(reports: Reports):
    queue = Queue(reports.write)
    writer = ReportWriter(queue)
    writer.put((2, (7, None, (True, "done"), 5)))
    reports.readable()
    assert reports.heard == [(2, (7, None, (True, "done"), 5))]
    assert queue.billiards == []


@pytest.mark.parametrize("report", ["large" * 1000, lambda: None], ids=["large", "not for the plain pickler"])
def test_every_other_report_goes_billiards_way(reports: Reports, report: Any):
    queue = Queue(reports.write)
    ReportWriter(queue).put(report)
    reports.readable()
    assert reports.heard == []
    assert queue.billiards == [report]
