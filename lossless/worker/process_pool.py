"""The prefork pool that reports every end of a task, and the check that refuses unsupported pools."""

from collections.abc import Callable, Iterable
from contextlib import suppress
from functools import partial
from signal import SIGKILL
from time import monotonic
from typing import Any, Final

from billiard.einfo import ExceptionInfo
from billiard.pool import RUN
from celery import Celery
from celery.concurrency import asynpool, prefork, solo, thread
from celery.exceptions import ImproperlyConfigured, WorkerShutdown, WorkerTerminate
from celery.utils.functional import noop
from celery.utils.log import get_logger

from lossless.worker.acknowledgement_bundle import TRACES, run_traced
from lossless.worker.compact_traceback import keep_tracebacks_compact
from lossless.worker.job_pipes import JobProcess, JobWriter, ReportReader, get_job_writer
from lossless.worker.json_body import trace_decoded

logger = get_logger(__name__)

#: Seconds that processes have to read the rest of a message that was sent in part when the worker closes.
REST_WITHIN: Final = 2.0


class ReportingPool(asynpool.AsynPool):
    """The prefork pool that reads a process's last reports before it counts it as lost, and supports acknowledgement
    bundles (lossless/worker/acknowledgement_bundle.py).

    billiard checks all jobs when a process has ended. If another process dies in that moment and its report of a start
    is not read yet, billiard takes its job for unstarted (billiard/pool.py, `_join_exited_workers`): the job ran once
    more, and the lost process was not counted.
    """

    ResultHandler = ReportReader
    Worker = JobProcess

    def apply_async(self, func: Callable[..., Any], args: Any = (), *more: Any, **options: Any) -> Any:
        """Have a process run `func`."""
        if func in TRACES:
            func, args = run_traced, (trace_decoded, func, *args)
        job: Any = super().apply_async(func, args, *more, **options)
        if job is not None and not (job._timeout or job._soft_timeout):
            job._on_timeout_set = job._on_timeout_cancel = None
        return job

    def _create_write_handlers(self, hub: Any, *more: Any, **options: Any) -> None:
        """Set up Celery's writer, and in front of it the one that needs no turn of the event loop."""
        super()._create_write_handlers(hub, *more, **options)  # type: ignore[misc]
        writer = JobWriter(self)
        self._quick_put, self.on_poll_start = writer.put, writer.on_poll_start

    def get_process_queues(self) -> Any:
        """Return the pipes of a new process.

        If a process is killed while the worker connects to Redis, there may be none without an owner: Celery ended the
        worker by a StopIteration (celery/concurrency/asynpool.py, `get_process_queues`).
        """
        queues = vars(self)["_queues"]
        if all(owner is not None for owner in queues.values()):
            queues[self.create_process_queues()] = None
        return super().get_process_queues()

    def did_start_ok(self) -> bool:
        """Return whether any process is there when the worker begins; a killed one is replaced later.

        billiard says no as soon as one is gone, and Celery ends the worker (celery/worker/loops.py, `asynloop`).
        """
        there: list[Any] = vars(self)["_pool"]
        return bool(super().did_start_ok() or there)

    def flush(self) -> None:
        """Forget the jobs that no process was sent, as a consumer closes; results of sent jobs are waited for.

        Celery forgets all that no process has accepted yet (celery/concurrency/asynpool.py, `flush`). A process that
        has it in its pipe runs it none the less: given back, it ran twice, and the worker waited for words that
        nobody read.
        """
        jobs: tuple[Any, ...] = tuple(vars(self)["_cache"].values())
        sent = [job for job in jobs if not job._accepted and job._write_to is not None]
        for job in sent:
            job._accepted = True
        if vars(self)["_state"] != RUN:
            self._send_rest(sent)
        super().flush()
        for job in sent:
            job._accepted = job._worker_pid is not None
            if not job._accepted and not job._write_to._is_alive():
                job.discard()

    def _send_rest(self, sent: list[Any]) -> None:
        """Send the rest of jobs that were sent in part (a pipe takes 64 KiB); kill a process that does not read it.

        Celery sends it only while the pool runs. As the worker ends, the pool is closed before: the word to end got in
        among the message, for the rest of which the process waited for ever, and the worker for the process.
        """
        until, writers = monotonic() + REST_WITHIN, vars(self)["_active_writers"]
        for job in sent:
            process, writer = job._write_to, get_job_writer(job)
            while writer in writers and process._is_alive() and monotonic() < until:
                _, writable, _ = asynpool._select(writers={process.inq._writer}, timeout=0.1)  # type: ignore[attr-defined]
                if writable:
                    with suppress(OSError, EOFError):
                        next(writer, None)
            if writer in writers and process._is_alive():
                logger.warning("Process %d takes nothing: it is killed, and what it was sent given back", process.pid)
                self.terminate_job(process.pid, SIGKILL)
                process.join()
        # A closed pool looks for the dead no more; who writes to their full pipes waits for ever.
        self._join_exited_workers()  # type: ignore[attr-defined]

    def on_job_process_down(self, job: Any, pid_gone: Any) -> None:
        """Handle a job whose process has ended, before it is given to another one."""
        process = job._write_to or job._scheduled_for
        if not job._accepted and process is not None and not process.dead:
            self.process_flush_queues(process)
        super().on_job_process_down(job, pid_gone)


def prepare_pool(app: Celery, pool: Any) -> None:
    """Make `pool` report every end of a task, before it starts.

    prefork does, with the fixes of `ReportingPool`. `threads` and `solo` report no exception that leaves Celery's own
    trace (a raising Task.on_failure, MemoryError, sys.exit): `threads` leaves the message unacknowledged for
    ever, `solo` ends the worker (celery/concurrency/base.py, `apply_target`); here they report it. A crash of the
    process is a crash of the whole worker there, and time limits are not enforced: a warning says so.

    Raises `ImproperlyConfigured` for other pools: greenlets have no event loop to wait in.
    """
    keep_tracebacks_compact()
    if isinstance(pool, prefork.TaskPool):
        pool.Pool = ReportingPool
        return
    if not isinstance(pool, (thread.TaskPool, solo.TaskPool)):
        raise ImproperlyConfigured(
            f"the pool {type(pool).__module__} is not supported: its workers have no event loop, so ends of "
            "tasks could not be settled without blocking; use prefork, threads or solo"
        )
    limited = find_limited_tasks(app)
    if limited:
        logger.warning(
            "This pool (%s) enforces no time limits: those of %s have no effect here; use prefork",
            type(pool).__module__, ", ".join(limited),
        )  # fmt: skip
    pool.on_apply = make_reporting(pool.on_apply)  # type: ignore[method-assign]


def find_limited_tasks(app: Celery) -> list[str]:
    """Return the names of tasks and settings that have a time limit."""
    settings = [name for name in ("task_time_limit", "task_soft_time_limit") if app.conf[name]]
    tasks = [name for name, task in app.tasks.items() if task.time_limit or task.soft_time_limit]
    return settings or sorted(tasks)


def make_reporting(on_apply: Callable[..., Any]) -> Callable[..., Any]:
    """Return a pool's `on_apply` that calls `error_callback` for every exception of the target."""

    def apply(
        target: Callable[..., Any],
        args: Any = (),
        kwargs: Any = None,
        callback: Callable[[Any], None] = noop,
        error_callback: Callable[[Any], None] = noop,
        **options: Any,
    ) -> Any:
        result = on_apply(
            partial(_run_and_report, target, callback, error_callback), args, kwargs, callback=noop, **options
        )
        if isinstance(result, thread.ApplyResult):  # type: ignore[attr-defined]
            # A request refers to it weakly, and only prefork keeps it: without it, what waits for a thread could
            # not be told from what was never given to one. The future keeps it until it has run.
            result.f.add_done_callback(partial(_keep, result))
        return result

    return apply


def _keep(_result: Any, _future: Any) -> None:
    """Keep an object alive as an argument of a future's callback."""


def withdraw_waiting(requests: Iterable[Any]) -> None:
    """Take back the requests that wait for a thread of the pool `threads`, so that no thread takes them any more.

    Without it a thread could begin a request between the look at what has begun and the giving back of the rest: it
    would run here and again elsewhere. `Future.cancel` succeeds only for what no thread has taken, and for good.
    """
    for request in requests:
        result = request._apply_result() if request._apply_result is not None else None
        if isinstance(result, thread.ApplyResult) and result.f.cancel():  # type: ignore[attr-defined]
            request._apply_result = None


def _run_and_report(
    target: Callable[..., Any],
    callback: Callable[[Any], None],
    error_callback: Callable[[Any], None],
    *args: Any,
    **kwargs: Any,
) -> None:
    try:
        result = target(*args, **kwargs)
    except (WorkerShutdown, WorkerTerminate):
        raise
    except BaseException:
        error_callback(ExceptionInfo())
    else:
        callback(result)
