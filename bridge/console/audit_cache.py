"""A cache of the last `bridge audit` of each topic, because an audit may take seconds."""

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from bridge.deadletters.dead_letter_service import DeadLetterService
from bridge.errors import UnknownTopic
from bridge.inspection.topic_audit import TopicAudit, audit_topic
from bridge.ledger.unaccounted_offsets import AuditLine

_FINAL_FATES = ("done", "handed", "parked", "dead", "discarded")


class HandlerCount(NamedTuple):
    """The deliveries of one handler, over all partitions of a topic.

    Attributes:
        ahead: deliveries past the committed offset, which need no fate yet.
        lines: the partitions with an unaccounted delivery or a missing dead letter.
    """

    handler: str
    deliveries: int
    done: int
    handed: int
    parked: int
    dead: int
    discarded: int
    ahead: int
    unaccounted: int
    lines: Sequence[AuditLine]


@dataclass(frozen=True, slots=True)
class AuditCount:
    """The result of one audit of a topic.

    Attributes:
        at: when the audit ended, ms since the epoch; `took`: its seconds.
    """

    audit: TopicAudit
    at: int
    took: float

    @property
    def handlers(self) -> list[HandlerCount]:
        """Return a count for each handler, those with unaccounted deliveries first."""
        names = {line.handler: None for line in self.audit.lines}
        counts = [_count_handler(name, [line for line in self.audit.lines if line.handler == name]) for name in names]
        return sorted(counts, key=lambda count: (-count.unaccounted, count.handler))

    @property
    def deliveries(self) -> int:
        """Return the number of deliveries that must have a fate."""
        return sum(count.deliveries for count in self.handlers)

    @property
    def unaccounted(self) -> int:
        """Return the number of deliveries without a fate, which must be 0."""
        return sum(count.unaccounted for count in self.handlers)


@dataclass
class AuditCache:
    """The last audit of each topic since this console started; one audit runs at a time."""

    desk: DeadLetterService
    clock: Callable[[], float] = time.time
    _last: dict[str, AuditCount] = field(default_factory=dict, init=False)
    _counting: threading.Lock = field(default_factory=threading.Lock, init=False, repr=False)

    def count(self, topic: str) -> AuditCount:
        """Count the fates of every offset of a topic.

        Raises:
            UnknownTopic: the ledger does not know the topic, and no handler names it.
            KafkaUnavailable, LedgerUnavailable: Kafka or the ledger does not respond, so there is no result.
        """
        with self._counting:
            began = time.monotonic()
            audit = audit_topic(self.desk.app, self.desk.settings, self.desk.routes, topic)
            self._last[topic] = count = AuditCount(audit, int(self.clock() * 1000), time.monotonic() - began)
        return count

    def all(self) -> list[AuditCount]:
        """Return the last audit of each topic, sorted by topic."""
        return [audit for _, audit in sorted(self._last.copy().items())]

    def only(self, covers: Callable[[str], bool]) -> "NarrowedAuditCache":
        """Return the audits of some topics."""
        return NarrowedAuditCache(self, covers)


@dataclass(frozen=True)
class NarrowedAuditCache:
    """The last audits, for an account that sees some topics alone."""

    shared: AuditCache
    covers: Callable[[str], bool]

    def count(self, topic: str) -> AuditCount:
        """Count as `AuditCache.count` does.

        Raises:
            UnknownTopic: also if the account does not see the topic.
        """
        if not self.covers(topic):
            raise UnknownTopic(f"No handler here names the topic {topic!r}.")
        return self.shared.count(topic)

    def all(self) -> list[AuditCount]:
        """Return the last audit of each topic that the account sees, sorted by topic."""
        return [audit for audit in self.shared.all() if self.covers(audit.audit.topic)]


def _count_handler(handler: str, lines: Sequence[AuditLine]) -> HandlerCount:
    ended = {name: sum(getattr(line, name) for line in lines) for name in _FINAL_FATES}
    missing, open_ = sum(line.missing for line in lines), sum(line.open for line in lines)
    # A delivery whose fate is parked, but that no topic holds, is unaccounted without being open.
    nowhere = sum(line.unaccounted for line in lines if line.parked_nowhere)
    unaccounted_open = sum(line.unaccounted for line in lines) - nowhere
    bad = [line for line in lines if line.missing or line.letters_missing]
    return HandlerCount(
        handler,
        sum(ended.values()) + missing,
        **ended,
        ahead=max(0, open_ - unaccounted_open),
        unaccounted=missing,
        lines=bad,
    )
