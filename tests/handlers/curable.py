"""The handlers of the desk's chaos run: each dies until it was sent back as often as its record says.

It writes into the book when it begins and when it has done, and how often it had been sent back by then.
"""

import os
import signal
import time
from typing import Any

from tasks import DeadLetter, Message, handler
from tests.handlers.book import enter

#: Through Celery, and through retry topics (`kafka_park_after` is 1).
RETRIES: dict[str, Any] = {"retry_delays": (0.1, 0.2)}
PARKS: dict[str, Any] = {"retry_delays": (1, 1)}
_PREFIX = os.environ.get("TEST_PREFIX", "test")


def act(name: str, message: Message) -> None:
    """What the header `do` says, for the handler that `who` names, if it names one: see tests/chaos/desk/topics.py."""
    headers = {label: (raw or b"").decode() for label, raw in message.headers}
    said = headers["do"] if headers.get("who", name) == name else "ok"
    do, _, times = said.partition(" ")
    back = message.attempts.replayed
    enter(name, headers["uid"], message, f"begun {back}")
    if times and back < int(times):
        _die(do)
    enter(name, headers["uid"], message, f"done {back}")


def _die(how: str) -> None:
    if how == "slow":
        time.sleep(0.5)
    if how == "fail":
        raise ConnectionError("as it says")
    if how == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    raise DeadLetter("as it says")


def declare(name: str, topic: str = "", **options: Any) -> None:
    """A handler of the topic of its own name, or of another."""

    def run(order: Any, message: Message) -> None:
        act(name, message)

    handler(f"{_PREFIX}.{topic or name}", name=name, **{**RETRIES, **options})(run)


# tests/chaos/desk/topics.py has what becomes of each topic.
declare("queued")
declare("kept", batch=20)
declare("both")
declare("both_too", "both")
declare("keyed")
declare("first", "steps")
declare("second", "steps")
declare("parked", **PARKS)
