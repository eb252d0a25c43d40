"""Deliveries that were handed long ago and are not settled."""

from collections.abc import Sequence
from itertools import islice
from typing import NamedTuple

from bridge.ledger import Account, Ledger
from bridge.ledger.handed import looks, narrow, steps_of


class Stuck(NamedTuple):
    """Offsets handed within ten seconds of `since` (Unix time by Redis's clock) and not settled."""

    since: int
    offsets: Sequence[int]


def stuck(ledger: Ledger, account: Account, seconds: float) -> list[Stuck]:
    """Return what was handed at least `seconds` ago and is still `handed`, oldest first.

    Whether a task still has it is for the caller to see; Mark(account, offsets, Fate.OPEN) then lets it be
    handed out again. Never too early; later than `seconds` for offsets within what was handed more recently.

    Raises:
        LedgerUnavailable: Redis did not answer.
    """
    with ledger.asking("look for stuck deliveries") as pipe:
        pipe.time()
        pipe.hgetall(ledger.index_key(account))
        (now, _), fields = pipe.execute()
    steps = steps_of(fields)
    due = sum(step.until + seconds <= now for step in steps)
    seen = list(islice(looks(ledger, account, steps), due))
    narrow(ledger, account, seen, now)
    return [Stuck(step.since, [offset for run in own for offset in run]) for step, _, own in seen if own]
