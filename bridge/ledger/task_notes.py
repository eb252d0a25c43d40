"""The last Celery task of each delivery, noted after a batch has run, for `bridge find`.

A note goes into a stream of the group of at most `KEPT`, about 150 bytes each. Deliveries that were alone in a task
share a note without a task's name: those tasks are named after them. Notes may be missing (a killed process, too
many notes); nothing is decided by them.
"""

import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Final, NamedTuple

from bridge.formats.delivery_identity import batch_id
from bridge.ledger.ledger_client import Ledger
from bridge.ledger.ledger_layout import Account, ledger_key

#: Notes of a group that are kept: half of the tasks that Flower keeps, at most about 8 MB.
KEPT: Final = 50_000
#: Notes that one round trip reads.
_PIECE: Final = 2_000

#: The placeholder of a task's id: each delivery of the note was alone in a task that is named after it.
SINGLE_TASKS: Final = "-"

#: A delivery: account and offset.
NotedDelivery = tuple[Account, int]


class TaskNote(NamedTuple):
    """A task that has run, and the offsets (ascending) of its deliveries that ended in it.

    `SINGLE_TASKS` as the id stands for as many tasks as there are offsets, each with one delivery.
    """

    task_id: str
    account: Account
    offsets: Sequence[int]


def note_tasks(ledger: Ledger, notes: Sequence[TaskNote]) -> None:
    """Note which deliveries each task carried.

    Raises:
        LedgerUnavailable: Redis did not answer.
    """
    where = _notes_key(ledger)
    with ledger.asking("note which deliveries tasks carried") as pipe:
        for each in notes:
            fields = {
                "task": each.task_id,
                "of": _format_account(each.account),
                "ended": json.dumps(find_offset_runs(each.offsets)),
            }
            pipe.xadd(where, fields, maxlen=KEPT, approximate=True)
        pipe.expire(where, ledger.keep)
        pipe.execute()


def find_noted_tasks(ledger: Ledger, wanted: Collection[NotedDelivery]) -> Mapping[NotedDelivery, str]:
    """Return the last noted task of each of these deliveries; the newest notes are read first.

    Raises:
        LedgerUnavailable: Redis did not answer.
    """
    tasks: dict[NotedDelivery, str] = {}
    accounts = {_format_account(account): account for account, _ in wanted}
    for of, task_id, ended in _newest_first(ledger):
        if of in accounts:
            for which in wanted:
                if which[0] == accounts[of] and which not in tasks and _note_has(which[1], ended):
                    tasks[which] = name_single_task(which) if task_id == SINGLE_TASKS else task_id
        if len(tasks) == len(wanted):
            break
    return tasks


def name_single_task(which: NotedDelivery) -> str:
    """Return the id of the task of a delivery that was alone in it."""
    account, offset = which
    return batch_id(account.topic, account.partition, [offset], account.handler)


def find_offset_runs(offsets: Sequence[int]) -> list[list[int]]:
    """Return the first and last offset of each run of successive offsets (ascending)."""
    if not offsets:
        return []
    if offsets[-1] - offsets[0] == len(offsets) - 1:
        return [[offsets[0], offsets[-1]]]
    ends = [(before, after) for before, after in pairwise(offsets) if after != before + 1]
    firsts = [offsets[0], *(after for _, after in ends)]
    return [list(pair) for pair in zip(firsts, [*(before for before, _ in ends), offsets[-1]], strict=True)]


def is_in_runs(offset: int, runs: Sequence[Sequence[int]]) -> bool:
    """Return whether an offset is in one of these runs."""
    return any(first <= offset <= last for first, last in runs)


def _note_has(offset: int, ended: str) -> bool:
    """Return whether a note contains an offset; an unreadable note contains none."""
    try:
        return is_in_runs(offset, json.loads(ended))
    except (TypeError, ValueError, RecursionError):
        return False


def _newest_first(ledger: Ledger) -> Iterator[tuple[str, str, str]]:
    before = "+"
    while True:
        with ledger.asking("read which deliveries tasks carried") as pipe:
            pipe.xrevrange(_notes_key(ledger), max=before, count=_PIECE)
            (entries,) = pipe.execute()
        for _, fields in entries:
            # An entry of another program is skipped; it does not end the search.
            of, task_id, ended = (fields.get(name, b"").decode(errors="replace") for name in (b"of", b"task", b"ended"))
            if task_id:
                yield of, task_id, ended
        if len(entries) < _PIECE:
            return
        before = "(" + entries[-1][0].decode()


def _format_account(account: Account) -> str:
    return json.dumps(account)


def _notes_key(ledger: Ledger) -> str:
    return ledger_key(ledger.cluster, ledger.group, "carriers")
