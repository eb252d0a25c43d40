"""The pool of processes: what a process said before it died counts."""

from types import SimpleNamespace
from typing import Any

import pytest
from billiard.pool import ACK, RUN
from celery.concurrency import asynpool as _asynpool

from lossless.worker.process_pool import ReportingPool

asynpool: Any = _asynpool  # its stubs do not know its queues


class Job:
    """A job that was written to a process which has died since."""

    _job = 7
    _accepted = False

    def __init__(self, process: Any) -> None:
        self._write_to = self._scheduled_for = process


@pytest.mark.parametrize("begun", [True, False])
def test_a_job_whose_dead_process_had_begun_it_is_given_to_no_other(begun: bool):
    queue = asynpool._SimpleQueue(rnonblock=True)
    process = SimpleNamespace(pid=1, outq=queue, dead=False, _is_alive=lambda: False)
    job = Job(process)
    pool: Any = object.__new__(ReportingPool)
    pool._state = RUN
    pool._queues = {}
    given_to_another: list[Job] = []
    pool._put_back = given_to_another.append

    def hear(said: Any) -> None:
        assert said[0] == ACK
        job._accepted = True

    pool._result_handler = SimpleNamespace(on_state_change=hear)
    if begun:
        queue.put((ACK, (job._job, None, 0.0, process.pid, None)))
    pool.on_job_process_down(job, process.pid)
    assert given_to_another == ([] if begun else [job])
    queue.close()


def test_a_process_that_starts_while_none_of_the_pipes_is_free_gets_new_ones():
    pool: Any = object.__new__(ReportingPool)
    pool._queues = {("pipes", "of"): "a process"}
    pool.create_process_queues = lambda: ("new", "pipes")
    assert pool.get_process_queues() == ("new", "pipes")
    assert pool._queues == {("pipes", "of"): "a process", ("new", "pipes"): None}
