"""The board of the demo's deliveries with their states."""

import threading
from collections import Counter, deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final

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
