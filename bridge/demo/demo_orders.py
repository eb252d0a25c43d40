"""The orders of the demo: a stream of records, some of which fail in every way."""

import json
import random
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any, Final

#: The installed place of the folder `examples` (pyproject.toml, package-dir).
_INSTALLED: Final = "bridge.demo.examples"
#: The topic and its handlers, which are in a user's package and known here by name only.
TOPIC: Final = "orders"
HANDLERS_MODULE: Final = f"{_INSTALLED if find_spec(_INSTALLED) else 'examples'}.orders.handlers"
HANDLERS: Final = ("charge", "notify")

#: The delays of the demo's retry topics in seconds, for waits of 2 s and more (demo_servers.py, SETTINGS).
TIERS: Final = (2, 3)

CUSTOMERS: Final = ("ada", "alan", "barbara", "dennis", "edsger", "frances", "grace", "ken", "niklaus", "tony")
#: One of so many orders fails, on average.
TROUBLE_EVERY: Final = 3


@dataclass(frozen=True, slots=True)
class OrderKind:
    """A kind of order.

    Attributes:
        name: its speciality.
        changes: the fields that differ from an ordinary order; `None` removes a field.
        raw: the whole value, if it is no order at all.
    """

    name: str
    changes: tuple[tuple[str, Any], ...] = ()
    raw: bytes | None = b""


ORDINARY: Final = OrderKind("ordinary")
TROUBLED: Final = (
    OrderKind("bank away, then back", (("trouble", "bank away"),)),
    OrderKind("bank busy, says when", (("trouble", "bank busy"),)),
    OrderKind("bank hangs once", (("trouble", "bank hangs"),)),
    OrderKind("bank away for good", (("trouble", "bank gone"),)),
    OrderKind("bank closed for hours", (("trouble", "bank closed"),)),
    OrderKind("card declined", (("trouble", "declined"),)),
    OrderKind("error without a text", (("trouble", "unprintable"),)),
    OrderKind("too much for a card", (("amount", 25_000.0),)),
    OrderKind("unknown currency: bug", (("currency", "XAU"),)),
    OrderKind("mail away, then back", (("trouble", "mail away"),)),
    OrderKind("mail away for good", (("trouble", "mail gone"),)),
    OrderKind("no such mailbox", (("trouble", "no mailbox"),)),
    OrderKind("amount missing", (("amount", None),)),
    OrderKind("not JSON", raw=b'{"id": 17, "customer": "gr\xe4ce"'),
    OrderKind("deleted (null value)", raw=None),
)
ORDER_KINDS: Final = (ORDINARY, *TROUBLED)


@dataclass(frozen=True, slots=True)
class Order:
    """A record to produce, and its kind."""

    kind: str
    key: bytes
    value: bytes | None


def generate_orders(seed: int) -> Iterator[Order]:
    """Yield endless orders, the same for the same seed; each kind of failure occurs once before any occurs again."""
    chance = random.Random(seed)
    trouble: list[OrderKind] = []
    number = 1000
    while True:
        number += 1
        kind = ORDINARY
        if chance.random() < 1 / TROUBLE_EVERY:
            trouble = trouble or chance.sample(TROUBLED, len(TROUBLED))
            kind = trouble.pop()
        yield _make_order(kind, number, chance)


def _make_order(kind: OrderKind, number: int, chance: random.Random) -> Order:
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
