"""The handlers of the chaos run of holds: each dies until it was sent back as often as its record says.

It writes into the book when it begins and when it has done.
"""

import asyncio
import os
import time
from typing import Any

from tasks import DeadLetter, Message, Messages, handler
from tests.handlers.book import enter

#: Through Celery, and through retry topics (`kafka_park_after` is 1).
RETRIES: dict[str, Any] = {"retry_delays": (0.1, 0.2)}
PARKS: dict[str, Any] = {"retry_delays": (1, 1)}
_PREFIX = os.environ.get("TEST_PREFIX", "test")


def _error(name: str, message: Message) -> Exception | None:
    """What the header `do` says, for the handler that `who` names, if it names one: see tests/chaos/test_holds.py."""
    headers = {label: (raw or b"").decode() for label, raw in message.headers}
    said = headers["do"] if headers.get("who", name) == name else "ok"
    do, _, times = said.partition(" ")
    if do == "dead" and message.attempts.replayed < int(times):
        return DeadLetter("as it says")
    if do == "fail" and message.attempt <= int(times):
        return ConnectionError("as it says")
    return None


def _enter(name: str, message: Message, outcome: str) -> None:
    uid = next((raw or b"").decode() for label, raw in message.headers if label == "uid")
    enter(name, uid, message, outcome)


def declare(name: str, topic: str = "", **options: Any) -> None:
    """A handler of the topic of its own name, or of another."""

    def run(order: Any, message: Message) -> None:
        _enter(name, message, "begun")
        time.sleep(0.005)
        if error := _error(name, message):
            raise error
        _enter(name, message, "done")

    handler(f"{_PREFIX}.{topic or name}", name=name, **{**RETRIES, **options})(run)


@handler(f"{_PREFIX}.side", name="side", concurrency="auto", **RETRIES)
async def side(order: Any, message: Message) -> None:
    """It waits most of its time."""
    _enter("side", message, "begun")
    await asyncio.sleep(0.05)
    if error := _error("side", message):
        raise error
    _enter("side", message, "done")


@handler(f"{_PREFIX}.bulk", name="bulk", bulk=20, **RETRIES)
def bulk(orders: list[Any], messages: Messages) -> None:
    """It blames each that fails."""
    for number, message in enumerate(messages):
        _enter("bulk", message, "begun")
        if error := _error("bulk", message):
            messages.fail(number, error)
    for number, message in enumerate(messages):
        if number not in messages.blamed:
            _enter("bulk", message, "done")


declare("keyed")
declare("fixed", batch=20)
declare("line", batch=10)
declare("parked", **PARKS)
declare("one", "both")
declare("other", "both", batch=20)
