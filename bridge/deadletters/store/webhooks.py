"""The rows of webhooks, each leased by the process that sends what is due for it."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from sqlalchemy import Connection, Row, delete, insert, or_, select, update

from bridge.deadletters.store import clock
from bridge.deadletters.store.schema import webhooks

#: Ms for which a process has a webhook for itself, longer than one try takes; it asks for it anew before each.
LEASE: Final = 45_000


@dataclass(frozen=True, slots=True)
class Webhook:
    """An address that is told of alarms; its repr shows neither that nor a secret.

    Attributes:
        format: "standard", "slack", "pagerduty".
        about: what it tells of.
        secret: what is signed with, or the receiver's key.
        at: when it was added, by whom; ms since the epoch, as all times here.
        off_at: `None`: it is on.
    """

    id: int
    name: str
    address: str = field(repr=False)
    format: str
    about: tuple[str, ...]
    secret: str = field(repr=False)
    at: int
    by: str
    off_at: int | None
    off_why: str


_COLUMNS: Final = [webhooks.c[name] for name in Webhook.__dataclass_fields__]


def add(connection: Connection, found: Webhook) -> int:
    """Add one, and give its number."""
    row = {"name": found.name, "address": found.address, "format": found.format, "about": ",".join(found.about)}
    rest = {"secret": found.secret, "at": found.at, "by": found.by}
    return int(connection.execute(insert(webhooks).values(row | rest).returning(webhooks.c.id)).scalar_one())


def find(connection: Connection, name: str) -> Webhook | None:
    """The one of this name, nobody else's to change until the transaction ends."""
    row = connection.execute(select(*_COLUMNS).where(webhooks.c.name == name).with_for_update()).first()
    return None if row is None else _webhook(row)


def one(connection: Connection, id_: int) -> Webhook | None:
    """The one of this number."""
    row = connection.execute(select(*_COLUMNS).where(webhooks.c.id == id_)).first()
    return None if row is None else _webhook(row)


def everyone(connection: Connection) -> list[Webhook]:
    """All of them, by name."""
    return [_webhook(row) for row in connection.execute(select(*_COLUMNS).order_by(webhooks.c.name))]


def is_any(connection: Connection) -> bool:
    """Whether there is one, on or off."""
    return connection.execute(select(webhooks.c.id).limit(1)).first() is not None


def switch(connection: Connection, id_: int, off_at: int | None, why: str = "") -> None:
    """Switch one off, or on (`None`)."""
    connection.execute(update(webhooks).where(webhooks.c.id == id_).values(off_at=off_at, off_why=why))


def remove(connection: Connection, id_: int) -> None:
    """Remove one, with what it was told."""
    connection.execute(delete(webhooks).where(webhooks.c.id == id_))


def free(connection: Connection, ids: Sequence[int]) -> list[int]:
    """Those of these that are on, and that no process has."""
    now = clock.now(connection)
    asked = select(webhooks.c.id).where(webhooks.c.id.in_(ids), webhooks.c.off_at.is_(None), _free(now))
    return list(connection.execute(asked).scalars())


def lease(connection: Connection, id_: int, who: str) -> bool:
    """Take one for oneself; not where it is off, or another has it."""
    now = clock.now(connection)
    mine = update(webhooks).where(webhooks.c.id == id_, webhooks.c.off_at.is_(None), _free(now))
    return connection.execute(mine.values(leased_by=who, leased_until=now + LEASE)).rowcount == 1


def hold(connection: Connection, id_: int, who: str) -> Webhook | None:
    """Go on having it; `None`: it is off, gone, or another has it by now."""
    still = update(webhooks).where(webhooks.c.id == id_, webhooks.c.leased_by == who, webhooks.c.off_at.is_(None))
    if connection.execute(still.values(leased_until=clock.now(connection) + LEASE)).rowcount != 1:
        return None
    return one(connection, id_)


def release(connection: Connection, id_: int, who: str) -> None:
    """Give it up, for others to go on with."""
    mine = update(webhooks).where(webhooks.c.id == id_, webhooks.c.leased_by == who)
    connection.execute(mine.values(leased_by=None, leased_until=None))


def _free(now: int) -> Any:
    # A lease that is far longer than any is one by a clock that was ahead.
    until = webhooks.c.leased_until
    return or_(until.is_(None), until <= now, until > now + 10 * LEASE)


def _webhook(row: Row[Any]) -> Webhook:
    found = dict(row._mapping)
    return Webhook(**{**found, "about": tuple(found["about"].split(","))})
