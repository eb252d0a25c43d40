"""Handlers of a bank and of none: the bank is down while a file says so."""

import os
import time
from pathlib import Path
from typing import Any

from tasks import Breaker, Message, handler
from tests.handlers.notes import note, topic

BATCH: Any = os.environ.get("TEST_BATCH", "auto")
bank = Breaker(
    os.environ.get("TEST_BANK", "bank"),
    failures=4,
    probe_every=1,
    probe_within=float(os.environ.get("TEST_PROBE_WITHIN", "5")),
    ramp=2,
)


@handler(
    topic("orders"),
    name="charge",
    breaker=bank,
    batch=BATCH if BATCH == "auto" else int(BATCH),
    max_retries=2,
    retry_backoff=1,
    retry_backoff_max=1,
)
def charge(order: Any, message: Message) -> None:
    """Fails while the bank is down; one that says so kills its process or never succeeds."""
    said = order if isinstance(order, dict) else {}
    hold = Path(os.environ["TEST_RUNS"] + ".hold")
    note("charge", message, order, "begun")
    while hold.exists():
        time.sleep(0.02)
    time.sleep(float(os.environ.get("TEST_TAKES", "0")))
    if Path(os.environ["TEST_RUNS"] + ".down").exists():
        note("charge", message, order, "failed")
        raise ConnectionError("the bank is down")
    if said.get("broken"):
        raise ValueError("always")
    note("charge", message, order)


@handler(topic("mails"), name="mail", batch=1)
def mail(order: Any, message: Message) -> None:
    """Needs no bank."""
    note("mail", message, order)
