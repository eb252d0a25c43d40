"""The demo's records: a stream of orders, of which some fail in every way."""

import json
import random
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any, Final

#: Where the folder `examples` is once it is installed (pyproject.toml, package-dir).
_INSTALLED: Final = "bridge.demo.examples"
#: The topic, and its handlers, which are a user's package and known here by their names alone.
TOPIC: Final = "orders"
HANDLERS_MODULE: Final = f"{_INSTALLED if find_spec(_INSTALLED) else 'examples'}.orders.handlers"
HANDLERS: Final = ("charge", "notify")

#: Seconds of the topics in which their longer waits go (stack.py, SETTINGS): of 2 s and more.
TIERS: Final = (2, 3)

CUSTOMERS: Final = ("ada", "alan", "barbara", "dennis", "edsger", "frances", "grace", "ken", "niklaus", "tony")
#: Every how many orders there is one that makes trouble, on average.
TROUBLE_EVERY: Final = 3


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of order.

    Attributes:
        name: what makes it special.
        changes: what it has that an ordinary order has not; `None` takes a field away.
        raw: the whole value, where it is no order at all.
    """

    name: str
    changes: tuple[tuple[str, Any], ...] = ()
    raw: bytes | None = b""


ORDINARY: Final = Kind("ordinary")
TROUBLED: Final = (
    Kind("bank away, then back", (("trouble", "bank away"),)),
    Kind("bank busy, says when", (("trouble", "bank busy"),)),
    Kind("bank hangs once", (("trouble", "bank hangs"),)),
    Kind("bank away for good", (("trouble", "bank gone"),)),
    Kind("bank closed for hours", (("trouble", "bank closed"),)),
    Kind("card declined", (("trouble", "declined"),)),
    Kind("error without a text", (("trouble", "unprintable"),)),
    Kind("too much for a card", (("amount", 25_000.0),)),
    Kind("unknown currency: bug", (("currency", "XAU"),)),
    Kind("mail away, then back", (("trouble", "mail away"),)),
    Kind("mail away for good", (("trouble", "mail gone"),)),
    Kind("no such mailbox", (("trouble", "no mailbox"),)),
    Kind("amount missing", (("amount", None),)),
    Kind("not JSON", raw=b'{"id": 17, "customer": "gr\xe4ce"'),
    Kind("deleted (null value)", raw=None),
)
KINDS: Final = (ORDINARY, *TROUBLED)


@dataclass(frozen=True, slots=True)
class Order:
    """A record to produce, and its kind."""

    kind: str
    key: bytes
    value: bytes | None


def stream(seed: int) -> Iterator[Order]:
    """Orders without end, the same for the same seed; no kind of trouble comes twice before all have come."""
    chance = random.Random(seed)
    trouble: list[Kind] = []
    number = 1000
    while True:
        number += 1
        kind = ORDINARY
        if chance.random() < 1 / TROUBLE_EVERY:
            trouble = trouble or chance.sample(TROUBLED, len(TROUBLED))
            kind = trouble.pop()
        yield _order(kind, number, chance)


def _order(kind: Kind, number: int, chance: random.Random) -> Order:
    customer = chance.choice(CUSTOMERS)
    order: dict[str, Any] = {
        "id": number,
        "customer": f"{customer}@example.com",
        "amount": round(chance.uniform(5, 500), 2),
        "currency": chance.choice(("EUR", "EUR", "USD", "GBP")),
        **dict(kind.changes),
    }
    fields = {name: value for name, value in order.items() if value is not None}
    value = json.dumps(fields).encode() if kind.raw == b"" else kind.raw
    return Order(kind.name, customer.encode(), value)
