"""How long deliveries have been under way: handed off, not settled, and not waiting for their retry.

What waits for its retry is noted in a small sorted set beside the index of hand-off times (handed.py), by offset with
the time when it is due. Both only tell: nothing is decided by them, and a note that is missing makes a delivery
seem older than it is.
"""

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from bridge.ledger.client import Ledger
from bridge.ledger.fates import Fate
from bridge.ledger.handed import looks, narrow, steps_of
from bridge.ledger.pages import Account

#: Seconds that a note is kept after the last one of its account.
_KEPT_FOR: Final = 30 * 86_400


class Oldest(NamedTuple):
    """The delivery that has been under way longest, and for how many seconds (up to ten too many)."""

    offset: int
    seconds: float


def note_waiting(ledger: Ledger, account: Account, offsets: Sequence[int], due: float) -> None:
    """Note that deliveries wait for their retry until `due` (Unix time).

    Raises:
        LedgerUnavailable: Redis did not answer.
    """
    with ledger.asking("note what waits for its retry") as pipe:
        pipe.zadd(_waits_key(ledger, account), {str(offset): due for offset in offsets})
        pipe.expire(_waits_key(ledger, account), _KEPT_FOR)
        pipe.execute()


def oldest(ledger: Ledger, account: Account) -> Oldest | None:
    """Return what has been under way longest: since its hand-off, or since its last retry was due.

    Raises:
        LedgerUnavailable: Redis did not answer.
    """
    with ledger.asking("see how long deliveries have been under way") as pipe:
        pipe.time()
        pipe.hgetall(ledger.index_key(account))
        pipe.zrange(_waits_key(ledger, account), 0, -1, withscores=True)
        (seconds, micros), fields, noted = pipe.execute()
    now = seconds + micros / 1e6
    # What is no offset another program has put there: nothing is decided by these notes.
    waits = {int(offset): due for offset, due in noted if offset.isdigit()}
    found = _late(ledger, account, waits, now)
    first = _first(ledger, account, fields, waits, now)
    if first is not None:
        found.append(first)
    return max(found, key=lambda each: each.seconds, default=None)


def _late(ledger: Ledger, account: Account, waits: Mapping[int, float], now: float) -> list[Oldest]:
    """Those whose retry is due and that are not settled yet; the note of the others is dropped."""
    late = sorted(offset for offset, due in waits.items() if due <= now)
    if not late:
        return []
    (fates,) = ledger.fates_of([(account, late)])
    there = {offset for offset, fate in zip(late, fates, strict=True) if fate == Fate.HANDED}
    if settled := [offset for offset in late if offset not in there]:
        with ledger.asking("drop the notes of what is settled") as pipe:
            for start in range(0, len(settled), 1000):
                pipe.zrem(_waits_key(ledger, account), *settled[start : start + 1000])
            pipe.execute()
    return [Oldest(offset, now - waits[offset]) for offset in there]


def _first(
    ledger: Ledger, account: Account, fields: Mapping[bytes, bytes], waits: Mapping[int, float], now: float
) -> Oldest | None:
    """The first handed off of those that wait for no retry and never did; the index is narrowed on the way there."""
    seen, found = [], None
    for look in looks(ledger, account, steps_of(fields)):
        seen.append(look)
        offset = next((offset for run in look.own for offset in run if offset not in waits), None)
        if offset is not None:
            found = Oldest(offset, max(0.0, now - look.step.since))
            break
    narrow(ledger, account, seen, now)
    return found


def _waits_key(ledger: Ledger, account: Account) -> str:
    return ledger.index_key(account) + ":waits"
