"""The state of this Celery worker: free processes, running tasks, shutdown; read from Celery's own state."""

from __future__ import annotations

import sys
import weakref
from typing import Any

from lossless.background_thread import copy_shared_set

#: The worker of this process, as a list of one.
_workers: list[weakref.ref[Any]] = []


def follow_worker() -> None:
    """Note a worker of this process as it is made, for `count_spare_processes`."""
    try:
        from celery import signals
    except ImportError:
        return
    signals.worker_init.connect(_note_worker, dispatch_uid=__name__)


def _note_worker(sender: Any, **_: Any) -> None:
    _workers[:] = [weakref.ref(sender)]


def count_spare_processes() -> int | None:
    """Return how many tasks could begin at once here, less than 0 if some wait for a process.

    None where that is not known (no Celery worker). With `--autoscale` the processes that it may still start count too:
    Celery starts them by the number of tasks that the worker has (celery/worker/autoscale.py, `qty`).
    """
    worker = _workers[0]() if _workers else None
    processes = getattr(getattr(worker, "pool", None), "num_processes", None)
    state = _state()
    if state is None or not processes:
        return None
    most = getattr(getattr(worker, "autoscaler", None), "max_concurrency", 0)
    return max(int(processes), int(most)) - len(state.reserved_requests)


def runs_in_this_process() -> bool:
    """Return whether tasks run in the event loop itself (pool solo): it does nothing else meanwhile."""
    worker = _workers[0]() if _workers else None
    return type(getattr(worker, "pool", None)).__module__ == "celery.concurrency.solo"


def _state() -> Any:
    return sys.modules.get("celery.worker.state")


def stopping() -> bool:
    """Return whether this is a worker that was told to stop, warm or cold."""
    state = _state()
    if state is None:
        return False
    # the exit code to stop with, which may be 0
    warm, cold = state.should_stop, state.should_terminate
    return (warm is not None and warm is not False) or (cold is not None and cold is not False)


def running_tags() -> set[str]:
    """Return the delivery tags of the tasks that run now."""
    state = _state()
    return (
        set() if state is None else {request.message.delivery_tag for request in copy_shared_set(state.active_requests)}
    )


def known_requests() -> tuple[Any, ...]:
    """Return the requests that this worker has and that have not ended."""
    state = _state()
    return () if state is None else tuple(state.requests.values())


def started_tags() -> set[str]:
    """Return the delivery tags of the tasks that run or have been given to the pool, which may run them any
    moment.

    The rest waits for a free process (celery/worker/request.py sets ``_apply_result`` when the pool has the
    task).
    """
    state = _state()
    if state is None:
        return set()
    given = (r for r in copy_shared_set(state.reserved_requests) if getattr(r, "_apply_result", None) is not None)
    return running_tags() | {request.message.delivery_tag for request in given}
