"""A user's package under `mypy --strict`: what is right passes, and every mistake is found."""

import re
import sys
from pathlib import Path

import pytest

from tests.processes import ROOT, Process

#: A comment names the error that mypy must find in its line; in no other may it find one.
PACKAGE = """
from typing import Any

from pydantic import BaseModel

from tasks import Attempts, DeadLetter, HandlerTask, Message, RetryLater, handler
from tasks.testing import outcome, outcome_of


class Order(BaseModel):
    id: int


@handler("orders", autoretry_for=(ConnectionError,), max_retries=5, retry_backoff=1, retry_backoff_max=60)
def charge(order: Order) -> int:
    if order.id < 0:
        raise DeadLetter("no such order")
    return order.id


@handler("orders", "returns", retry_delays=(300, 1800), dead_letter_for=KeyError, queue="mail", aliases=("old",))
def notify(order: dict[str, int], message: Message) -> None:
    raise RetryLater(delay=30, why=message.coordinates)


@handler("orders", bind=True, max_retries=None)
def bound(self: HandlerTask, order: Order) -> str:
    raise self.retry(countdown=3)


@handler("orders", codec=bytes, batch=200, rate_limit="5/s", name="raw")
async def raw(value: bytes) -> bytes:
    return value


def by_status(message: Message, error: Exception, attempts: Attempts) -> float | DeadLetter | type[DeadLetter] | None:
    return 60 * attempts.failed if isinstance(error, ConnectionError) else None


def always(message: Message, error: BaseException, attempts: Attempts) -> type[DeadLetter]:
    return DeadLetter


@handler("orders", retry_when=by_status)
def asks(order: Order) -> None: ...


@handler("orders", retry_when=always)
def asks_too(order: Order) -> None: ...


@handler("orders", retry_when=lambda message, error, attempts: 5 if message.header("test") else None)
def asks_three(order: Order) -> None: ...


def from_cents(value: dict[str, int]) -> dict[str, int]:
    return {"id": value["number"]}


@handler("orders", upgrade=from_cents)
def upgrades(order: Order) -> None: ...


async def right(message: Message) -> None:
    number: int = charge(Order(id=1))
    notify({"id": number}, message)
    text: str = bound(Order(id=1))
    value: bytes = await raw(b"1")
    charge.delay(Order(id=1))
    seconds: float | None = outcome(charge, {"id": 1}, attempt=3).delay
    reason: str | None = outcome_of(asks, ConnectionError(), attempt=13).reason
    taken: bool | None = upgrades.check_value(b"{}").ok
    print(text, value, seconds, reason, charge.name, taken)


async def wrong(message: Message) -> None:
    charge("text")  # error: arg-type
    charge()  # error: call-arg
    charge(Order(id=1), message)  # error: call-arg
    text: str = charge(Order(id=1))  # error: assignment
    notify({"id": 1})  # error: call-arg
    bound(bound, Order(id=1))  # error: call-arg, arg-type
    value: bytes = raw(b"1")  # error: assignment
    RetryLater("soon")  # error: arg-type
    outcome(charge)  # error: call-arg
    outcome(wrong, 1)  # error: arg-type
    outcome_of(asks, "error")  # error: arg-type


@handler("orders", retry_backof=1)  # error: call-overload, untyped-decorator
def misspelt(order: Any) -> None: ...


@handler("orders", upgrade="from_cents")  # error: call-overload, untyped-decorator
def upgraded_by_a_name(order: Any) -> None: ...


@handler("orders", max_retries="5")  # error: call-overload, untyped-decorator
def a_text(order: Any) -> None: ...


@handler("orders", dead_letter_for=ValueError("x"))  # error: call-overload, untyped-decorator
def an_instance(order: Any) -> None: ...


def answers_in_words(message: Message, error: Exception, attempts: Attempts) -> str:
    return "soon"


def of_two(message: Message, error: Exception) -> float:
    return 5


@handler("orders", retry_when=answers_in_words)  # error: arg-type
def in_words(order: Any) -> None: ...


@handler("orders", retry_when=of_two)  # error: arg-type
def by_two(order: Any) -> None: ...


@handler(5)  # error: call-overload, untyped-decorator
def a_number(order: Any) -> None: ...
"""


@pytest.mark.slow
def test_mypy_finds_every_mistake_of_a_users_package_and_nothing_else(tmp_path: Path):
    (tmp_path / "shop.py").write_text(PACKAGE)
    # Kept between runs: the first reads the libraries for half a minute.
    cache = ROOT / ".mypy_cache" / "users"
    options = ("--strict", "--config-file=", f"--cache-dir={cache}", "--no-error-summary", "--no-pretty")
    command = (sys.executable, "-m", "mypy", *options, "shop.py")
    run = Process("mypy", command, {"PATH": "", "MYPYPATH": str(ROOT)}, tmp_path, tmp_path)
    run.ends(240)
    found: dict[int, set[str]] = {}
    for line, kind in re.findall(r"^shop\.py:(\d+): error: .*\[([a-z-]+)\]$", run.text, re.MULTILINE):
        found.setdefault(int(line), set()).add(kind)
    wanted = {
        number: set(line.partition("# error: ")[2].split(", "))
        for number, line in enumerate(PACKAGE.splitlines(), 1)
        if "# error: " in line
    }
    assert found == wanted, run.text
