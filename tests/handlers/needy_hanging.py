"""A bank that hangs while a file says that it is down: what calls it runs into its hard time limit."""

import os
import time
from pathlib import Path
from typing import Any

from tasks import Breaker, Message, handler
from tests.handlers.notes import note, topic

bank = Breaker("bank", failures=3, probe_every=1, probe_within=5, ramp=1)


@handler(topic("orders"), name="charge", breaker=bank, time_limit=1, batch=1)
def charge(order: Any, message: Message) -> None:
    """Does not come back while the bank is down."""
    note("charge", message, order, "begun")
    if Path(os.environ["TEST_RUNS"] + ".down").exists():
        time.sleep(60)
    note("charge", message, order)
