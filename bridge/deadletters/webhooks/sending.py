"""What webhooks are to be told is sent; a duty of the recorder.

Order of acts: a process takes a webhook, counts the try, sends, hears the answer, notes it. A crash between two steps
leaves what was to be sent to the next that takes the webhook, once the lease is over: it may be sent twice, by the same
id, and never not at all. Each webhook is one process's at a time and waits for none of the others.
"""

import json
import logging
import random
import secrets
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from bridge.deadletters.store import clock, deliveries, webhooks
from bridge.deadletters.store.database import Database
from bridge.deadletters.store.deliveries import Delivery, State
from bridge.deadletters.store.webhooks import Webhook
from bridge.deadletters.webhooks import addresses, formats, posting
from bridge.deadletters.webhooks.addresses import Network
from bridge.deadletters.webhooks.events import About, Event
from bridge.deadletters.webhooks.formats import Format, Sender
from bridge.deadletters.webhooks.posting import Answer
from bridge.deadletters.webhooks.retrying import next_try
from bridge.errors import DeskUnavailable, WebhookRefused
from bridge.settings import Settings
from bridge.settings.addresses import networks

logger = logging.getLogger(__name__)

#: Seconds between two looks for what is due, while something is sent.
LOOK_EVERY: Final = 0.5
#: Webhooks that one process sends for at a time.
AT_ONCE: Final = 8
GONE: Final = "HTTP 410: the receiver wants nothing any more"


class Letterhead(NamedTuple):
    """What all that a process sends has in common.

    Attributes:
        allowed: networks that are not public, and may be sent to.
    """

    group: str
    console: str
    allowed: tuple[Network, ...]

    @classmethod
    def of(cls, settings: Settings) -> "Letterhead":
        """As the settings say."""
        said = settings.environment
        return cls(settings.group, said.DEADLETTERS_CONSOLE_URL, networks(said.DEADLETTERS_WEBHOOK_NETWORKS))


def send(settings: Settings, database: Database, stopping: threading.Event) -> None:
    """Send what is due, for each webhook in a thread of its own, until nothing is due.

    A receiver that does not take what it is sent gives its place to the next after each try.

    Raises:
        DeskUnavailable: the database did not answer; what was sent and not noted is sent again.
    """
    sending: dict[int, Sending] = {}
    failed: list[DeskUnavailable] = []
    while not stopping.is_set() and not failed:
        sending = {id_: each for id_, each in sending.items() if each.is_alive}
        for id_ in due(database, AT_ONCE - len(sending), set(sending)):
            sending[id_] = Sending(database, Letterhead.of(settings), id_, stopping, failed)
            sending[id_].start()
        if not sending:
            return
        stopping.wait(LOOK_EVERY)
    if failed:
        raise failed[0]


def due(database: Database, count: int, but: set[int]) -> list[int]:
    """So many webhooks for which something is due, and that no process has, in turn (deliveries.due)."""
    with database.reading() as connection:
        waiting = [id_ for id_ in deliveries.due(connection, clock.now(connection)) if id_ not in but]
        free = set(webhooks.free(connection, waiting)) if waiting and count > 0 else set()
        return [id_ for id_ in waiting if id_ in free][:count]


@dataclass
class Sending:
    """One webhook, while something is due for it.

    Attributes:
        failed: takes what the database did not do.
        chance: gives a number from 0 to 1.
    """

    database: Database
    head: Letterhead
    id: int
    stopping: threading.Event
    failed: list[DeskUnavailable]
    chance: Callable[[], float] = random.random
    _who: str = field(default_factory=lambda: secrets.token_hex(8))
    _thread: threading.Thread | None = None

    @property
    def is_alive(self) -> bool:
        """Whether it goes on."""
        return self._thread is not None and self._thread.is_alive()

    def start(self) -> None:
        """Do it in a thread, which ends with the process."""
        self._thread = threading.Thread(target=self._run, name=f"webhook {self.id}", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            self.run()
        except DeskUnavailable as error:
            self.failed.append(error)
        except Exception:
            logger.exception("webhook %d: it is tried again.", self.id)

    def run(self) -> None:
        """Send what is due for it, until something is not taken; nothing where another process has it.

        Raises:
            DeskUnavailable: the database did not do it.
        """
        with self.database.writing() as connection:
            if not webhooks.lease(connection, self.id, self._who):
                return
        while not self.stopping.is_set() and (taken := self._take()) is not None:
            self._note(*taken, answer := self._post(*taken))
            if not answer.is_taken:
                break
        with self.database.writing() as connection:
            webhooks.release(connection, self.id, self._who)

    def _take(self) -> tuple[Webhook, Delivery] | None:
        with self.database.writing() as connection:
            webhook = webhooks.hold(connection, self.id, self._who)
            if webhook is None:
                return None
            taken = deliveries.take(connection, self.id, clock.now(connection))
            return None if taken is None else (webhook, taken)

    def _post(self, webhook: Webhook, delivery: Delivery) -> Answer:
        sent, headers = written(webhook, delivery, self.head)
        try:
            target = addresses.read(webhook.address, self.head.allowed)
        except WebhookRefused as error:
            return Answer(None, str(error))
        return posting.post(target, sent, headers, self.head.allowed)

    def _note(self, webhook: Webhook, delivery: Delivery, answer: Answer) -> None:
        with self.database.writing() as connection:
            now = clock.now(connection)
            if answer.is_taken:
                deliveries.ended(connection, delivery.id, State.SENT, answer.words, now)
            elif answer.is_gone:
                webhooks.switch(connection, self.id, now, GONE)
                deliveries.leave(connection, self.id, GONE, now)
            elif at := next_try(delivery.tries, delivery.made_at, now, answer.again_after, self.chance):
                deliveries.again(connection, delivery.id, answer.words, at)
            else:
                deliveries.ended(connection, delivery.id, State.GIVEN_UP, answer.words, now)
                logger.error(
                    "webhook %s: %s was not taken, and is given up: %s", webhook.name, delivery.message, answer
                )


def written(webhook: Webhook, delivery: Delivery, head: Letterhead) -> tuple[bytes, dict[str, str]]:
    """What is sent, and its headers; signed as of now, which is when it is tried."""
    event = Event(
        About(delivery.about),
        delivery.type,
        delivery.alarm,
        delivery.at,
        delivery.text,
        delivery.page,
        json.loads(delivery.data),
    )
    format_ = Format(webhook.format)
    sent = formats.body(
        format_, event, Sender(head.group, f"{webhook.name}-{webhook.at}", head.console), webhook.secret
    )
    at = (delivery.tried_at or delivery.made_at) // 1000
    return sent, formats.headers(format_, delivery.message, at, sent, webhook.secret)
