"""The lead of this host's clock over that of Redis, by which all retries become due."""

import os
from contextlib import suppress
from typing import Final

from celery import Celery

from bridge.errors import BridgeError
from bridge.formats.delivery import Batch
from bridge.ledger import Ledger
from bridge.ledger.clock_skew import ClockSkew
from tasks.execution.batch_fates import BatchFates

_skews: Final[dict[tuple[int, Ledger], ClockSkew]] = {}


def measure_clock_lead(app: Celery, batch: Batch) -> float:
    """Return the seconds by which this host's clock is ahead, as last measured; 0 if it is right or unknown."""
    ledger = BatchFates.for_batch(app, batch).ledger
    if ledger is None:
        return 0.0
    # By process: after a fork the parent's connection must not be used.
    key = (os.getpid(), ledger)
    if key not in _skews:
        _skews[key] = ClockSkew(ledger)
    with suppress(BridgeError):
        _skews[key].measure()
    return _skews[key].ahead


def measure_countdown_lead(app: Celery, batch: Batch) -> float:
    """Return the seconds by which a countdown's due time is corrected.

    It is 0 unless the broker is Redis: on others the worker itself waits for the due time, by its own clock.
    """
    lead = measure_clock_lead(app, batch)
    return lead if lead and app.connection_for_write().transport.driver_type == "redis" else 0.0
