"""What a worker does at its start and its end, through Celery's own signals."""

import logging
import os
import sys
from typing import Any

from celery.signals import worker_init, worker_ready, worker_shutdown

from bridge import settings
from bridge.errors import SettingsError
from bridge.settings import is_redis
from lossless.transport import risks
from tasks import metrics
from tasks.celery import app

logger = logging.getLogger(__name__)


@worker_init.connect(weak=False)
def check_and_count(**_: Any) -> None:
    """Refuse wrong settings before anything is consumed; start counting before the children start."""
    try:
        settings.load(app, os.environ)
    except SettingsError as error:
        # A signal's receiver may raise any Exception without effect; SystemExit ends the worker.
        print(f"The worker does not start: these settings are wrong:\n{error}", file=sys.stderr)
        raise SystemExit(1) from None
    metrics.collect_in_files()


@worker_ready.connect(weak=False)
def warn_and_serve(**_: Any) -> None:
    """Name the risks of this broker, and serve the counts of all children."""
    if is_redis(str(app.conf.broker_url)):
        with app.connection_for_read() as connection:
            for risk in risks(connection):
                logger.warning("Redis: %s.", risk)
    metrics.serve(settings.load(app, os.environ).environment.WORKER_METRICS_PORT)


@worker_shutdown.connect(weak=False)
def clean_up(**_: Any) -> None:
    """Leave no files behind."""
    metrics.remove_files()
