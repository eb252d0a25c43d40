"""Handlers of the outage: one needs a bank that is down while a file is there, one needs nothing."""

import os
import time
from pathlib import Path
from typing import Any

from tasks import Breaker, Message, handler

BANK: dict[str, Any] = {"breaker": Breaker("bank")} if os.environ["BREAKER"] == "1" else {}


def _note(name: str, sent: float, failed: int) -> None:
    line = f"{name} {sent} {time.time()} {failed}\n".encode()
    file = os.open(os.environ["NOTES"], os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    try:
        os.write(file, line)
    finally:
        os.close(file)


@handler(f"charges{os.environ['BREAKER']}", name="charge", retry_delays=(0.5,) * 10, **BANK)
def charge(sent: float, message: Message) -> None:
    """Retries for 5 s: as long to the outage as the default 20 min are to an hour."""
    if Path(os.environ["NOTES"] + ".down").exists():
        raise ConnectionError("the bank is down")
    time.sleep(0.002)
    _note("charge", sent, message.attempts.failed)


@handler(f"mails{os.environ['BREAKER']}", name="mail")
def mail(sent: float) -> None:
    """Needs no bank."""
    time.sleep(0.002)
    _note("mail", sent, 0)
