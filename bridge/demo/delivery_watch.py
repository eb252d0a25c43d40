"""The watch over the demo's deliveries: Celery's events, the dead-letter topic, and the worker's counts; and the board
that has the state of each.

Events come first but may be missed, as Redis keeps none. Dead letters are in Kafka, and the worker counts what is
done: if both equal all records, nothing is open.
"""

import ast
import logging
import re
import threading
import time
from collections import Counter, deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Final, Self
from urllib.request import urlopen

from celery import Celery
from prometheus_client.parser import text_string_to_metric_families

from bridge.demo.demo_orders import TIERS, TOPIC
from bridge.errors import LedgerUnavailable
from bridge.formats import retry_record
from bridge.formats.group_decision import halt_key
from bridge.kafka.clients import Consumer, Record, TopicPartition, admin_client, consumer_client
from bridge.kafka.topic_names import TopicNames
from bridge.ledger import Ledger
from bridge.ledger.decision_store import DecisionMirror
from lossless.background_thread import BackgroundThread

logger = logging.getLogger(__name__)


WAITING, RETRYING, PARKED, DONE, DEAD = "waiting", "retrying", "parked", "done", "dead"
STATES: Final = (DONE, RETRYING, PARKED, DEAD, WAITING)


@dataclass(slots=True)
class WatchedDelivery:
    """A delivery; `kind` is empty until Kafka has acknowledged its record.

    Attributes:
        retries: how often it was sent again, by its messages.
        parks: how often it was written to a retry topic.
        told: the same as `retries`, by the events of its failures; either may come first, or be missed.
    """

    kind: str = ""
    state: str = WAITING
    reason: str = ""
    retries: int = 0
    told: int = 0
    parks: int = 0

    @property
    def ended(self) -> bool:
        """Return whether it is done or dead."""
        return self.state in (DONE, DEAD)


@dataclass(frozen=True, slots=True)
class DeliveryFailure:
    """A failure for the screen; `outcome` is `retrying`, `parked` or the reason of a dead letter."""

    identity: str
    error: str
    outcome: str


@dataclass(slots=True)
class BoardRow:
    """The outcomes of one kind of order."""

    records: int = 0
    retries: int = 0
    #: The number of deliveries by handler and outcome ("done", a dead letter's reason, …).
    outcomes: dict[str, Counter[str]] = field(default_factory=dict)


class DeliveryBoard:
    """The states of all deliveries, updated by several threads.

    A delivery that has ended is only counted, so that the demo can run for days.

    Parameters:
        handlers: names of the topic's handlers, as in a delivery's identity.
    """

    def __init__(self, handlers: Sequence[str]) -> None:
        self._handlers = tuple(handlers)
        self._lock = threading.Lock()
        self._open: dict[str, WatchedDelivery] = {}
        self._produced: dict[str, int] = {}
        self._rows: dict[str, BoardRow] = {}
        self._dead: Counter[str] = Counter()
        self._done: Counter[str] = Counter()
        #: Why the topic is halted, and by whom; empty if it is not.
        self.halted = ""
        self.mishaps: deque[DeliveryFailure] = deque(maxlen=100)

    def produced(self, kind: str, topic: str, partition: int, offset: int) -> None:
        """Note that Kafka has a record. Its deliveries may have been seen before: a bridge is quick."""
        with self._lock:
            self._produced[f"{topic}-{partition}"] = offset
            self._row(kind).records += 1
            for handler in self._handlers:
                identity = f"{topic}-{partition}-{offset}:{handler}"
                watched = self._open.setdefault(identity, WatchedDelivery())
                watched.kind = kind
                self._settle(identity, watched)

    def sent_again(self, task_id: str, retries: int) -> None:
        """Note that a worker received a message that was sent again `retries` times."""
        with self._lock:
            _, watched = self._find(task_id)
            if watched is not None and not watched.ended:
                watched.state = RETRYING
                watched.retries = max(watched.retries, retries)

    def parked(self, identity: str, number: int, runs: int, error: str) -> None:
        """Note a record in a retry topic; `number` is how often it was parked, `runs` how often it ran."""
        with self._lock:
            identity, watched = self._find(identity)
            if watched is not None and not watched.ended and number > watched.parks:
                watched.state, watched.parks = PARKED, number
                watched.retries = max(watched.retries, runs)
                self.mishaps.append(DeliveryFailure(identity, error, PARKED))

    def came_back(self, task_id: str) -> None:
        """Note that a worker received a delivery that waited in a retry topic."""
        with self._lock:
            _, watched = self._find(task_id)
            number = task_id.rpartition("#")[2]
            if watched is not None and watched.state == PARKED and number.isdecimal() and int(number) >= watched.parks:
                watched.state = RETRYING

    def failed(self, task_id: str, error: str) -> None:
        """Note a failed run whose message was sent again."""
        with self._lock:
            identity, watched = self._find(task_id)
            if watched is not None and not watched.ended:
                # The record in a retry topic may be seen before the event of the failure.
                if watched.state != PARKED:
                    watched.state = RETRYING
                watched.told += 1
                watched.retries = max(watched.retries, watched.told)
                self.mishaps.append(DeliveryFailure(identity, error, RETRYING))

    def done(self, task_id: str) -> None:
        """Note that a handler returned."""
        with self._lock:
            identity, watched = self._find(task_id)
            if watched is not None and not watched.ended:
                watched.state = DONE
                self._settle(identity, watched)

    def dead(self, identity: str, reason: str, attempts: int, error: str) -> None:
        """Note a dead letter; `attempts` is how often the handler ran."""
        with self._lock:
            identity, watched = self._find(identity)
            if watched is None or watched.state == DEAD:
                return
            watched.state, watched.reason = DEAD, reason
            # It has the true number; some events come twice, or not at all.
            watched.retries = max(0, attempts - 1)
            self.mishaps.append(DeliveryFailure(identity, error, reason))
            self._settle(identity, watched)

    def all_done(self, handler: str, count: int) -> None:
        """Note a worker's count of a handler's ends: if with the dead it equals all records, the open ones are done."""
        with self._lock:
            records = sum(row.records for row in self._rows.values())
            if count + self._dead[handler] < records:
                return
            for identity, watched in list(self._open.items()):
                if identity.endswith(f":{handler}") and watched.kind:
                    watched.state = DONE
                    self._settle(identity, watched)

    def counts(self) -> Counter[str]:
        """Return the number of deliveries in each state."""
        with self._lock:
            found = Counter(watched.state for watched in self._open.values() if watched.kind)
            found[DONE] += self._done.total()
            found[DEAD] += self._dead.total()
            return found

    def rows(self, kinds: Iterable[str]) -> dict[str, BoardRow]:
        """Return the row of each kind of order, in that order."""
        with self._lock:
            rows = {kind: self._copy(self._rows[kind]) for kind in kinds if kind in self._rows}
            for identity, watched in self._open.items():
                if watched.kind:
                    rows[watched.kind].outcomes[identity.partition(":")[2]][watched.state] += 1
                    rows[watched.kind].retries += watched.retries
            return rows

    def _find(self, task_id: str) -> tuple[str, WatchedDelivery | None]:
        """Return a delivery by its task id; `None` if it has ended, as events may come late, and twice."""
        identity = task_id.partition("#")[0]
        if identity in self._open:
            return identity, self._open[identity]
        coordinates, _, handler = identity.partition(":")
        place, _, offset = coordinates.rpartition("-")
        if handler not in self._handlers or int(offset) <= self._produced.get(place, -1):
            return identity, None
        return identity, self._open.setdefault(identity, WatchedDelivery())

    def _settle(self, identity: str, watched: WatchedDelivery) -> None:
        if not (watched.kind and watched.ended):
            return
        del self._open[identity]
        handler = identity.partition(":")[2]
        row = self._row(watched.kind)
        row.retries += watched.retries
        row.outcomes[handler][watched.reason or DONE] += 1
        (self._dead if watched.reason else self._done)[handler] += 1

    def _row(self, kind: str) -> BoardRow:
        if kind not in self._rows:
            self._rows[kind] = BoardRow(outcomes={handler: Counter() for handler in self._handlers})
        return self._rows[kind]

    @staticmethod
    def _copy(row: BoardRow) -> BoardRow:
        outcomes = {handler: Counter(counts) for handler, counts in row.outcomes.items()}
        return BoardRow(row.records, row.retries, outcomes)


#: The group of the demo's bridge: the default one.
GROUP: Final = "bridge"
#: Seconds between two reads of the worker's counts.
COUNTS_EVERY: Final = 1.0
#: Seconds that an event may take.
EVENTS_WITHIN: Final = 3.0


class DeliveryWatch:
    """A watcher that updates `board`, from `__enter__` on.

    Parameters:
        metrics_port: of the worker's /metrics.
    """

    def __init__(self, board: DeliveryBoard, bootstrap_servers: str, redis_url: str, metrics_port: int) -> None:
        self._board = board
        self._kafka = {"bootstrap.servers": bootstrap_servers}
        self._app = Celery("demo", broker=redis_url, set_as_current=False)
        self._metrics_url = f"http://127.0.0.1:{metrics_port}/metrics"
        self._ledger = Ledger(redis_url, "", GROUP, timeout=1)
        self._mirror = DecisionMirror(self._ledger)
        self._next_counts = 0.0
        #: The worker's count of each handler, and since when it has not changed.
        self._counted: dict[str, tuple[int, float]] = {}
        self._receiver: Any = None
        self._follower = BackgroundThread("events", self._follow_events)
        self._ours: Consumer | None = None
        self._dead_letters = TopicNames(GROUP).dead_letters(TOPIC)

    def __enter__(self) -> Self:
        self._ours = self._consumer([self._dead_letters, *(TopicNames(GROUP).retry(TOPIC, tier) for tier in TIERS)])
        self._follower.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._receiver is not None:
            self._receiver.should_stop = True
        self._follower.stop(3)
        self._ledger.close()
        if self._ours is not None:
            self._ours.close()

    def update(self) -> None:
        """Read parked records and dead letters, and from time to time the worker's counts."""
        assert self._ours is not None
        for record in self._ours.consume(500, 0):
            if record.error() is None and record.topic() == self._dead_letters:
                self._read_dead_letter(record)
            elif record.error() is None and (held := retry_record.read_retry_record(record, "", "")) is not None:
                delivery = held.delivery
                self._board.parked(delivery.identity, delivery.number, delivery.runs, delivery.error)
        now = time.monotonic()
        if now >= self._next_counts:
            self._next_counts = now + COUNTS_EVERY
            for handler, count in self._worker_counts():
                # Only after the count was stable for a while: events, which tell more, may be in flight.
                before, since = self._counted.get(handler, (-1, now))
                self._counted[handler] = (count, since if count == before else now)
                if now - self._counted[handler][1] >= EVENTS_WITHIN:
                    self._board.all_done(handler, count)
            self._board.halted = self._halted()

    def _halted(self) -> str:
        try:
            halt = self._mirror.read().in_force().get(halt_key(TOPIC))
        except LedgerUnavailable:
            return self._board.halted
        return "" if halt is None or halt.data is None else f"by {halt.by}: {halt.why}"

    def _consumer(self, topics: Iterable[str]) -> Consumer:
        # The embedded Kafka creates a topic when it is asked for it.
        admin = admin_client(self._kafka)
        found = [admin.list_topics(topic, timeout=10).topics[topic] for topic in topics]
        consumer = consumer_client(self._kafka, "bridge-demo")
        places = [TopicPartition(str(each.topic), partition, 0) for each in found for partition in each.partitions]
        consumer.assign(places)
        return consumer

    def _read_dead_letter(self, record: Record) -> None:
        headers: Any = record.headers()
        header = {name: _decode_header(value) for name, value in headers}
        place = "-".join(header[f"origin_{name}"] for name in ("topic", "partition", "offset"))
        error = f"{header['error_class']}: {header['error_message']}"
        identity = f"{place}:{header['handler']}"
        self._board.dead(identity, header["reason"], int(header["attempts"]), error)

    def _worker_counts(self) -> Iterator[tuple[str, int]]:
        """Yield the count of each handler's successes; nothing if the worker does not respond."""
        with suppress(OSError, ValueError):
            with urlopen(self._metrics_url, timeout=1) as page:
                text = page.read().decode()
            for family in text_string_to_metric_families(text):
                for sample in family.samples:
                    if sample.name == "worker_handled_total" and sample.labels["outcome"] == "done":
                        yield sample.labels["handler"], int(sample.value)

    def _follow_events(self) -> None:
        while not self._follower.stopping.is_set():
            try:
                with self._app.connection_for_read() as connection:
                    handlers = {
                        "task-received": self._on_received,
                        "task-retried": self._on_retried,
                        "task-succeeded": self._on_succeeded,
                    }
                    self._receiver = self._app.events.Receiver(connection, handlers=handlers)
                    self._receiver.capture(limit=None, timeout=None, wakeup=False)
            except Exception as error:
                # Dead letters and counts make up for missed events in the end.
                logger.debug("events: %r", error)
                self._follower.stopping.wait(0.5)

    def _on_received(self, event: Mapping[str, Any]) -> None:
        if retries := event.get("retries"):
            self._board.sent_again(event["uuid"], retries)
        self._board.came_back(event["uuid"])

    def _on_retried(self, event: Mapping[str, Any]) -> None:
        self._board.failed(event["uuid"], _read_exception(event.get("exception") or ""))

    def _on_succeeded(self, event: Mapping[str, Any]) -> None:
        self._board.done(event["uuid"])


def _decode_header(value: bytes | None) -> str:
    return (value or b"").decode(errors="replace")


def _read_exception(exception: str) -> str:
    """Return the text of an exception from its `repr()` in an event, `Failed('ConnectionError: …')`."""
    inside = re.fullmatch(r"\w+\((['\"].*['\"])\)", exception, re.DOTALL)
    if inside:
        with suppress(ValueError, SyntaxError):
            return str(ast.literal_eval(inside[1]))
    return exception
