"""The log of each partition in Kafka, and what has happened to it, as noted in Redis."""

import json
import logging
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any, Final, NamedTuple, TypeVar
from urllib.parse import unquote

from bridge.formats.untrusted_json import is_time, log_skipped_once, parse_json
from bridge.ledger.ledger_client import Ledger
from bridge.ledger.ledger_layout import ledger_key

logger = logging.getLogger(__name__)

Read = TypeVar("Read")

#: Maximum number of changes that are kept, the latest.
CHANGES: Final = 200


class KnownLog(NamedTuple):
    """A partition's log. Offsets identify records only within one log: facts about one log do not hold for another.

    Attributes:
        topic_id: differs after a topic was deleted and recreated.
        turn: how often the log was truncated, so that other records may have offsets that had been read.
        epoch: the highest leader epoch that was read; -1 if unknown.
    """

    topic_id: str
    turn: int = 0
    epoch: int = -1

    @property
    def id(self) -> str:
        """Return the id of the log, which accounts, deliveries and commits carry as the topic's id."""
        return f"{self.topic_id}.{self.turn}" if self.turn else self.topic_id

    @classmethod
    def from_id(cls, log_id: str) -> "KnownLog":
        """Return the log with this id."""
        topic_id, _, turn = log_id.partition(".")
        return cls(topic_id, int(turn) if turn.isdecimal() else 0)


class KafkaLogChange(NamedTuple):
    """A change of a log.

    Attributes:
        what: `made anew` (the topic), `went back` (its end), `expired` (its beginning, before it was handled), or
            `deleted` (a retry or replay topic, with its records).
        first, end: the offsets concerned: those of another log, or those that were never handled.
        lost: how many of these were never handled, if they expired; for a deleted topic, the maximum.
        at: Unix time.
    """

    topic: str
    partition: int
    what: str
    first: int
    end: int
    lost: int
    at: float


class LogHistory:
    """The logs of a ledger's group. Each method raises LedgerUnavailable when Redis is unavailable or refuses."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self._known = ledger_key(ledger.cluster, ledger.group, "logs")
        self._changes = ledger_key(ledger.cluster, ledger.group, "log changes")
        self._gone = ledger_key(ledger.cluster, ledger.group, "gone topics")
        self._deleted = ledger_key(ledger.cluster, ledger.group, "deleted logs")

    def read_logs(self, places: Collection[tuple[str, int]]) -> dict[tuple[str, int], KnownLog]:
        """Return the log of each place, as the last bridge knew it; unknown places are left out."""
        if not places:
            return {}
        with self._ledger.asking("read which logs are known") as pipe:
            pipe.hmget(self._known, [ledger_key(*place) for place in places])
            (found,) = pipe.execute()
            return {place: _read_log(raw) for place, raw in zip(places, found, strict=True) if raw is not None}

    def everything(self) -> dict[tuple[str, int], KnownLog]:
        """Return the log of each place that any bridge ever knew."""
        with self._ledger.asking("read which logs are known") as pipe:
            pipe.hgetall(self._known)
            (found,) = pipe.execute()
            return {_read_place(name): _read_log(raw) for name, raw in found.items()}

    def forget(self, topic: str) -> None:
        """Forget a topic that is gone, and its logs."""
        fields = [ledger_key(*place) for place in self.everything() if place[0] == topic]
        with self._ledger.asking("forget a topic that is gone") as pipe:
            pipe.hdel(self._gone, topic)
            if fields:
                pipe.hdel(self._known, *fields)
            pipe.execute()

    def note_gone(self, topic: str, at: float) -> None:
        """Note that a retry or replay topic is gone or was recreated, and when that was first seen (Unix time)."""
        with self._ledger.asking("note that a topic is gone") as pipe:
            pipe.hsetnx(self._gone, topic, repr(at))
            pipe.execute()

    def found_again(self, topic: str) -> None:
        """Note that a topic that was gone is no longer missed; its logs are new by now."""
        with self._ledger.asking("note that nothing is missed") as pipe:
            pipe.hdel(self._gone, topic)
            pipe.execute()

    def gone(self) -> dict[str, float]:
        """Return the topics that were noted as gone, and when that was first seen (Unix time)."""
        with self._ledger.asking("read which topics are gone") as pipe:
            pipe.hgetall(self._gone)
            (found,) = pipe.execute()
        return dict(
            _read_notes("a topic that is gone", found.items(), lambda name, at: (name.decode(), _read_time(at)))
        )

    def log_id(self, topic: str, topic_id: str, partition: int) -> str:
        """Return the id of a partition's current log, which its accounts have."""
        found = self.read_logs([(topic, partition)]).get((topic, partition))
        return found.id if found is not None and found.topic_id == topic_id else topic_id

    def note(self, place: tuple[str, int], log: KnownLog) -> None:
        """Note the log of a partition, before records read from it are handed off."""
        self.note_logs({place: log})

    def note_logs(self, logs: Mapping[tuple[str, int], KnownLog]) -> None:
        """Note the log of each of some partitions, before records read from it are handed off."""
        with self._ledger.asking("note which log a partition has") as pipe:
            mapping = {ledger_key(*place): json.dumps(log._asdict()) for place, log in logs.items()}
            pipe.hset(self._known, mapping=mapping)
            pipe.execute()

    def is_first_to_tell(self, place: tuple[str, int], log: KnownLog) -> bool:
        """Return whether nobody has asked this about a deleted log before: two bridges may both see the deletion."""
        with self._ledger.asking("note that a deleted log was reported") as pipe:
            pipe.hsetnx(self._deleted, ledger_key(*place, log.id), repr(time.time()))
            pipe.expire(self._deleted, self._ledger.keep)
            first, _ = pipe.execute()
        return bool(first)

    def add_change(self, change: KafkaLogChange) -> None:
        """Note a change of a log for later readers."""
        with self._ledger.asking("note what happened to a log") as pipe:
            pipe.lpush(self._changes, json.dumps(change._asdict()))
            pipe.ltrim(self._changes, 0, CHANGES - 1)
            pipe.expire(self._changes, self._ledger.keep)
            pipe.execute()

    def read_changes(self) -> list[KafkaLogChange]:
        """Return the changes, the latest first; they are forgotten after none was added for as long as pages
        are kept.
        """
        with self._ledger.asking("read what happened to logs") as pipe:
            pipe.lrange(self._changes, 0, -1)
            (found,) = pipe.execute()
        return list(_read_notes("a change of a log", enumerate(found), lambda _, raw: _read_change(raw)))


def _read_notes(what: str, noted: Iterable[tuple[Any, Any]], read: Callable[[Any, Any], Read]) -> Iterable[Read]:
    """Yield the readable ones of some notes; one that another program overwrote is left out, and logged once."""
    for name, raw in noted:
        try:
            found = read(name, raw)
        except Exception as error:
            log_skipped_once(logger, f"{what}, noted in Redis as {name!r},", type(error).__name__)
        else:
            yield found


def _read_place(name: bytes) -> tuple[str, int]:
    _, topic, number = name.decode().split(":")
    return unquote(topic, errors="surrogatepass"), int(number)


def _read_time(raw: bytes) -> float:
    if not is_time(at := float(raw)):
        raise ValueError("it is no time")
    return at


def _read_log(raw: bytes) -> KnownLog:
    """Return a noted log. An unreadable one is not skipped: it decides which fates a record has.

    Raises:
        ValueError: another program overwrote it.
    """
    try:
        log = KnownLog(**parse_json(raw))
    except TypeError as error:
        raise ValueError("it is no log") from error
    if not (_are(str, log.topic_id) and _are(int, log.turn, log.epoch)):
        raise ValueError("it is no log")
    return log


def _read_change(raw: bytes) -> KafkaLogChange:
    change = KafkaLogChange(**parse_json(raw))
    texts, numbers = (change.topic, change.what), (change.partition, change.first, change.end, change.lost)
    if not (_are(str, *texts) and _are(int, *numbers) and is_time(change.at)):
        raise TypeError("it is no change of a log")
    return change


def _are(kind: type, *values: object) -> bool:
    return all(isinstance(value, kind) for value in values)
