"""The handlers of the chaos suite: each does what its record says, and writes into the book when it begins and when it
has done. What a record says stands in its headers, so that its value may be anything.
"""

import os
import signal
import time
from pathlib import Path
from typing import Any

import tasks
from tasks import DeadLetter, Message, RetryLater, handler
from tests.handlers.book import enter

#: Through Celery, and through retry topics (`kafka_park_after` is 1).
RETRIES: dict[str, Any] = {"retry_delays": (0.3, 0.5, 0.8)}
TIERS: dict[str, Any] = {"retry_delays": (1, 2, 3)}
_PREFIX = os.environ.get("TEST_PREFIX", "test")


class BankAwayError(Exception):
    """What the handler `needs` needs does not answer."""


def act(name: str, order: Any, message: Message) -> None:
    """What the header `do` says, for the handler that `who` names, if it names one: see tests/chaos/load.py."""
    headers = {label: (raw or b"").decode() for label, raw in message.headers}
    said = headers["do"] if headers.get("who", name) == name else "ok"
    do, _, how = said.partition(" ")
    enter(name, headers["uid"], message, "begun")
    if do == "sleep":
        time.sleep(float(how))
    elif do == "dead":
        raise DeadLetter("as it says")
    elif do == "fail" and message.attempt <= int(how):
        raise ConnectionError("as it says")
    elif do == "later" and message.attempt == 1:
        raise RetryLater(float(how))
    elif do == "kill" and _kills(name, headers["uid"]) < int(how):
        os.kill(os.getpid(), signal.SIGKILL)
    if name == "needs" and Path(f"{os.environ['BOOK']}.away").exists():
        raise BankAwayError("the bank is away")
    # The old version cannot send.
    if name == "sends" and hasattr(message, "publish"):
        message.publish(f"{_PREFIX}.out", headers["uid"], key=message.key)
        message.publish(f"{_PREFIX}.out", None, key=headers["uid"])
        enter(name, headers["uid"], message, "sent")
    enter(name, headers["uid"], message, "done")


def _kills(name: str, uid: str) -> int:
    """How often this delivery was here before: a killed run leaves no count in the message."""
    mark = Path(f"{os.environ['BOOK']}.{name}.{uid}")
    with mark.open("ab") as file:
        file.write(b"x")
    return mark.stat().st_size - 1


def declare(name: str, topic: str = "", **options: Any) -> None:
    """A handler of the topic of its own name, or of another."""

    def run(order: Any, message: Message) -> None:
        act(name, order, message)

    handler(f"{_PREFIX}.{topic or name}", name=name, **{**RETRIES, **options})(run)


# tests/chaos/topics.py has what becomes of each topic.
declare("auto")
declare("fixed", batch=20)
declare("single", batch=1)
declare("both")
declare("both_too", "both", batch=50)
declare("keyed")
declare("keyed_fixed", batch=20)
declare("line", batch=10)
declare("first", "steps")
declare("second", "steps")
declare("tiers", **TIERS)
declare("tiers_done", batch=20, **TIERS)
declare("tiers_keyed", **TIERS)
declare("third", "tiers_steps", **TIERS)
declare("fourth", "tiers_steps", batch=10, **TIERS)
# The old version has no breakers; it may fail as long as the bank is away.
if hasattr(tasks, "Breaker"):
    bank = tasks.Breaker("bank", failures=5, failures_of=BankAwayError, probe_every=1, ramp=2)
    declare("needs", retry_delays=(0.5,) * 20, breaker=bank)
else:
    declare("needs", retry_delays=(0.5,) * 20)
declare("sends")
declare("again")
declare("cut", batch=5)
