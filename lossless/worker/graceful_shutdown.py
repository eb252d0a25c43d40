"""The graceful shutdown of a worker: unstarted tasks go back within 1.2 s, running ones have a grace period."""

import signal
from typing import Any

from celery.utils.log import get_logger
from celery.worker import state

from lossless.background_thread import copy_shared_set

logger = get_logger(__name__)

KILL_AFTER = 2
#: Seconds after which unstarted tasks go back that the transport has not given back at once.
# A BRPOP that kombu sent before it stopped consuming (brpop_timeout: 1 s) would fetch it straight back.
GIVE_BACK_AFTER = 1.2


def list_unstarted_requests(buckets: Any) -> list[Any]:
    """Return the requests that the pool has not been given: waiting for a slot, for their time, for their rate.

    Parameters:
        buckets: the consumer's, of tasks with a rate limit.
    """
    limited = [request for bucket in buckets.values() if bucket for request, _ in bucket.contents]
    known = [request for request in tuple(state.requests.values()) if request._apply_result is None]
    return [request for request in limited + known if not request.acknowledged]


def begin_shutdown(timer: Any, pool: Any, waiting: list[Any], grace: float) -> None:
    """Give requests back soon, and stop what still runs when its grace period is over; return without waiting.

    Parameters:
        timer: the consumer's.
        pool: what runs tasks.
        waiting: what has not begun.
        grace: seconds that what runs has left; 0: any number.
    """
    timer.call_after(GIVE_BACK_AFTER, _give_back, (waiting,))
    if grace > 0 and not state.should_terminate:
        timer.call_after(grace, _stop_running, (timer, pool))


def _give_back(requests: list[Any]) -> None:
    for request in requests:
        try:
            request.message.requeue()
            request.acknowledged = True
        except Exception as error:  # it stays unacknowledged: the channel gives it back when it closes
            logger.error("%s could not be given back at once: %r", str(request), error)


def _stop_running(timer: Any, pool: Any) -> None:
    """Stop the processes that still run or have not begun: SIGTERM, then SIGKILL."""
    running = [request for request in copy_shared_set(state.active_requests) if not request.acknowledged]
    processes = [
        pid for request in copy_shared_set(state.reserved_requests) if (pid := _find_process(request)) is not None
    ]
    if running or processes:
        logger.warning("The time to finish is over: %d running tasks are given back", len(running) + len(processes))
    for request in running:
        request.cancel(pool, emit_retry=False)
    for pid in processes:
        pool.terminate_job(pid, signal.SIGTERM)
    timer.call_after(KILL_AFTER, _kill, (pool, [request.worker_pid for request in running] + processes))


def _find_process(request: Any) -> int | None:
    """Return the process that was sent a request and has not reported its start: it may be frozen, or late."""
    job = request._apply_result() if request._apply_result is not None else None
    process = getattr(job, "_write_to", None)
    # What is acknowledged as it begins may have begun: it is lost with its process.
    return process.pid if process is not None and not request.time_start and request.task.acks_late else None


def _kill(pool: Any, processes: list[int]) -> None:
    for pid in processes:
        pool.terminate_job(pid, signal.SIGKILL)
