"""The start and the end of a worker, through Celery's own signals."""

import logging
import os
import sys
from collections.abc import Iterable
from typing import Any, Final

from celery import Celery
from celery.signals import (
    after_setup_logger,
    after_setup_task_logger,
    celeryd_after_setup,
    import_modules,
    worker_init,
    worker_process_shutdown,
    worker_ready,
    worker_shutdown,
    worker_shutting_down,
)

from bridge import settings
from bridge.errors import LedgerUnavailable, SettingsError, UnfitRedis
from bridge.ledger import Ledger, ledger_hook
from bridge.ledger.redis_health import check_redis_fit
from bridge.settings import SettingsAndRoutes, is_redis
from bridge.settings.app_discovery import import_handler_modules
from bridge.telemetry.otel_sdk import CHILD_FLUSH_WITHIN, end_exports, import_sdk
from lossless.transport import risks
from tasks import logs
from tasks.declaration.app_setup import handler_app
from tasks.execution import batch_progress, delivery_log, event_loop
from tasks.execution.execution_settings import read_execution_settings
from tasks.worker import worker_metrics
from tasks.worker.ledger_telemetry import attempt_outcomes, carrier_notes, delivery_counts
from tasks.worker.worker_announcement import WorkerAnnouncement

logger = logging.getLogger(__name__)

#: Seconds that Redis may take to say whether it evicts keys.
ANSWER_WITHIN: Final = 2.0

_announcing: list[WorkerAnnouncement] = []


@after_setup_logger.connect(weak=False)
@after_setup_task_logger.connect(weak=False)
def dress_log_lines(logger: logging.Logger, **_: Any) -> None:
    """Have log lines name their delivery."""
    logs.dress_logger(logger)


@worker_process_shutdown.connect(weak=False)
@worker_shutdown.connect(weak=False)
def flush_telemetry(**_: Any) -> None:
    """Write pending counts and notes before the process ends."""
    delivery_log.flush_summaries()
    carrier_notes.flush()
    delivery_counts.flush()
    attempt_outcomes.flush()


@worker_process_shutdown.connect(weak=False)
def remove_own_notes(**_: Any) -> None:
    """Remove this process's progress notes: the ledger has its fates from here on."""
    batch_progress.remove_process_notes(os.getpid())


@worker_process_shutdown.connect(weak=False)
@worker_shutdown.connect(weak=False)
def end_loop(**_: Any) -> None:
    """Cancel the tasks that async handlers have left running, so that they clean up."""
    event_loop.close_loop()


# Receivers are called in their order: what only observes comes last, and may wait for a collector.
@worker_process_shutdown.connect(weak=False)
def end_telemetry_of_child(**_: Any) -> None:
    """Export the last spans of a child."""
    end_exports(CHILD_FLUSH_WITHIN)


@worker_shutdown.connect(weak=False)
def end_telemetry(**_: Any) -> None:
    """Export the last spans and metrics of the main process."""
    end_exports()


@celeryd_after_setup.connect(weak=False)
def heed_time_limits(instance: Any, **_: Any) -> None:
    """Apply the command line's limits (`--time-limit`) to the settings (tasks/execution/time_limits.py)."""
    if instance.app is handler_app():
        instance.app.conf.task_time_limit = instance.time_limit
        instance.app.conf.task_soft_time_limit = instance.soft_time_limit
        read_execution_settings.cache_clear()


@import_modules.connect(weak=False)
def import_all(sender: Any, **_: Any) -> None:
    """Name every module that cannot be imported, beside all else that is wrong: Celery ends at the first."""
    if sender is handler_app() and sender.loader.worker_initialized and (broken := import_handler_modules(sender)):
        _refuse_faults(sender, broken)


def _refuse_faults(app: Celery, broken: Iterable[str] = ()) -> SettingsAndRoutes:
    """Return the settings and the handlers; end the worker with all faults if there are any."""
    found = settings.read_with_handlers(app, os.environ, broken)
    if found.faults:
        # A signal's receiver may raise any Exception without effect; SystemExit ends the worker.
        named = "" if app.main == settings.OWN_APP else f"-A {app.main} "
        print(
            f"The worker of the Celery app {app.main!r} does not start, because its configuration is invalid:\n"
            f"{SettingsError(found.faults)}\n"
            f"Correct these settings and start it again; `bridge {named}check` tests them without a worker.",
            file=sys.stderr,
        )
        raise SystemExit(1)
    return found


@worker_init.connect(weak=False)
def check_and_count(sender: Any, **_: Any) -> None:
    """Refuse wrong settings before anything is consumed; start counting before the children start."""
    app = sender.app
    if app is not handler_app():
        # Of another app, which has handlers imported for something else than to run them.
        return
    chosen = _refuse_faults(app).settings
    _refuse_unfit_redis(chosen)
    app.conf.unknown_for = chosen.file.kafka_unknown_for
    if chosen.one_redis and app.conf.broker_read_url == chosen.broker_url:
        # The ledger's read is bundled with the take, its mark with the acknowledgement.
        app.conf.broker_transport_options = {**app.conf.broker_transport_options, "rider": ledger_hook.HOOK_NAME}
    worker_metrics.collect_in_files()
    batch_progress.make_notes_folder()
    import_sdk()
    _look_up_versions(app)


def _refuse_unfit_redis(chosen: settings.Settings) -> None:
    """End the worker if the ledger's Redis may drop fates; one that does not answer is waited for later."""
    if (ledger := Ledger.once(chosen, ANSWER_WITHIN)) is None:
        return
    try:
        warning = check_redis_fit(ledger)
        if warning and not chosen.one_redis:  # the broker's risks are told when the worker is ready
            logger.warning("%s", warning)
    except UnfitRedis as error:
        print(f"The worker does not start: {error}", file=sys.stderr)
        raise SystemExit(1) from None
    except LedgerUnavailable as error:
        logger.debug("%s", error)
    finally:
        ledger.close()


def _look_up_versions(app: Celery) -> None:
    """Look up the handlers' versions once for all children: reading the installed packages takes a while."""
    tasks: Iterable[Any] = app.tasks.values()
    for task in tasks:
        if getattr(task, "source_topics", ()):
            _ = task.version


@worker_ready.connect(weak=False)
def warn_and_serve(sender: Any, **_: Any) -> None:
    """Serve the counts of all children, say that this worker is there, and name the risks of its broker."""
    app = sender.app
    if app is not handler_app():
        return
    found = settings.read_with_handlers(app, os.environ)
    chosen, routes = found.settings, found.routes
    worker_metrics.expect_handlers((handler.name for handler in routes), chosen.group)
    worker_metrics.serve_metrics(chosen.environment.WORKER_METRICS_PORT, chosen.environment.WORKER_METRICS_HOST)
    if chosen.config_file:
        logger.info("settings from %s", chosen.config_file)
    for text in chosen.misspelt:
        logger.warning("%s", text)
    if (ledger := Ledger.from_settings(chosen)) is not None:
        announcing = WorkerAnnouncement(app, sender, ledger)
        announcing.begin()
        _announcing.append(announcing)
    # Last: a signal's receiver that raises is cut off there, and this connection may be cut like any other.
    if is_redis(str(app.conf.broker_url)):
        with app.connection_for_read() as connection:
            for risk in risks(connection):
                logger.warning("Redis: %s.", risk)


@worker_shutting_down.connect(weak=False)
def end_announcement(**_: Any) -> None:
    """End the announcement: nothing more is consumed."""
    for announcing in _announcing:
        announcing.end()


@worker_shutdown.connect(weak=False)
def remove_worker_files(**_: Any) -> None:
    """Remove the worker's metric and progress files."""
    worker_metrics.remove_metric_files()
    batch_progress.remove_notes_folder()
