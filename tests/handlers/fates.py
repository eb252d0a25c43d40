"""Handlers for the promises of the ledger: each does what its record says."""

import json
import os
import signal
import time
from functools import cache
from pathlib import Path
from typing import Any

from pydantic import BaseModel
from sqlalchemy import Engine, create_engine, text
from sqlalchemy.orm import Session

from tasks import DeadLetter, Message, RetryLater, StopConsuming, handler
from tests.handlers.notes import note, topic

#: A number, or "auto".
BATCH: Any = json.loads(os.environ.get("TEST_BATCH", "1"))
RETRIES: dict[str, Any] = {"retry_delays": (0.3,) * 5}
FOREVER: dict[str, Any] = {"max_retries": None, "retry_backoff": 1, "retry_backoff_max": 1, "retry_jitter": False}


class BankShut(Exception):
    """Halts the topic, by the handlers' option."""


def act(name: str, order: Any, message: Message) -> None:
    """`{"sleep": s}` takes so long, and `{"linger": "path"}` half a second until that file is there; `{"hold": "path"}`
    until that file is there; `{"dead": true}` dies; `{"fail": n}` fails n times; `{"kill": n}` kills its process n
    times; `{"until": "path"}` fails until that file is there; a handler's name before a word makes it that one's.
    `{"stop": "path"}` halts the topic until that file is there, and `{"leave": "path"}` by the option `stop_for`;
    `{"mend": "path"}` dies until it is there; `{"later": n}` asks n times for a second, or for `{"pause": s}`."""
    said = order if isinstance(order, dict) else {}
    said = {**said, **said.get(name, {})}
    note(name, message, order, "begun")
    time.sleep(_lasts(said))
    while "hold" in said and not Path(said["hold"]).exists():
        time.sleep(0.05)
    if "stop" in said and not Path(said["stop"]).exists():
        raise StopConsuming("the bank books twice")
    if "leave" in said and not Path(said["leave"]).exists():
        raise BankShut("as it says")
    if said.get("dead") or ("mend" in said and not Path(said["mend"]).exists()):
        raise DeadLetter("as it says")
    if message.attempts.postponed < said.get("later", 0):
        raise RetryLater(said.get("pause", 1), "busy")
    if message.attempt <= said.get("fail", 0):
        raise ConnectionError("as it says")
    if "until" in said and not Path(said["until"]).exists():
        raise ConnectionError("not yet")
    if said.get("kill", 0) > _kills(name, message):
        os.kill(os.getpid(), signal.SIGKILL)
    note(name, message, order)


def _lasts(said: dict[str, Any]) -> float:
    if "linger" in said and not Path(said["linger"]).exists():
        return 0.5
    return float(said.get("sleep", 0.0))


def _kills(name: str, message: Message) -> int:
    """How often this delivery was here before: a killed run leaves no count in the message."""
    mark = Path(f"{os.environ['TEST_RUNS']}.{name}.{message.coordinates}")
    with mark.open("ab") as file:
        file.write(b"x")
    return mark.stat().st_size - 1


def declare(name: str, of: str = "", **options: Any) -> None:
    """A handler of the topic of its own name, or of another."""

    def run(order: Any, message: Message) -> None:
        act(name, order, message)

    handler(topic(of or name), name=name, **{**RETRIES, "stop_for": (BankShut,), **options})(run)


declare("orders", batch=BATCH)
declare("many", batch=200)
declare("found")
declare("limited", rate_limit="1000/s")
declare("slow", batch=200, batch_seconds=1)
declare("odd", batch=200)
declare("odd_too", "odd", **({"queue": os.environ["TEST_STILL_QUEUE"]} if "TEST_STILL_QUEUE" in os.environ else {}))
declare("keyed")
declare("keyed_batches", batch=200)
declare("line")
# Longer than a test waits.
declare("patient", retry_delays=(50,) * 5)
declare("named", unique_by="header:message_id")
declare("named_many", batch=200, unique_by="field:id")
declare("blocking", batch=5, retry_delays=None, **FOREVER)


@handler(topic("steps"), batch=BATCH, **RETRIES)
def first(order: Any, message: Message) -> None:
    act("first", order, message)


@handler(topic("steps"), batch=BATCH, **RETRIES)
def second(order: Any, message: Message) -> None:
    act("second", order, message)


@handler(topic("steps"), batch=BATCH, **RETRIES)
def third(order: Any, message: Message) -> None:
    act("third", order, message)


class Numbered(BaseModel):
    id: int


def _to_today(value: Any) -> Any:
    return {"id": value["number"]}


class Older(BaseModel):
    number: int


def _parks(order: Older, message: Message) -> None:
    """The same of the model before, while the bank was away."""
    note("modelled", message, order.number, "begun")
    raise ConnectionError("no line")


def modelled(order: Numbered, message: Message) -> None:
    """Of a model whose `id` was called `number` once."""
    note("modelled", message, order.id)


# A worker of the version before has its own.
_OLDER: dict[str, Any] = {"retry_delays": (int(os.environ["TEST_OLDER"]),)} if "TEST_OLDER" in os.environ else {}
_UPGRADE = _to_today if "TEST_UPGRADE" in os.environ else None
handler(topic("modelled"), name="modelled", upgrade=_UPGRADE, **_OLDER)(_parks if _OLDER else modelled)


@handler(topic("payments"), retry_delays=(0.3, 0.3, 0.3))
def pay(order: Any, message: Message) -> None:
    """Books an amount; `{"kill": true}` kills its process after the first commit, `{"roll_back": n}` rolls back n
    times, `{"fail": n}` fails n times after the commit."""
    note("pay", message, order, "begun")
    with Session(_engine()) as session:
        session.execute(text("INSERT INTO payments (id) VALUES (:id)"), {"id": order["id"]})
        message.settle_with(session)
        if message.attempt <= order.get("roll_back", 0):
            raise ConnectionError("before the commit")
        session.commit()
    if order.get("kill"):
        os.kill(os.getpid(), signal.SIGKILL)
    if message.attempt <= order.get("fail", 0):
        raise ConnectionError("after the commit")
    note("pay", message, order)


@cache
def _engine() -> Engine:
    return create_engine(os.environ["TEST_DATABASE"])


def _send(name: str, order: Any, message: Message) -> None:
    """`{"send": n}` sends so many, `{"large": true}` one that no topic takes, once the file of `{"hold": "path"}` is
    there; `{"fail": n}` fails n times after that."""
    note(name, message, order, "begun")
    while "hold" in order and not Path(order["hold"]).exists():
        time.sleep(0.05)
    for number in range(order.get("send", 0)):
        message.publish(topic("invoices"), {"id": order["id"], "number": number}, key=str(order["id"]))
    if order.get("large"):
        message.publish(topic("invoices"), b"x" * 1_100_000)
    if message.attempt <= order.get("fail", 0):
        raise ConnectionError("after it was to be sent")


SOON: dict[str, Any] = {"retry_delays": (0.3, 0.3, 0.3)}


@handler(topic("sends"), **SOON)
def send(order: Any, message: Message) -> None:
    _send("send", order, message)
    note("send", message, order)


@handler(topic("sends_with_work"), **SOON)
def send_with_work(order: Any, message: Message) -> None:
    """The same in a transaction, with `{"kill": true}` after its commit."""
    with Session(_engine()) as session:
        session.execute(text("INSERT INTO payments (id) VALUES (:id)"), {"id": order["id"]})
        message.settle_with(session)
        _send("send_with_work", order, message)
        session.commit()
    if order.get("kill"):
        os.kill(os.getpid(), signal.SIGKILL)
    note("send_with_work", message, order)
