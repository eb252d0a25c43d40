"""Webhooks as commands and the console use them: added, switched, tried and removed, each with an audit entry."""

import json
import logging
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from bridge.deadletters.alarms import alarm_event, webhook_address, webhook_signature
from bridge.deadletters.alarms.alarm_event import ALL, AlarmEvent, AlarmKind
from bridge.deadletters.alarms.webhook_cipher import CHANGED, UNREADABLE, WebhookCipher
from bridge.deadletters.alarms.webhook_format import PAGERDUTY, WebhookFormat
from bridge.deadletters.db import audit_rows, sql, webhook_rows
from bridge.deadletters.db.database import Connection, Database
from bridge.deadletters.db.webhook_rows import Webhook, WebhookDelivery
from bridge.deadletters.model.letter_view import format_moment
from bridge.errors import WebhookRefused
from bridge.settings import Settings
from bridge.settings.address_values import read_networks

logger = logging.getLogger("bridge")


def write_event(connection: Connection, event: AlarmEvent, only: int | None = None) -> None:
    """Queue an event for the webhooks that are on and receive its kind.

    Parameters:
        only: the id of one webhook, which receives it whatever its kinds.
    """
    meant = [
        each.id
        for each in webhook_rows.list_webhooks(connection)
        if each.off_at is None and (each.id == only if only is not None else event.about in each.about)
    ]
    row = {**event._asdict(), "alarm": event.key, "data": json.dumps(event.data)}
    del row["key"]
    webhook_rows.add_deliveries(connection, meant, row, sql.read_clock(connection))


#: The kind of audit entries about webhooks.
_WHAT: Final = "webhook"
_NAME: Final = re.compile(r"[a-z0-9][a-z0-9._-]{0,99}")
#: PagerDuty's integration keys.
_KEY: Final = re.compile(r"[A-Za-z0-9]{32}")
_OFF: Final = "it was switched off"


class AddedWebhook(NamedTuple):
    """A webhook that was added; its repr does not show the secret.

    Attributes:
        secret: the signing secret, to be shown this once; empty: it signs nothing.
    """

    name: str
    secret: str

    def __repr__(self) -> str:
        """Return the name without the secret."""
        return f"Added(name={self.name!r})"


class ShownWebhook(NamedTuple):
    """A webhook for people and programs: its address without the part that may be a password.

    Attributes:
        at: when it was added, ms since the epoch, as all times here.
        off_at: when it was switched off; `None`: it is on.
        latest: its latest deliveries, newest first.
    """

    name: str
    address: str
    format: str
    about: tuple[str, ...]
    at: int
    by: str
    off_at: int | None
    off_why: str
    latest: tuple[WebhookDelivery, ...]

    def to_data(self) -> dict[str, object]:
        """Return the webhook as JSON."""
        told = {"name": self.name, "address": self.address, "format": self.format, "events": list(self.about)}
        when = {
            "at": format_moment(self.at),
            "by": self.by,
            "off_at": format_moment(self.off_at),
            "off_why": self.off_why,
        }
        return {**told, **when, "deliveries": [_delivery_data(each) for each in self.latest]}


@dataclass(frozen=True)
class WebhookService:
    """The webhooks. Every method raises DeskUnavailable if the database does not answer."""

    settings: Settings
    database: Database

    def add(
        self, name: str, format_: WebhookFormat, about: Sequence[AlarmKind], address: str, key: str, by: str
    ) -> AddedWebhook:
        """Add a webhook. It receives the alarms that stand now, and groups that are new from now on.

        Parameters:
            about: the kinds of alarms; none: all.
            address: empty: PagerDuty's own.
            key: PagerDuty's integration key.

        Raises:
            WebhookRefused: an argument is invalid; the message repeats neither address nor key.
        """
        name, secret = _check_name(name), _choose_secret(format_, key)
        address = address.strip() or (PAGERDUTY if format_ is WebhookFormat.PAGERDUTY else "")
        target = webhook_address.parse_target(
            address, read_networks(self.settings.environment.DEADLETTERS_WEBHOOK_NETWORKS)
        )
        told = tuple(str(each) for each in ALL if not about or each in about)
        with self.database.writing() as connection:
            if webhook_rows.hold_webhook(connection, name):
                raise WebhookRefused(f"There is a webhook {name} already: nothing was changed.")
            at = sql.read_clock(connection)
            if not webhook_rows.has_webhooks(connection):
                webhook_rows.reset_alarms(connection, at)
            row = Webhook(0, name, address, str(format_), told, secret, at, by, None, "")
            webhook_rows.add_webhook(connection, self._cipher.encrypt(row))
            words = f"{name} added: {target.shown}, as {format_}, of {', '.join(told)}"
            audit_rows.write_entry(connection, at, by, _WHAT, words)
        return AddedWebhook(name, secret if format_ is WebhookFormat.STANDARD else "")

    def list_webhooks(self, deliveries_of_each: int = 5) -> list[ShownWebhook]:
        """Return all webhooks by name."""
        with self.database.reading() as connection:
            return [
                _build_shown_webhook(connection, each, self._cipher, deliveries_of_each)
                for each in webhook_rows.list_webhooks(connection)
            ]

    def test(self, name: str, by: str) -> str:
        """Queue a test event, which a recorder sends.

        Returns:
            the id of the event (`find_delivery`).

        Raises:
            WebhookRefused: there is none of this name, or it is off.
        """
        with self.database.writing() as connection:
            found = _require_webhook(connection, name)
            if found.off_at is not None:
                raise WebhookRefused(f"The webhook {found.name} is off: switch it on first.")
            write_event(connection, alarm_event.begin_event(alarm_event.describe_trial(found.name, by)), found.id)
            (made,) = webhook_rows.read_latest_deliveries(connection, found.id, 1)
            return made.message

    def find_delivery(self, message: str) -> WebhookDelivery | None:
        """Return the delivery of an event by its id; `None` if there is none."""
        with self.database.reading() as connection:
            return webhook_rows.read_delivery(connection, message)

    def switch_off(self, name: str, by: str) -> None:
        """Switch a webhook off; its waiting events are given up.

        Raises:
            WebhookRefused: there is none of this name.
        """

        def do(connection: Connection, found: Webhook, at: int) -> None:
            if found.off_at is None:
                webhook_rows.switch_webhook(connection, found.id, at, f"by {by}")
                webhook_rows.give_up_deliveries(connection, found.id, _OFF, at)

        self._change(name, by, "switched off", do)

    def switch_on(self, name: str, by: str) -> None:
        """Switch a webhook on, for events from now on.

        Raises:
            WebhookRefused: there is none of this name.
        """
        self._change(
            name,
            by,
            "switched on",
            lambda connection, found, _: webhook_rows.switch_webhook(connection, found.id, None),
        )

    def remove(self, name: str, by: str) -> None:
        """Remove a webhook, with its deliveries.

        Raises:
            WebhookRefused: there is none of this name.
        """
        self._change(
            name, by, "removed", lambda connection, found, _: webhook_rows.remove_webhook(connection, found.id)
        )

    def encrypt_all(self) -> None:
        """Encrypt by the first key of DEADLETTERS_SECRET_KEY what is stored plain, or by another of its keys.

        A webhook whose key is missing stays as it is: sending an event to it says so.
        """
        with self.database.reading() as connection:
            stored = webhook_rows.list_webhooks(connection)
        renewed = [(each, fresh) for each in stored if (fresh := self._renew(each)) != each]
        if not renewed:
            return
        with self.database.writing() as connection:
            done = sum(webhook_rows.replace_webhook_secrets(connection, each, fresh) for each, fresh in renewed)
        logger.info("encrypted webhooks=%d with the first key of DEADLETTERS_SECRET_KEY", done)

    def _renew(self, webhook: Webhook) -> Webhook:
        try:
            return self._cipher.renew(webhook)
        except WebhookRefused:
            return webhook

    @property
    def _cipher(self) -> WebhookCipher:
        return WebhookCipher.from_keys(self.settings.environment.DEADLETTERS_SECRET_KEY)

    def _change(self, name: str, by: str, word: str, do: Callable[[Connection, Webhook, int], None]) -> None:
        with self.database.writing() as connection:
            found, at = _require_webhook(connection, name), sql.read_clock(connection)
            do(connection, found, at)
            audit_rows.write_entry(connection, at, by, _WHAT, f"{found.name} {word}")


def _check_name(name: str) -> str:
    made = name.strip().lower()
    if not _NAME.fullmatch(made):
        raise WebhookRefused(
            "A webhook's name is of letters a to z, digits and . _ -, begins with a letter or a digit, and has 100 "
            "characters at most: nothing was changed."
        )
    return made


def _choose_secret(format_: WebhookFormat, key: str) -> str:
    if format_ is WebhookFormat.STANDARD:
        return webhook_signature.make_secret()
    if format_ is WebhookFormat.PAGERDUTY and not _KEY.fullmatch(key.strip()):
        raise WebhookRefused("PagerDuty's integration key has 32 letters and digits (Events API v2 of a service).")
    return key.strip() if format_ is WebhookFormat.PAGERDUTY else ""


def _require_webhook(connection: Connection, name: str) -> Webhook:
    found = webhook_rows.hold_webhook(connection, _check_name(name))
    if found is None:
        raise WebhookRefused(f"There is no webhook {_check_name(name)}: `bridge deadletters webhooks` lists them.")
    return found


def _build_shown_webhook(connection: Connection, found: Webhook, cipher: WebhookCipher, count: int) -> ShownWebhook:
    latest = tuple(webhook_rows.read_latest_deliveries(connection, found.id, count))
    try:
        where = _redact_address(cipher.decrypt(found).address)
    except WebhookRefused as error:
        where = CHANGED if CHANGED in str(error) else UNREADABLE
    rest = (found.at, found.by, found.off_at, found.off_why)
    return ShownWebhook(found.name, where, found.format, found.about, *rest, latest)


def _redact_address(address: str) -> str:
    parts = address.split("/", 3)
    return "/".join(parts[:3]) + "/…"


def _delivery_data(each: WebhookDelivery) -> dict[str, object]:
    told = {"id": each.message, "type": each.type, "text": each.text, "at": format_moment(each.at), "state": each.state}
    tried = {"tries": each.tries, "tried_at": format_moment(each.tried_at), "said": each.said}
    return {**told, **tried, "next_at": format_moment(each.next_at) if each.state == "waiting" else None}
