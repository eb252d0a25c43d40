"""`bridge audit TOPIC`: the fate of every offset, counted; what is unaccounted for must be nothing."""

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field
from itertools import islice
from typing import Any, Final

from bridge.extent import Extent, extents
from bridge.ledger import Account, Accounts, Fate, Ledger
from bridge.letters import Letter, letters
from bridge.opened import opened
from bridge.routes import Routes
from bridge.settings import Settings

#: How many offsets of each kind a report names.
NAMED: Final = 10


@dataclass
class Line:
    """One handler on one partition.

    Attributes:
        first, end: offsets that Kafka has.
        joined: the first offset that the handler was there for.
        gaps: offsets without a record (compaction, transaction markers).
        unaccounted: how many offsets below the committed one are open, and `unaccounted_at`, the first of them.
        oldest: the oldest offsets in flight.
        letters_missing: offsets that are dead, but have no dead letter in the topic.
    """

    handler: str
    partition: int
    first: int
    end: int
    committed: int | None
    joined: int | None
    done: int = 0
    handed: int = 0
    parked: int = 0
    dead: int = 0
    discarded: int = 0
    open: int = 0
    gaps: int = 0
    unaccounted: int = 0
    unaccounted_at: list[int] = field(default_factory=list)
    oldest: list[int] = field(default_factory=list)
    letters_missing: list[int] = field(default_factory=list)


_COUNTED = ("done", "handed", "parked", "dead", "discarded", "open", "unaccounted")


@dataclass
class Audit:
    """The report on one topic."""

    topic: str
    lines: list[Line]

    @property
    def totals(self) -> dict[str, int]:
        """Offsets by fate, over all handlers and partitions."""
        return {name: sum(getattr(line, name) for line in self.lines) for name in _COUNTED}

    @property
    def clean(self) -> bool:
        """Whether nothing is unaccounted for, and every dead letter lies where it should."""
        return not any(line.unaccounted or line.letters_missing for line in self.lines)

    def to_data(self) -> dict[str, Any]:
        """As JSON-able data, the totals at the top."""
        return {"topic": self.topic, **self.totals, "clean": self.clean, "lines": [asdict(line) for line in self.lines]}


def audit(settings: Settings, routes: Routes, topic: str) -> Audit:
    """Count the fates of every offset that Kafka has of a topic.

    Raises:
        KafkaUnavailable, LedgerUnavailable: one of them does not answer; nothing is said.
    """
    lines, dead = [], []
    with opened(settings, [topic]) as (ledger, catalog):
        for extent in extents(settings, [topic]):
            for handler in routes.of(topic):
                account = Account(handler.name, topic, catalog.topic_ids[topic], extent.partition)
                lines.append(line(ledger, account, extent))
                dead.append(list(ledger.runs(account, {Fate.DEAD}, extent.first, extent.end - 1)))
    # After the fates: a letter is written before its delivery is marked, so that now each must be there.
    there = letters(settings, topic)
    if there is not None:
        for each, runs in zip(lines, dead, strict=True):
            names = (each.handler, *_before(settings, topic, each.handler))
            each.letters_missing = _missing(runs, each.partition, names, there)
    return Audit(topic, sorted(lines, key=lambda each: (each.handler, each.partition)))


def line(ledger: Ledger, account: Account, extent: Extent) -> Line:
    """Count one handler on one partition.

    Raises:
        LedgerUnavailable: the ledger does not answer.
    """
    first, last = extent.first, extent.end - 1
    count = ledger.count(account, first, last)
    (known,) = Accounts(ledger).known([account])
    made = Line(account.handler, account.partition, first, extent.end, extent.committed, known.joined)
    made.done, made.handed, made.parked = (count.fates[fate] for fate in (Fate.DONE, Fate.HANDED, Fate.PARKED))
    made.dead, made.discarded = count.fates[Fate.DEAD], count.fates[Fate.DISCARDED]
    made.gaps = count.fates[Fate.GAP]
    made.open = count.fates[Fate.OPEN] + count.pageless
    if extent.committed is not None and known.joined is not None:
        lost = list(ledger.runs(account, {Fate.OPEN}, max(first, known.joined), extent.committed - 1))
        made.unaccounted = sum(map(len, lost))
        made.unaccounted_at = _some(lost)
    made.oldest = _some(ledger.runs(account, {Fate.HANDED}, first, last))
    return made


def _missing(runs: Iterable[range], partition: int, names: Sequence[str], there: set[Letter]) -> list[int]:
    """The first dead offsets without a letter, of this handler or of one before it in a `sequence`."""
    offsets = (offset for run in runs for offset in run)
    return list(islice((o for o in offsets if not any((partition, o, name) in there for name in names)), NAMED))


def _before(settings: Settings, topic: str, handler: str) -> Sequence[str]:
    sequence = settings.topic(topic).sequence
    return sequence[: sequence.index(handler)] if handler in sequence else ()


def _some(runs: Iterable[range]) -> list[int]:
    found: list[int] = []
    for run in runs:
        found += run[: NAMED - len(found)]
        if len(found) >= NAMED:
            break
    return found
