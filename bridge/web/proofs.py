"""What `bridge audit` found last of each topic, kept in this process: a count may take seconds."""

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from bridge.commands.audit import Audit, audit
from bridge.deadletters.desk import Desk
from bridge.ledger.tally import Line

_ENDED = ("done", "handed", "parked", "dead", "discarded")


class Counted(NamedTuple):
    """The deliveries of one handler, over all partitions of a topic.

    Attributes:
        ahead: not committed yet, so nobody's to account for.
        lines: of partitions where something is unaccounted for, or a dead letter is missing.
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
    lines: Sequence[Line]


@dataclass(frozen=True, slots=True)
class Proof:
    """One count of a topic.

    Attributes:
        at: when it ended, ms since the epoch; `took`: seconds.
    """

    audit: Audit
    at: int
    took: float

    @property
    def handlers(self) -> list[Counted]:
        """By handler; what is unaccounted for comes first."""
        names = {line.handler: None for line in self.audit.lines}
        found = [_counted(name, [line for line in self.audit.lines if line.handler == name]) for name in names]
        return sorted(found, key=lambda each: (-each.unaccounted, each.handler))

    @property
    def deliveries(self) -> int:
        """How many must have a fate."""
        return sum(each.deliveries for each in self.handlers)

    @property
    def unaccounted(self) -> int:
        """How many have none: must be 0."""
        return sum(each.unaccounted for each in self.handlers)


@dataclass
class Proofs:
    """Counts a topic when it is asked to, one at a time."""

    desk: Desk
    clock: Callable[[], float] = time.time
    _last: dict[str, Proof] = field(default_factory=dict, init=False)
    _counting: threading.Lock = field(default_factory=threading.Lock, init=False, repr=False)

    def count(self, topic: str) -> Proof:
        """Count the fates of every offset of a topic.

        Raises:
            UnknownTopic: the ledger has nothing of it, and no handler names it.
            KafkaUnavailable, LedgerUnavailable: one of them does not answer; nothing is said.
        """
        with self._counting:
            began = time.monotonic()
            found = audit(self.desk.app, self.desk.settings, self.desk.routes, topic)
            self._last[topic] = proof = Proof(found, int(self.clock() * 1000), time.monotonic() - began)
        return proof

    def all(self) -> list[Proof]:
        """The last count of each topic that was counted since this console began."""
        return [proof for _, proof in sorted(self._last.copy().items())]


def _counted(handler: str, lines: Sequence[Line]) -> Counted:
    ended = {name: sum(getattr(line, name) for line in lines) for name in _ENDED}
    missing, open_ = sum(line.missing for line in lines), sum(line.open for line in lines)
    # What is parked in no topic is unaccounted for, too, and was not open.
    nowhere = sum(line.unaccounted for line in lines if line.parked_nowhere)
    unaccounted_open = sum(line.unaccounted for line in lines) - nowhere
    bad = [line for line in lines if line.missing or line.letters_missing]
    return Counted(
        handler,
        sum(ended.values()) + missing,
        **ended,
        ahead=max(0, open_ - unaccounted_open),
        unaccounted=missing,
        lines=bad,
    )
