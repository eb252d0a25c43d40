"""The sender of webhook events, with its retry times.

A process leases a webhook, counts the try, sends, and notes the answer: at-least-once. After a crash the event may be
sent twice, with the same id.
"""

import json
import logging
import random
import secrets
import ssl
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from email.utils import parsedate_to_datetime
from time import time
from typing import Final, NamedTuple

import httpcore2

from bridge.bounded_request import REQUEST_ERRORS, Deadline, Where, open_answer
from bridge.deadletters.alarms import webhook_address, webhook_format
from bridge.deadletters.alarms.alarm_event import AlarmEvent, AlarmKind
from bridge.deadletters.alarms.webhook_address import Network, WebhookTarget, resolve_target
from bridge.deadletters.alarms.webhook_cipher import WebhookCipher
from bridge.deadletters.alarms.webhook_format import EventSender, WebhookFormat
from bridge.deadletters.db import sql, webhook_rows
from bridge.deadletters.db.database import Database
from bridge.deadletters.db.webhook_rows import Webhook, WebhookDelivery, WebhookDeliveryState
from bridge.errors import DeskUnavailable, WebhookRefused
from bridge.settings import Settings
from bridge.settings.address_values import read_networks
from lossless.background_thread import BackgroundThread, start_call, start_thread
from lossless.backoff import Backoff

logger = logging.getLogger(__name__)


#: Seconds for the whole request, also if the receiver answers a byte at a time.
WITHIN: Final = 15.0


class PostAnswer(NamedTuple):
    """The answer of a receiver.

    Attributes:
        status: the HTTP status; `None`: there was no answer.
        why: why there was none, without the address's path.
        again_after: the seconds of `Retry-After`, if the receiver sent it.
    """

    status: int | None
    why: str = ""
    again_after: float | None = None

    @property
    def is_taken(self) -> bool:
        """Return whether the receiver accepted the event."""
        return self.status is not None and 200 <= self.status < 300

    @property
    def is_gone(self) -> bool:
        """Return whether the receiver wants no more events."""
        return self.status == 410

    @property
    def words(self) -> str:
        """Return the answer in words."""
        return self.why if self.status is None else f"HTTP {self.status}"


def post_event(
    target: WebhookTarget, body: bytes, headers: Mapping[str, str], allowed: Sequence[Network]
) -> PostAnswer:
    """Send an event. Raises nothing: a failure is an answer too.

    Parameters:
        allowed: the private networks that are allowed.
    """
    deadline = Deadline(WITHIN)
    try:
        return _send_request(target, body, headers, _look_up_addresses(deadline, target, allowed), deadline)
    except WebhookRefused as error:
        return PostAnswer(None, str(error))
    except REQUEST_ERRORS as error:
        return PostAnswer(None, _explain_failure(error))


def _explain_failure(error: Exception) -> str:
    if isinstance(error, TimeoutError):
        return "it did not answer in time"
    if isinstance(error, ssl.SSLError):
        return f"TLS: {error.reason or type(error).__name__}"
    said = error.strerror if isinstance(error, OSError) and error.strerror else type(error).__name__
    return f"no answer of HTTP: {said}"


def _look_up_addresses(deadline: Deadline, target: WebhookTarget, allowed: Sequence[Network]) -> Sequence[Where]:
    """Return the addresses of the host. A resolver cannot be interrupted: after the time limit its thread is left
    alone.
    """
    lookup = start_call(f"looks up {target.host}", lambda: resolve_target(target, allowed))
    return lookup.result(deadline.left)


def _send_request(
    target: WebhookTarget, body: bytes, headers: Mapping[str, str], addresses: Sequence[Where], deadline: Deadline
) -> PostAnswer:
    url = httpcore2.URL(scheme=target.scheme, host=target.host, port=target.port, target=target.path)
    # As in the address: with the port if it is not the default.
    sent = {"host": target.shown.partition("://")[2], **headers}
    with open_answer("POST", url, sent, body, addresses, deadline) as answer:
        again = next((value for name, value in answer.headers if name.lower() == b"retry-after"), b"")
        return PostAnswer(answer.status, again_after=_parse_retry_after(again.decode("latin-1")))


def _parse_retry_after(said: str) -> float | None:
    """Return the seconds of a `Retry-After` header, which has seconds or a date."""
    if said.strip().isdecimal():
        return float(said.strip()[:9])
    with suppress(ValueError, TypeError, OverflowError):
        return max(0.0, parsedate_to_datetime(said).timestamp() - time())
    return None


#: Ms between two tries.
RETRY_AFTER: Final = Backoff(first=5_000, most=3_600_000, factor=3)
#: Ms after an event for which it is tried.
GIVE_UP_AFTER: Final = 86_400_000
#: The random part of a pause: the events that a receiver missed do not arrive all at once.
JITTER: Final = 0.3


def decide_next_try(
    tries: int, made_at: int, now: int, wanted: float | None, chance: Callable[[], float]
) -> int | None:
    """Return the time of the next try, ms since the epoch; `None` to give up.

    Parameters:
        tries: the tries so far, 1 or more.
        wanted: the seconds of `Retry-After`; capped at the longest pause.
        chance: returns a random number from 0 to 1.
    """
    pause = RETRY_AFTER.compute_pause(tries - 1) * (1 - JITTER * chance())
    at = now + int(max(pause, min(RETRY_AFTER.most, (wanted or 0) * 1000)))
    return at if at <= made_at + GIVE_UP_AFTER else None


#: Seconds between two polls for due events, while something is sent.
POLL_EVERY: Final = 0.5
#: Webhooks that one process sends for at a time.
AT_ONCE: Final = 8
GONE: Final = "HTTP 410: the receiver wants no more events"


class SenderSettings(NamedTuple):
    """The settings that all requests of a process share.

    Attributes:
        allowed: the private networks that are allowed.
        cipher: decrypts the webhooks.
    """

    group: str
    console: str
    allowed: tuple[Network, ...]
    cipher: WebhookCipher

    @classmethod
    def from_settings(cls, settings: Settings) -> "SenderSettings":
        """Return what these settings say of it."""
        said = settings.environment
        return cls(
            settings.group,
            said.DEADLETTERS_CONSOLE_URL,
            read_networks(said.DEADLETTERS_WEBHOOK_NETWORKS),
            WebhookCipher.from_keys(said.DEADLETTERS_SECRET_KEY),
        )


def send_due_events(settings: Settings, database: Database, stopping: threading.Event) -> None:
    """Send the due events, each webhook's in a thread of its own, until none is due.

    A receiver that does not accept an event yields its thread to the next webhook.

    Raises:
        DeskUnavailable: the database did not answer; an event that was sent and not noted is sent again.
    """
    sending: dict[int, WebhookSender] = {}
    failed: list[DeskUnavailable] = []
    while not stopping.is_set() and not failed:
        sending = {id_: each for id_, each in sending.items() if each.is_alive}
        for id_ in take_due_webhooks(database, AT_ONCE - len(sending), set(sending)):
            sending[id_] = WebhookSender(database, SenderSettings.from_settings(settings), id_, stopping, failed)
            sending[id_].start()
        if not sending:
            return
        stopping.wait(POLL_EVERY)
    if failed:
        raise failed[0]


def take_due_webhooks(database: Database, count: int, but: set[int]) -> list[int]:
    """Return at most `count` webhooks with due events and without a lease, in turn."""
    with database.reading() as connection:
        waiting = [
            id_ for id_ in webhook_rows.find_due_webhooks(connection, sql.read_clock(connection)) if id_ not in but
        ]
        free = set(webhook_rows.find_free_webhooks(connection, waiting)) if waiting and count > 0 else set()
        return [id_ for id_ in waiting if id_ in free][:count]


@dataclass
class WebhookSender:
    """The sender of one webhook's due events.

    Attributes:
        failed: receives the error of the database.
        chance: returns a random number from 0 to 1.
    """

    database: Database
    settings: SenderSettings
    id: int
    stopping: threading.Event
    failed: list[DeskUnavailable]
    chance: Callable[[], float] = random.random
    _who: str = field(default_factory=lambda: secrets.token_hex(8))
    _thread: BackgroundThread | None = None

    @property
    def is_alive(self) -> bool:
        """Return whether its thread runs."""
        return self._thread is not None and self._thread.is_alive()

    def start(self) -> None:
        """Send in a daemon thread."""
        self._thread = start_thread(f"webhook {self.id}", self._run)

    def _run(self) -> None:
        try:
            self.run()
        except DeskUnavailable as error:
            self.failed.append(error)
        except Exception:
            logger.exception("webhook %d failed; it is tried again.", self.id)

    def run(self) -> None:
        """Send the due events until one is not accepted; do nothing if another process has the lease.

        Raises:
            DeskUnavailable: the database did not do it.
        """
        with self.database.writing() as connection:
            if not webhook_rows.lease_webhook(connection, self.id, self._who):
                return
        while not self.stopping.is_set() and (taken := self._take()) is not None:
            self._note(*taken, answer := self._post(*taken))
            if not answer.is_taken:
                break
        with self.database.writing() as connection:
            webhook_rows.release_webhook(connection, self.id, self._who)

    def _take(self) -> tuple[Webhook, WebhookDelivery] | None:
        with self.database.writing() as connection:
            webhook = webhook_rows.renew_webhook_lease(connection, self.id, self._who)
            if webhook is None:
                return None
            taken = webhook_rows.take_due_delivery(connection, self.id, sql.read_clock(connection))
            return None if taken is None else (webhook, taken)

    def _post(self, webhook: Webhook, delivery: WebhookDelivery) -> PostAnswer:
        try:
            plain = self.settings.cipher.decrypt(webhook)
            target = webhook_address.parse_target(plain.address, self.settings.allowed)
        except WebhookRefused as error:
            return PostAnswer(None, str(error))
        sent, headers = write_request(plain, delivery, self.settings)
        return post_event(target, sent, headers, self.settings.allowed)

    def _note(self, webhook: Webhook, delivery: WebhookDelivery, answer: PostAnswer) -> None:
        with self.database.writing() as connection:
            now = sql.read_clock(connection)
            if answer.is_taken:
                webhook_rows.end_delivery(connection, delivery.id, WebhookDeliveryState.SENT, answer.words, now)
            elif answer.is_gone:
                webhook_rows.switch_webhook(connection, self.id, now, GONE)
                webhook_rows.give_up_deliveries(connection, self.id, GONE, now)
            elif at := decide_next_try(delivery.tries, delivery.made_at, now, answer.again_after, self.chance):
                webhook_rows.retry_delivery_at(connection, delivery.id, answer.words, at)
            else:
                webhook_rows.end_delivery(connection, delivery.id, WebhookDeliveryState.GIVEN_UP, answer.words, now)
                logger.error(
                    "webhook %s: the receiver did not accept %s, which is given up: %s",
                    webhook.name,
                    delivery.message,
                    answer,
                )


def write_request(
    webhook: Webhook, delivery: WebhookDelivery, settings: SenderSettings
) -> tuple[bytes, dict[str, str]]:
    """Return the body and the headers of a request, signed with the current time."""
    event = AlarmEvent(
        AlarmKind(delivery.about),
        delivery.type,
        delivery.alarm,
        delivery.at,
        delivery.text,
        delivery.page,
        json.loads(delivery.data),
    )
    format_ = WebhookFormat(webhook.format)
    sent = webhook_format.write_body(
        format_, event, EventSender(settings.group, f"{webhook.name}-{webhook.at}", settings.console), webhook.secret
    )
    at = (delivery.tried_at or delivery.made_at) // 1000
    return sent, webhook_format.write_headers(format_, delivery.message, at, sent, webhook.secret)
