"""What webhooks are told: written with what makes it true, tried until it is taken or given up."""

import secrets
from collections.abc import Iterable
from enum import StrEnum
from typing import Any, Final, NamedTuple

from sqlalchemy import ColumnElement, Connection, delete, func, insert, select, update

from bridge.deadletters.store.schema import deliveries, webhooks

#: Characters that are kept of what became of a try.
_LONGEST: Final = 300


class State(StrEnum):
    """Where a delivery stands."""

    WAITING = "waiting"
    SENT = "sent"
    GIVEN_UP = "given up"


class Delivery(NamedTuple):
    """An event for one webhook.

    Attributes:
        message: its id, the same however often it is tried.
        at: of the event, ms since the epoch, as all times here.
        data: JSON.
        said: what the last try came to.
    """

    id: int
    message: str
    webhook_id: int
    about: str
    type: str
    alarm: str
    at: int
    text: str
    page: str
    data: str
    state: str
    made_at: int
    tries: int
    next_at: int
    tried_at: int | None
    said: str
    ended_at: int | None


class Stood(NamedTuple):
    """How the deliveries of a webhook stand.

    Attributes:
        oldest: when the oldest that waits was made; `None`: none does.
        tries: how often the one that was tried most of those that wait was.
        given_up_at: when one was given up last.
    """

    name: str
    counts: dict[str, int]
    oldest: int | None
    tries: int
    given_up_at: int | None

    @property
    def waiting(self) -> int:
        """How many wait."""
        return self.counts.get(State.WAITING, 0)

    @property
    def given_up(self) -> int:
        """How many were given up."""
        return self.counts.get(State.GIVEN_UP, 0)


_COLUMNS: Final = [deliveries.c[name] for name in Delivery._fields]
_WAITS: Final = deliveries.c.state == State.WAITING


def add(connection: Connection, webhook_ids: Iterable[int], event: dict[str, Any], now: int) -> None:
    """Have these webhooks told of an event, in the transaction in which it becomes true.

    Parameters:
        event: the columns `about`, `type`, `alarm`, `at`, `text`, `page`, `data`.
    """
    for webhook_id in webhook_ids:
        own = {"message": f"msg_{secrets.token_hex(16)}", "webhook_id": webhook_id}
        state = {"state": State.WAITING, "made_at": now, "next_at": now}
        connection.execute(insert(deliveries).values(event | own | state))


def one(connection: Connection, message: str) -> Delivery | None:
    """The one of this id."""
    row = connection.execute(select(*_COLUMNS).where(deliveries.c.message == message)).first()
    return None if row is None else Delivery(*row)


def latest(connection: Connection, webhook_id: int, count: int) -> list[Delivery]:
    """Those of a webhook, newest first."""
    asked = select(*_COLUMNS).where(deliveries.c.webhook_id == webhook_id).order_by(deliveries.c.id.desc())
    return [Delivery(*row) for row in connection.execute(asked.limit(count))]


def due(connection: Connection, now: int) -> list[int]:
    """The webhooks for which something is due, in turn: first those of which nothing that waits was tried yet.

    Of the others the one that was tried longest ago: who does not answer, and has much to be told, has no more of the
    places than who has little.
    """
    tried = (
        select(deliveries.c.webhook_id, func.coalesce(func.max(deliveries.c.tried_at), 0).label("at"))
        .where(_WAITS)
        .group_by(deliveries.c.webhook_id)
        .subquery()
    )
    asked = (
        select(deliveries.c.webhook_id)
        .join(tried, tried.c.webhook_id == deliveries.c.webhook_id)
        .where(*_due(now))
        .group_by(deliveries.c.webhook_id, tried.c.at)
        .order_by(tried.c.at, func.min(deliveries.c.next_at), deliveries.c.webhook_id)
    )
    return list(connection.execute(asked).scalars())


def take(connection: Connection, webhook_id: int, now: int) -> Delivery | None:
    """The next that is due for a webhook, counted as tried; what comes after it of the same alarm waits for it.

    What was never tried goes first: an event of now stands behind none that is tried again.
    """
    asked = select(deliveries.c.id).where(deliveries.c.webhook_id == webhook_id, *_due(now))
    in_turn = asked.order_by(deliveries.c.tries > 0, deliveries.c.next_at, deliveries.c.id)
    id_ = connection.execute(in_turn.limit(1)).scalar()
    if id_ is None:
        return None
    tried = update(deliveries).where(deliveries.c.id == id_).values(tries=deliveries.c.tries + 1, tried_at=now)
    return Delivery(*connection.execute(tried.returning(*_COLUMNS)).one())


def _due(now: int) -> tuple[ColumnElement[bool], ...]:
    # The first of each alarm, found once for all: to look for one ahead of each takes the square of what waits.
    first = select(func.min(deliveries.c.id)).where(_WAITS).group_by(deliveries.c.webhook_id, deliveries.c.alarm)
    return _WAITS, deliveries.c.next_at <= now, deliveries.c.id.in_(first)


def ended(connection: Connection, id_: int, state: State, said: str, now: int) -> None:
    """Note that one was taken, or is given up."""
    values = {"state": state, "said": said[:_LONGEST], "ended_at": now}
    connection.execute(update(deliveries).where(deliveries.c.id == id_, _WAITS).values(values))


def again(connection: Connection, id_: int, said: str, at: int) -> None:
    """Note that one was not taken, and when it is tried again."""
    connection.execute(
        update(deliveries).where(deliveries.c.id == id_, _WAITS).values(said=said[:_LONGEST], next_at=at)
    )


def leave(connection: Connection, webhook_id: int, said: str, now: int) -> None:
    """Give up what waits for a webhook."""
    waits = update(deliveries).where(deliveries.c.webhook_id == webhook_id, _WAITS)
    connection.execute(waits.values(state=State.GIVEN_UP, said=said[:_LONGEST], ended_at=now))


def clean(connection: Connection, before: int) -> int:
    """Delete those that ended before then; how many."""
    return connection.execute(delete(deliveries).where(deliveries.c.ended_at < before)).rowcount


def stood(connection: Connection) -> list[Stood]:
    """How those of each webhook stand, by its name."""
    each = deliveries.c
    asked = (
        select(
            webhooks.c.name,
            each.state,
            func.count(each.id),
            func.min(each.made_at),
            func.max(each.tries),
            func.max(each.ended_at),
        )
        .join_from(webhooks, deliveries, isouter=True)
        .group_by(webhooks.c.name, each.state)
        .order_by(webhooks.c.name)
    )
    found: dict[str, Stood] = {}
    for name, state, count, oldest, tries, ended_at in connection.execute(asked):
        so_far = found.get(name, Stood(name, {}, None, 0, None))
        if state is not None:
            so_far = so_far._replace(counts={**so_far.counts, state: count})
        if state == State.WAITING:
            so_far = so_far._replace(oldest=oldest, tries=tries)
        if state == State.GIVEN_UP:
            so_far = so_far._replace(given_up_at=ended_at)
        found[name] = so_far
    return list(found.values())
