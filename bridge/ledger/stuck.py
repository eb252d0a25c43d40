"""Deliveries that were handed long ago and are not settled.

With each hand-off the ledger's script widens one field of a small hash: a step of ten seconds, and the first
and last offset handed in it. So an account costs a few dozen bytes per ten seconds of hand-offs in flight,
however many.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from bridge.ledger.client import Ledger
from bridge.ledger.fates import Fate
from bridge.ledger.pages import Account

STEP = 10
"""Seconds per field, as in script.py."""

_DROP = """for i = 1, #ARGV, 2 do
  if redis.call('HGET', KEYS[1], ARGV[i]) == ARGV[i + 1] then redis.call('HDEL', KEYS[1], ARGV[i]) end
end"""


class Stuck(NamedTuple):
    """Offsets handed within ten seconds of `since` (Unix time by Redis's clock) and not settled."""

    since: int
    offsets: Sequence[int]


def stuck(ledger: Ledger, account: Account, seconds: float) -> list[Stuck]:
    """Return what was handed at least `seconds` ago and is still `handed`, oldest first.

    Whether a task still has it is for the caller to see; Mark(account, offsets, Fate.OPEN) then lets it be
    handed out again. Never too early; later than `seconds` for offsets within what was handed more recently.
    Steps in which nothing is in flight any more are dropped.

    Raises:
        LedgerUnavailable: Redis did not answer.
    """
    index = ledger.index_key(account)
    with ledger.asking("look for stuck deliveries") as pipe:
        pipe.time()
        pipe.hgetall(index)
        (now, _), fields = pipe.execute()
    found: list[Stuck] = []
    dropped: list[bytes] = []
    newer: list[range] = []
    for field, value in sorted(fields.items(), key=lambda item: -int(item[0])):
        first, last = map(int, value.split(b"-"))
        if (int(field) + 1) * STEP + seconds <= now:
            handed = list(ledger.runs(account, {Fate.HANDED}, first, last))
            offsets = [offset for run in outside(handed, newer) for offset in run]
            if offsets:
                found.append(Stuck(int(field) * STEP, offsets))
            if not handed:
                dropped += (field, value)
        newer.append(range(first, last + 1))
    if dropped:
        with ledger.asking("drop what is settled from the index") as pipe:
            # Only if unchanged: Redis's clock may have been set back and the step be written again.
            pipe.eval(_DROP, 1, index, *dropped)
            pipe.execute()
    return found[::-1]


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
