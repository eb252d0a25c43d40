"""The handlers of the chaos suite: each does what its record says, and writes into the book when it begins and when it
has done. What a record says stands in its headers, so that its value may be anything.
"""

import asyncio
import json
import os
import signal
import time
from pathlib import Path
from typing import Any, NamedTuple

import tasks
from tasks import DeadLetter, Message, RetryLater, handler
from tests.handlers.book import enter

#: Through Celery, and through retry topics (`kafka_park_after` is 1).
RETRIES: dict[str, Any] = {"retry_delays": (0.3, 0.5, 0.8)}
TIERS: dict[str, Any] = {"retry_delays": (1, 2, 3)}
_PREFIX = os.environ.get("TEST_PREFIX", "test")


class BankAwayError(Exception):
    """What the handler `needs` needs does not answer."""


class Doing(NamedTuple):
    """What a record has its handler do, and for how long or how often."""

    do: str
    how: str


def read_doing(name: str, message: Message) -> Doing:
    """What the header `do` says, for the handler that `who` names, if it names one: see tests/chaos/load.py."""
    headers = {label: (raw or b"").decode() for label, raw in message.headers}
    said = headers["do"] if headers.get("who", name) == name else "ok"
    do, _, how = said.partition(" ")
    return Doing(do, how)


#: How a run begins in the book: "named" if the version knows unique names, "limited" if it knows limits.
BEGUN = "begun"


def begin(name: str, message: Message, word: str = BEGUN) -> Doing:
    """Write that a run begins, and return what it is to do."""
    enter(name, read_uid(message), message, word)
    return read_doing(name, message)


def read_uid(message: Message) -> str:
    """The load's own name of a record."""
    return (message.header("uid") or b"").decode()


def act(name: str, order: Any, message: Message, word: str = BEGUN, takes: float = 0.0) -> None:
    """Do what a record says."""
    doing = begin(name, message, word)
    time.sleep(float(doing.how) if doing.do == "sleep" else takes)
    finish(name, message, doing)


def fault(message: Message, doing: Doing) -> Exception | None:
    """What a record has its handler raise."""
    if doing.do == "dead":
        return DeadLetter("as it says")
    if doing.do == "fail" and message.attempt <= int(doing.how):
        return ConnectionError("as it says")
    if doing.do == "later" and message.attempt == 1:
        return RetryLater(float(doing.how))
    return None


def finish(name: str, message: Message, doing: Doing) -> None:
    """Raise or kill, if the record says so; else send, if the handler sends, and write that it is done."""
    uid = read_uid(message)
    if (error := fault(message, doing)) is not None:
        raise error
    if doing.do == "kill" and _kills(name, uid) < int(doing.how):
        os.kill(os.getpid(), signal.SIGKILL)
    if name == "needs" and Path(f"{os.environ['BOOK']}.away").exists():
        raise BankAwayError("the bank is away")
    # The old version cannot send.
    if name == "sends" and hasattr(message, "publish"):
        message.publish(f"{_PREFIX}.out", uid, key=message.key)
        message.publish(f"{_PREFIX}.out", None, key=uid)
        enter(name, uid, message, "sent")
    enter(name, uid, message, "done")


def _kills(name: str, uid: str) -> int:
    """How often this delivery was here before: a killed run leaves no count in the message."""
    mark = Path(f"{os.environ['BOOK']}.{name}.{uid}")
    with mark.open("ab") as file:
        file.write(b"x")
    return mark.stat().st_size - 1


def declare(name: str, topic: str = "", *, word: str = BEGUN, takes: float = 0.0, **options: Any) -> None:
    """A handler of the topic of its own name, or of another."""

    def run(order: Any, message: Message) -> None:
        act(name, order, message, word, takes)

    handler(f"{_PREFIX}.{topic or name}", name=name, **{**RETRIES, **options})(run)


def declare_beside(name: str, *, word: str = BEGUN, takes: float = 0.002, **options: Any) -> None:
    """An async handler of the topic of its own name, of which several run at once."""

    async def run(order: Any, message: Message) -> None:
        doing = begin(name, message, word)
        await asyncio.sleep(float(doing.how) if doing.do == "sleep" else takes)
        finish(name, message, doing)

    handler(f"{_PREFIX}.{name}", name=name, concurrency=8, **{**RETRIES, **options})(run)


def declare_bulk(name: str, *, blames: bool) -> None:
    """A bulk handler of the topic of its own name.

    Parameters:
        blames: whether it fails each record that says so, and does the others; else it does nothing and raises for all,
            so that nothing is done before what is in front of it. A later time is for single ones: it asks for none.
    """

    def run(orders: list[Any], messages: Any) -> None:
        failed = {
            index: error
            for index, message in enumerate(messages)
            if (error := fault(message, read_doing(name, message))) is not None
            and (blames or not isinstance(error, RetryLater))
        }
        if failed and not blames:
            raise next(iter(failed.values()))
        for index, error in failed.items():
            messages.fail(index, error)
        for index, message in enumerate(messages):
            if index not in failed:
                doing = begin(name, message)
                finish(name, message, doing if doing.do != "later" else Doing("ok", ""))

    handler(f"{_PREFIX}.{name}", name=name, bulk=50, **RETRIES)(run)


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
# The old version runs these one by one, and knows no names.
if hasattr(tasks, "Messages"):
    declare_beside("beside")
    declare_beside("beside_keyed")
    declare_bulk("bulk", blames=True)
    declare_bulk("bulk_keyed", blames=False)
    declare("unique", word="named", unique_by="header:uid")
    declare_beside("unique_beside", word="named", unique_by="header:uid")
else:
    for each in ("beside", "beside_keyed", "bulk", "bulk_keyed", "unique", "unique_beside"):
        declare(each)
# The old version runs these without a limit.
if hasattr(tasks, "Limit"):
    till = tasks.Limit("till", by=lambda message: message.key, **json.loads(os.environ["CHAOS_LIMIT"]))
    declare_beside("limited", word="limited", takes=0.05, limit=till)
    declare("limited_keyed", word="limited", takes=0.05, limit=till)
else:
    declare("limited")
    declare("limited_keyed")
