"""Two handlers of one topic: one needs the bank, which is down while a file says so, and one does not."""

import os
from pathlib import Path
from typing import Any

from tasks import Breaker, handler
from tests.handlers.notes import topic

bank = Breaker("bank", failures=4, probe_every=1, probe_within=5, ramp=1)


def count(name: str) -> None:
    """One more has run: a byte a run."""
    file = os.open(f"{os.environ['TEST_RUNS']}.{name}", os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.write(file, b"x")
    os.close(file)


@handler(topic("orders"), name="charge", breaker=bank, batch=500)
def charge(order: Any) -> None:
    """Needs the bank."""
    if Path(os.environ["TEST_RUNS"] + ".down").exists():
        raise ConnectionError("the bank is down")
    count("charge")


@handler(topic("orders"), name="mail", batch=500)
def mail(order: Any) -> None:
    """Needs none."""
    count("mail")
