"""When deliveries were handed off: an index that costs a few dozen bytes per ten seconds, however many they were.

With each hand-off the ledger's script widens one field of a small hash: a step of ten seconds, and the first and
last offset handed in it. What is stuck (stuck.py) and what has been under way longest (underway.py) is looked for
in its steps; an offset that was handed again counts in the later one.
"""

import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from bridge.ledger.client import Ledger
from bridge.ledger.fates import Fate
from bridge.ledger.pages import Account
from bridge.ledger.script import NARROW
from bridge.records.untrusted_json import name_skipped

logger = logging.getLogger(__name__)

#: Seconds per step, as in write.lua.
STEP: Final = 10


class Step(NamedTuple):
    """Ten seconds of hand-offs.

    Attributes:
        since: when they begin (Unix time by Redis's clock).
        span: from the first to the last offset handed in them.
    """

    since: int
    span: range

    @property
    def until(self) -> int:
        """When they end: until then the span may grow."""
        return self.since + STEP


class Look(NamedTuple):
    """What is left of a step.

    Attributes:
        handed: the offsets of its span that are handed and not settled, in runs.
        own: those of them that no later step holds as well: that they were handed then is certain.
    """

    step: Step
    handed: Sequence[range]
    own: Sequence[range]


def steps_of(fields: Mapping[bytes, bytes]) -> list[Step]:
    """Return the steps of an index, as Redis answers, the oldest first; what is no step is skipped."""
    steps = []
    for field, value in fields.items():
        try:
            steps.append(Step(int(field) * STEP, _span(value)))
        except ValueError:
            name_skipped(logger, f"{field!r} of an index of hand-offs in Redis", "it is no step of ten seconds")
    return sorted(steps)


def looks(ledger: Ledger, account: Account, steps: Sequence[Step]) -> Iterator[Look]:
    """What is left of each step, the oldest first; the ledger is asked for a step when it is its turn.

    Raises:
        LedgerUnavailable: Redis did not answer.
    """
    for number, step in enumerate(steps):
        handed = list(ledger.runs(account, {Fate.HANDED}, step.span.start, step.span.stop - 1))
        yield Look(step, handed, list(outside(handed, (later.span for later in steps[number + 1 :]))))


def narrow(ledger: Ledger, account: Account, seen: Iterable[Look], now: float) -> None:
    """Narrow each step that is over to what is left of it; one of which nothing is left goes.

    Raises:
        LedgerUnavailable: Redis did not answer.
    """
    changes = []
    for step, handed, _ in seen:
        left = _value(range(handed[0].start, handed[-1].stop)) if handed else ""
        if step.until <= now and left != _value(step.span):
            changes += [step.since // STEP, _value(step.span), left]
    if changes:
        ledger.run("drop what is settled from the index", NARROW, [ledger.index_key(account)], changes)


def handed_at(ledger: Ledger, account: Account, offsets: Sequence[int]) -> dict[int, float]:
    """Return when each of these offsets was handed off last (Unix time, up to ten seconds early), where that is known.

    Raises:
        LedgerUnavailable: Redis did not answer.
    """
    with ledger.asking("see when deliveries were handed off") as pipe:
        pipe.hgetall(ledger.index_key(account))
        (fields,) = pipe.execute()
    found: dict[int, float] = {}
    for step in steps_of(fields):
        found.update({offset: float(step.since) for offset in offsets if offset in step.span})
    return found


def outside(runs: Iterable[range], ranges: Iterable[range]) -> Iterator[range]:
    """Yield the parts of `runs` that lie in none of `ranges`; `runs` ascending."""
    others = sorted(ranges, key=lambda other: other.start)
    for run in runs:
        start = run.start
        for other in others:
            if other.stop <= start:
                continue
            if other.start >= run.stop or start >= run.stop:
                break
            if other.start > start:
                yield range(start, other.start)
            start = max(start, other.stop)
        if start < run.stop:
            yield range(start, run.stop)


def _span(value: bytes) -> range:
    first, last = map(int, value.split(b"-"))
    return range(first, last + 1)


def _value(span: range) -> str:
    return f"{span.start}-{span.stop - 1}"
