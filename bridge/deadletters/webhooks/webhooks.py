"""The desk's webhooks: added, switched, tried and removed, each time with a line in the trail."""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from bridge.deadletters.questions.shown import moment
from bridge.deadletters.store import alarms, clock, deliveries, trail, webhooks
from bridge.deadletters.store.database import Connection, Database
from bridge.deadletters.store.deliveries import Delivery, Stood
from bridge.deadletters.store.webhooks import Webhook
from bridge.deadletters.webhooks import addresses, events, formats
from bridge.deadletters.webhooks.events import ALL, About
from bridge.deadletters.webhooks.formats import PAGERDUTY, Format
from bridge.deadletters.webhooks.writing import write
from bridge.errors import WebhookRefused
from bridge.settings import Settings
from bridge.settings.addresses import networks

#: In the trail.
_WHAT: Final = "webhook"
_NAME: Final = re.compile(r"[a-z0-9][a-z0-9._-]{0,99}")
#: PagerDuty's integration keys.
_KEY: Final = re.compile(r"[A-Za-z0-9]{32}")
_OFF: Final = "it was switched off"


class Added(NamedTuple):
    """A webhook that was added; its repr does not show the secret.

    Attributes:
        secret: with which what it sends is signed, to be shown this once; empty: it signs nothing.
    """

    name: str
    secret: str

    def __repr__(self) -> str:
        """Without the secret."""
        return f"Added(name={self.name!r})"


class Shown(NamedTuple):
    """A webhook, for people and programs: its address without what may be a password.

    Attributes:
        at: when it was added, ms since the epoch, as all times here.
        off_at: `None`: it is on.
        latest: what it was told last, the newest first.
    """

    name: str
    address: str
    format: str
    about: tuple[str, ...]
    at: int
    by: str
    off_at: int | None
    off_why: str
    latest: tuple[Delivery, ...]

    def to_data(self) -> dict[str, object]:
        """As JSON."""
        told = {"name": self.name, "address": self.address, "format": self.format, "events": list(self.about)}
        when = {"at": moment(self.at), "by": self.by, "off_at": moment(self.off_at), "off_why": self.off_why}
        return {**told, **when, "deliveries": [_data(each) for each in self.latest]}


@dataclass(frozen=True)
class Webhooks:
    """Addresses that are told of alarms. Every method raises DeskUnavailable where the database does not answer."""

    settings: Settings
    database: Database

    def add(self, name: str, format_: Format, about: Sequence[About], address: str, key: str, by: str) -> Added:
        """Add one. It is told of what stands already, and of groups that are new from now on.

        Parameters:
            about: what it tells of; none: of everything.
            address: empty: PagerDuty's own.
            key: PagerDuty's integration key.

        Raises:
            WebhookRefused: it cannot be so; neither address nor key is repeated.
        """
        name, secret = _named(name), _secret(format_, key)
        address = address.strip() or (PAGERDUTY if format_ is Format.PAGERDUTY else "")
        target = addresses.read(address, networks(self.settings.environment.DEADLETTERS_WEBHOOK_NETWORKS))
        told = tuple(str(each) for each in ALL if not about or each in about)
        with self.database.writing() as connection:
            if webhooks.find(connection, name):
                raise WebhookRefused(f"There is a webhook {name} already: nothing was changed.")
            at = clock.now(connection)
            if not webhooks.is_any(connection):
                alarms.begin_anew(connection, at)
            row = Webhook(0, name, address, str(format_), told, secret, at, by, None, "")
            webhooks.add(connection, row)
            words = f"{name} added: {target.shown}, as {format_}, of {', '.join(told)}"
            trail.write(connection, at, by, _WHAT, words)
        return Added(name, secret if format_ is Format.STANDARD else "")

    def all(self, deliveries_of_each: int = 5) -> list[Shown]:
        """All of them, by name."""
        with self.database.reading() as connection:
            return [_shown(connection, each, deliveries_of_each) for each in webhooks.everyone(connection)]

    def test(self, name: str, by: str) -> str:
        """Have one told of nothing but that it is tried; a recorder sends it.

        Returns:
            the id of what is sent (`told`).

        Raises:
            WebhookRefused: there is none of this name, or it is off.
        """
        with self.database.writing() as connection:
            found = _one(connection, name)
            if found.off_at is not None:
                raise WebhookRefused(f"The webhook {found.name} is off: switch it on first.")
            write(connection, events.begins(events.tried(found.name, by)), found.id)
            (made,) = deliveries.latest(connection, found.id, 1)
            return made.message

    def told(self, message: str) -> Delivery | None:
        """How something that is sent stands."""
        with self.database.reading() as connection:
            return deliveries.one(connection, message)

    def switch_off(self, name: str, by: str) -> None:
        """Tell it nothing from now on; what waits for it is given up.

        Raises:
            WebhookRefused: there is none of this name.
        """

        def do(connection: Connection, found: Webhook, at: int) -> None:
            if found.off_at is None:
                webhooks.switch(connection, found.id, at, f"by {by}")
                deliveries.leave(connection, found.id, _OFF, at)

        self._change(name, by, "switched off", do)

    def switch_on(self, name: str, by: str) -> None:
        """Tell it what happens from now on.

        Raises:
            WebhookRefused: there is none of this name.
        """
        self._change(name, by, "switched on", lambda connection, found, _: webhooks.switch(connection, found.id, None))

    def remove(self, name: str, by: str) -> None:
        """Remove one, with what it was told.

        Raises:
            WebhookRefused: there is none of this name.
        """
        self._change(name, by, "removed", lambda connection, found, _: webhooks.remove(connection, found.id))

    def stood(self) -> list[Stood]:
        """How what they are told stands."""
        with self.database.reading() as connection:
            return deliveries.stood(connection)

    def _change(self, name: str, by: str, word: str, do: Callable[[Connection, Webhook, int], None]) -> None:
        with self.database.writing() as connection:
            found, at = _one(connection, name), clock.now(connection)
            do(connection, found, at)
            trail.write(connection, at, by, _WHAT, f"{found.name} {word}")


def _named(name: str) -> str:
    made = name.strip().lower()
    if not _NAME.fullmatch(made):
        raise WebhookRefused(
            "A webhook's name is of letters a to z, digits and . _ -, begins with a letter or a digit, and has 100 "
            "characters at most: nothing was changed."
        )
    return made


def _secret(format_: Format, key: str) -> str:
    if format_ is Format.STANDARD:
        return formats.new_secret()
    if format_ is Format.PAGERDUTY and not _KEY.fullmatch(key.strip()):
        raise WebhookRefused("PagerDuty's integration key has 32 letters and digits (Events API v2 of a service).")
    return key.strip() if format_ is Format.PAGERDUTY else ""


def _one(connection: Connection, name: str) -> Webhook:
    found = webhooks.find(connection, _named(name))
    if found is None:
        raise WebhookRefused(f"There is no webhook {_named(name)}: `bridge deadletters webhooks` lists them.")
    return found


def _shown(connection: Connection, found: Webhook, count: int) -> Shown:
    latest = tuple(deliveries.latest(connection, found.id, count))
    where = _where(found.address)
    rest = (found.at, found.by, found.off_at, found.off_why)
    return Shown(found.name, where, found.format, found.about, *rest, latest)


def _where(address: str) -> str:
    parts = address.split("/", 3)
    return "/".join(parts[:3]) + "/…"


def _data(each: Delivery) -> dict[str, object]:
    told = {"id": each.message, "type": each.type, "text": each.text, "at": moment(each.at), "state": each.state}
    tried = {"tries": each.tries, "tried_at": moment(each.tried_at), "said": each.said}
    return {**told, **tried, "next_at": moment(each.next_at) if each.state == "waiting" else None}
