"""The watch over the demo's deliveries: Celery's events, the dead-letter topic, and the worker's counts.

Events come first but may be missed, as Redis keeps none. Dead letters are in Kafka, and the worker counts what is
done: if both equal all records, nothing is open.
"""

import ast
import logging
import re
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from types import TracebackType
from typing import Any, Final, Self
from urllib.request import urlopen

from celery import Celery
from prometheus_client.parser import text_string_to_metric_families

from bridge.demo.delivery_board import DeliveryBoard
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
