"""Which Celery task carried a delivery last: noted when a batch has run, for `bridge find`.

A task of one delivery is named after it and needs no note. Of a batch the ledger knows no range, so a note goes into a
stream of the group, as many as `KEPT`; about 150 bytes each. Nothing is decided by it.
"""

import json
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Final, NamedTuple

from bridge.ledger.client import Ledger
from bridge.ledger.pages import Account, key

#: Notes of a group that are kept: half of the tasks that Flower keeps, and some 8 MB at most.
KEPT: Final = 50_000
#: Notes that are read in one round trip.
_PIECE: Final = 2_000

#: A delivery: whose, and its offset.
Which = tuple[Account, int]


class Note(NamedTuple):
    """A task that has run, and the offsets (ascending) of those of its deliveries that ended in it."""

    task_id: str
    account: Account
    offsets: Sequence[int]


class Noted(NamedTuple):
    """What notes say.

    Attributes:
        tasks: the last task of each delivery that is in a note.
        since: Unix time from which on every batch has a note: what was produced later and is in none was carried alone.
    """

    tasks: Mapping[Which, str]
    since: float


def note(ledger: Ledger, notes: Sequence[Note]) -> None:
    """Note which tasks carried what.

    Raises:
        LedgerUnavailable: Redis did not answer.
    """
    where = _key(ledger)
    with ledger.asking("note which tasks carried what") as pipe:
        for each in notes:
            fields = {"task": each.task_id, "of": _account(each.account), "ended": json.dumps(runs(each.offsets))}
            pipe.xadd(where, fields, maxlen=KEPT, approximate=True)
        pipe.expire(where, ledger.keep)
        pipe.execute()


def noted(ledger: Ledger, wanted: Collection[Which]) -> Noted:
    """Look through the notes for these deliveries, the newest first.

    Raises:
        LedgerUnavailable: Redis did not answer.
    """
    tasks: dict[Which, str] = {}
    accounts = {_account(account): account for account, _ in wanted}
    with ledger.asking("count the notes of tasks") as pipe:
        pipe.xlen(_key(ledger))
        pipe.xrange(_key(ledger), count=1)
        count, oldest = pipe.execute()
    for of, task_id, ended in _newest_first(ledger):
        if of in accounts:
            for which in wanted:
                if which[0] == accounts[of] and which not in tasks and within(which[1], json.loads(ended)):
                    tasks[which] = task_id
        if len(tasks) == len(wanted):
            break
    # Fates and notes are of one Redis, and go with it: as long as no note was dropped, all are there that are as young.
    return Noted(tasks, int(oldest[0][0].split(b"-")[0]) / 1000 if count >= KEPT else time.time() - ledger.keep)


def runs(offsets: Sequence[int]) -> list[list[int]]:
    """The first and the last of each run of offsets (ascending) that follow one another."""
    if not offsets:
        return []
    if offsets[-1] - offsets[0] == len(offsets) - 1:
        return [[offsets[0], offsets[-1]]]
    ends = [(before, after) for before, after in pairwise(offsets) if after != before + 1]
    firsts = [offsets[0], *(after for _, after in ends)]
    return [list(pair) for pair in zip(firsts, [*(before for before, _ in ends), offsets[-1]], strict=True)]


def within(offset: int, found: Sequence[Sequence[int]]) -> bool:
    """Whether an offset is in one of these runs."""
    return any(first <= offset <= last for first, last in found)


def _newest_first(ledger: Ledger) -> Iterator[tuple[str, str, str]]:
    before = "+"
    while True:
        with ledger.asking("read which tasks carried what") as pipe:
            pipe.xrevrange(_key(ledger), max=before, count=_PIECE)
            (entries,) = pipe.execute()
        for _, fields in entries:
            yield tuple(fields[name].decode() for name in (b"of", b"task", b"ended"))
        if len(entries) < _PIECE:
            return
        before = "(" + entries[-1][0].decode()


def _account(account: Account) -> str:
    return json.dumps(account)


def _key(ledger: Ledger) -> str:
    return key(ledger.cluster, ledger.group, "carriers")
