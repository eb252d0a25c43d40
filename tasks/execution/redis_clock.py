"""The lead of this host's clock over that of Redis, by which all retries become due."""

import os
from typing import Final

from celery import Celery

from bridge.errors import BridgeError
from bridge.formats.delivery import Batch
from bridge.ledger import Ledger
from bridge.ledger.clock_skew import ClockSkew
from tasks.execution.batch_fates import BatchFates

_skews: Final[dict[tuple[int, Ledger], ClockSkew]] = {}


def measure_clock_lead(app: Celery, batch: Batch) -> float:
    """Return the seconds by which this host's clock is ahead; 0 if it is right, or Redis does not answer."""
    ledger = BatchFates.of(app, batch).ledger
    if ledger is None:
        return 0.0
    # By process: after a fork the parent's connection must not be used.
    key = (os.getpid(), ledger)
    if key not in _skews:
        _skews[key] = ClockSkew(ledger)
    try:
        _skews[key].measure()
    except BridgeError:
        return 0.0
    return _skews[key].ahead
