"""Webhooks, the deliveries of events to them, and the alarms that stand.

An event is written in the transaction that makes it true.
"""

import json
import secrets
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Final, NamedTuple

from sqlalchemy import ColumnElement, Connection, Row, delete, func, insert, or_, select, update

from bridge.deadletters.db import sql
from bridge.deadletters.db.table_definitions import alarms, deliveries, groups, webhooks

#: Ms of a webhook's lease, longer than one try takes; it is renewed before each try.
WEBHOOK_LEASE_MS: Final = 45_000


@dataclass(frozen=True, slots=True)
class Webhook:
    """A webhook; its repr shows neither address nor secret, which may be encrypted (`alarms.webhook_cipher`).

    Attributes:
        format: "standard", "slack", "pagerduty".
        about: the kinds of alarms that it receives.
        secret: the signing secret, or the receiver's key.
        at: when it was added, by whom; ms since the epoch, as all times here.
        off_at: when it was switched off; `None`: it is on.
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


_WEBHOOK_COLUMNS: Final = [webhooks.c[name] for name in Webhook.__dataclass_fields__]


def add_webhook(connection: Connection, found: Webhook) -> int:
    """Add a webhook; return its id."""
    row = {"name": found.name, "address": found.address, "format": found.format, "about": ",".join(found.about)}
    rest = {"secret": found.secret, "at": found.at, "by": found.by}
    return int(connection.execute(insert(webhooks).values(row | rest).returning(webhooks.c.id)).scalar_one())


def hold_webhook(connection: Connection, name: str) -> Webhook | None:
    """Return the webhook of a name, locked until the transaction ends."""
    row = connection.execute(select(*_WEBHOOK_COLUMNS).where(webhooks.c.name == name).with_for_update()).first()
    return None if row is None else _build_webhook(row)


def read_webhook(connection: Connection, id_: int) -> Webhook | None:
    """Return the webhook of an id."""
    row = connection.execute(select(*_WEBHOOK_COLUMNS).where(webhooks.c.id == id_)).first()
    return None if row is None else _build_webhook(row)


def list_webhooks(connection: Connection) -> list[Webhook]:
    """Return all webhooks by name."""
    return [_build_webhook(row) for row in connection.execute(select(*_WEBHOOK_COLUMNS).order_by(webhooks.c.name))]


def has_webhooks(connection: Connection) -> bool:
    """Return whether there are webhooks, on or off."""
    return connection.execute(select(webhooks.c.id).limit(1)).first() is not None


def switch_webhook(connection: Connection, id_: int, off_at: int | None, why: str = "") -> None:
    """Switch a webhook off, or on (`None`)."""
    connection.execute(update(webhooks).where(webhooks.c.id == id_).values(off_at=off_at, off_why=why))


def replace_webhook_secrets(connection: Connection, stored: Webhook, fresh: Webhook) -> bool:
    """Replace a webhook's address and secret as they are stored; return false if they are others by now."""
    same = (webhooks.c.id == stored.id, webhooks.c.address == stored.address, webhooks.c.secret == stored.secret)
    values = {"address": fresh.address, "secret": fresh.secret}
    return connection.execute(update(webhooks).where(*same).values(values)).rowcount == 1


def remove_webhook(connection: Connection, id_: int) -> None:
    """Remove a webhook, with its deliveries."""
    connection.execute(delete(webhooks).where(webhooks.c.id == id_))


def find_free_webhooks(connection: Connection, ids: Sequence[int]) -> list[int]:
    """Return those of these webhooks that are on and not leased."""
    now = sql.read_clock(connection)
    query = select(webhooks.c.id).where(webhooks.c.id.in_(ids), webhooks.c.off_at.is_(None), _is_free(now))
    return list(connection.execute(query).scalars())


def lease_webhook(connection: Connection, id_: int, who: str) -> bool:
    """Lease a webhook; return false if it is off or leased."""
    now = sql.read_clock(connection)
    mine = update(webhooks).where(webhooks.c.id == id_, webhooks.c.off_at.is_(None), _is_free(now))
    return connection.execute(mine.values(leased_by=who, leased_until=now + WEBHOOK_LEASE_MS)).rowcount == 1


def renew_webhook_lease(connection: Connection, id_: int, who: str) -> Webhook | None:
    """Renew the lease of a webhook; return `None` if it is off, gone, or another process has it."""
    still = update(webhooks).where(webhooks.c.id == id_, webhooks.c.leased_by == who, webhooks.c.off_at.is_(None))
    if connection.execute(still.values(leased_until=sql.read_clock(connection) + WEBHOOK_LEASE_MS)).rowcount != 1:
        return None
    return read_webhook(connection, id_)


def release_webhook(connection: Connection, id_: int, who: str) -> None:
    """Give up the lease of a webhook."""
    mine = update(webhooks).where(webhooks.c.id == id_, webhooks.c.leased_by == who)
    connection.execute(mine.values(leased_by=None, leased_until=None))


def _is_free(now: int) -> Any:
    # A lease that is too long is invalid: the clock was ahead.
    until = webhooks.c.leased_until
    return or_(until.is_(None), until <= now, until > now + 10 * WEBHOOK_LEASE_MS)


def _build_webhook(row: Row[Any]) -> Webhook:
    found = dict(row._mapping)
    return Webhook(**{**found, "about": tuple(found["about"].split(","))})


#: Most characters of the result of a try.
_LONGEST: Final = 300


class WebhookDeliveryState(StrEnum):
    """The state of a delivery."""

    WAITING = "waiting"
    SENT = "sent"
    GIVEN_UP = "given up"


class WebhookDelivery(NamedTuple):
    """An event for one webhook.

    Attributes:
        message: its id, the same for each try.
        at: of the event, ms since the epoch, as all times here.
        data: JSON.
        said: the result of the last try.
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


class WebhookBacklog(NamedTuple):
    """The waiting and ended deliveries of a webhook.

    Attributes:
        oldest: when the oldest waiting event was made; `None`: none waits.
        tries: the most tries of a waiting event.
        given_up_at: when an event was given up last.
    """

    name: str
    counts: dict[str, int]
    oldest: int | None
    tries: int
    given_up_at: int | None

    @property
    def waiting(self) -> int:
        """Return the number of waiting events."""
        return self.counts.get(WebhookDeliveryState.WAITING, 0)

    @property
    def given_up(self) -> int:
        """Return the number of events that were given up."""
        return self.counts.get(WebhookDeliveryState.GIVEN_UP, 0)


_DELIVERY_COLUMNS: Final = [deliveries.c[name] for name in WebhookDelivery._fields]
_WAITS: Final = deliveries.c.state == WebhookDeliveryState.WAITING


def add_deliveries(connection: Connection, webhook_ids: Iterable[int], event: dict[str, Any], now: int) -> None:
    """Queue an event for webhooks, in the transaction that makes it true.

    Parameters:
        event: the columns `about`, `type`, `alarm`, `at`, `text`, `page`, `data`.
    """
    for webhook_id in webhook_ids:
        own = {"message": f"msg_{secrets.token_hex(16)}", "webhook_id": webhook_id}
        state = {"state": WebhookDeliveryState.WAITING, "made_at": now, "next_at": now}
        connection.execute(insert(deliveries).values(event | own | state))


def read_delivery(connection: Connection, message: str) -> WebhookDelivery | None:
    """Return the delivery of an id."""
    return sql.read_one(connection, select(*_DELIVERY_COLUMNS).where(deliveries.c.message == message), WebhookDelivery)


def read_latest_deliveries(connection: Connection, webhook_id: int, count: int) -> list[WebhookDelivery]:
    """Return the latest deliveries of a webhook, newest first."""
    query = select(*_DELIVERY_COLUMNS).where(deliveries.c.webhook_id == webhook_id).order_by(deliveries.c.id.desc())
    return [WebhookDelivery(*row) for row in connection.execute(query.limit(count))]


def find_due_webhooks(connection: Connection, now: int) -> list[int]:
    """Return the webhooks with due events, in turn: first those whose waiting events were never tried.

    Then those that were tried longest ago: a receiver that does not answer and has a large backlog takes no more
    turns than others.
    """
    tried = (
        select(deliveries.c.webhook_id, func.coalesce(func.max(deliveries.c.tried_at), 0).label("at"))
        .where(_WAITS)
        .group_by(deliveries.c.webhook_id)
        .subquery()
    )
    query = (
        select(deliveries.c.webhook_id)
        .join(tried, tried.c.webhook_id == deliveries.c.webhook_id)
        .where(*_build_due_conditions(now))
        .group_by(deliveries.c.webhook_id, tried.c.at)
        .order_by(tried.c.at, func.min(deliveries.c.next_at), deliveries.c.webhook_id)
    )
    return list(connection.execute(query).scalars())


def take_due_delivery(connection: Connection, webhook_id: int, now: int) -> WebhookDelivery | None:
    """Return the next due event of a webhook, counted as tried; later events of the same alarm wait for it.

    Events that were never tried go first: a new event does not wait for retries.
    """
    query = select(deliveries.c.id).where(deliveries.c.webhook_id == webhook_id, *_build_due_conditions(now))
    in_turn = query.order_by(deliveries.c.tries > 0, deliveries.c.next_at, deliveries.c.id)
    id_ = connection.execute(in_turn.limit(1)).scalar()
    if id_ is None:
        return None
    tried = update(deliveries).where(deliveries.c.id == id_).values(tries=deliveries.c.tries + 1, tried_at=now)
    return WebhookDelivery(*connection.execute(tried.returning(*_DELIVERY_COLUMNS)).one())


def _build_due_conditions(now: int) -> tuple[ColumnElement[bool], ...]:
    # The first event of each alarm in one query: a subquery for each event takes quadratic time.
    first = select(func.min(deliveries.c.id)).where(_WAITS).group_by(deliveries.c.webhook_id, deliveries.c.alarm)
    return _WAITS, deliveries.c.next_at <= now, deliveries.c.id.in_(first)


def end_delivery(connection: Connection, id_: int, state: WebhookDeliveryState, said: str, now: int) -> None:
    """Note that an event was accepted, or is given up."""
    values = {"state": state, "said": said[:_LONGEST], "ended_at": now}
    connection.execute(update(deliveries).where(deliveries.c.id == id_, _WAITS).values(values))


def retry_delivery_at(connection: Connection, id_: int, said: str, at: int) -> None:
    """Note that an event was not accepted, and the time of the next try."""
    connection.execute(
        update(deliveries).where(deliveries.c.id == id_, _WAITS).values(said=said[:_LONGEST], next_at=at)
    )


def give_up_deliveries(connection: Connection, webhook_id: int, said: str, now: int) -> None:
    """Give up the waiting events of a webhook."""
    waits = update(deliveries).where(deliveries.c.webhook_id == webhook_id, _WAITS)
    connection.execute(waits.values(state=WebhookDeliveryState.GIVEN_UP, said=said[:_LONGEST], ended_at=now))


def delete_ended_deliveries(connection: Connection, before: int) -> int:
    """Delete the deliveries that ended before a time; return how many."""
    return connection.execute(delete(deliveries).where(deliveries.c.ended_at < before)).rowcount


def read_webhook_backlogs(connection: Connection) -> list[WebhookBacklog]:
    """Return the backlog of each webhook, by its name."""
    each = deliveries.c
    query = (
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
    found: dict[str, WebhookBacklog] = {}
    for name, state, count, oldest, tries, ended_at in connection.execute(query):
        so_far = found.get(name, WebhookBacklog(name, {}, None, 0, None))
        if state is not None:
            so_far = so_far._replace(counts={**so_far.counts, state: count})
        if state == WebhookDeliveryState.WAITING:
            so_far = so_far._replace(oldest=oldest, tries=tries)
        if state == WebhookDeliveryState.GIVEN_UP:
            so_far = so_far._replace(given_up_at=ended_at)
        found[name] = so_far
    return list(found.values())


#: The key of the row with the number of the last poll that changed an alarm, as its time.
_NUMBER: Final = ""


class AlarmRow(NamedTuple):
    """An alarm that was noted.

    Attributes:
        at: the begin, ms since the epoch.
    """

    about: str
    name: str
    at: int
    data: Mapping[str, Any]


def read_look_number(connection: Connection) -> int:
    """Return the number of the last poll that changed an alarm."""
    return int(connection.execute(select(alarms.c.at).where(alarms.c.key == _NUMBER)).scalar_one())


def begin_alarm_changes(connection: Connection, seen: int) -> bool:
    """Begin to change alarms after a poll that began at number `seen`; return false if another poll was faster."""
    mine = update(alarms).where(alarms.c.key == _NUMBER, alarms.c.at == seen)
    return connection.execute(mine.values(at=seen + 1)).rowcount == 1


def read_standing_alarms(connection: Connection, about: Collection[str]) -> dict[str, AlarmRow]:
    """Return the standing alarms by key."""
    query = select(alarms).where(alarms.c.about.in_(about))
    return {row.key: AlarmRow(row.about, row.name, row.at, json.loads(row.data)) for row in connection.execute(query)}


def begin_alarm(connection: Connection, key: str, row: AlarmRow) -> None:
    """Store an alarm that began."""
    connection.execute(insert(alarms).values({"key": key, **row._asdict(), "data": json.dumps(row.data)}))


def end_alarm(connection: Connection, key: str) -> None:
    """Note that an alarm has ended."""
    connection.execute(delete(alarms).where(alarms.c.key == key))


def find_untold_groups(connection: Connection, limit: int) -> list[int]:
    """Return the groups without an event for being new, oldest first."""
    query = select(groups.c.id).where(groups.c.told_at.is_(None)).order_by(groups.c.id).limit(limit)
    return list(connection.execute(query).scalars())


def note_told_groups(connection: Connection, ids: Sequence[int], at: int) -> None:
    """Note that groups are no longer new."""
    connection.execute(update(groups).where(groups.c.id.in_(ids), groups.c.told_at.is_(None)).values(told_at=at))


def reset_alarms(connection: Connection, at: int) -> None:
    """Forget what is new or stands, after a long time without webhooks: all groups are known, and alarms begin now."""
    connection.execute(update(groups).where(groups.c.told_at.is_(None)).values(told_at=at))
    connection.execute(delete(alarms).where(alarms.c.key != _NUMBER))
