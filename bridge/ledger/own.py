"""What of retry and replay topics was handed off and has not ended: in no lag, and gone with no topic. And which of
their records are yet to run.

With ``commit="handoff"`` a record is committed as it is handed off. Where it came from stays parked until a worker has
run it; so this is on its way, though no bridge reads it any more, and though its topic may be deleted.
"""

from collections.abc import Callable, Collection, Iterable, Mapping

from bridge.ledger import OWN, Account, Accounts, Fate, KnownLog, Ledger, LogBook
from bridge.ledger.fates import is_to_run
from bridge.ledger.handed import looks, steps_of
from bridge.records.parked import Lying
from bridge.topics.extents import Extent


def on_the_way(
    ledger: Ledger, ours: Callable[[str], bool], there: Iterable[Extent], ids: Mapping[str, str]
) -> dict[str, int]:
    """By retry and replay topic, how many records are handed off, not settled, and not counted in its lag.

    Parameters:
        ours: whether a topic is meant; those that are gone, or were made again, are asked for too.
        there: the partitions of those that there are, as they were before this is asked.
        ids: the ids of those.

    Raises:
        LedgerUnavailable: Redis did not answer.
    """
    uncommitted = _uncommitted(ledger, there, ids)
    found: dict[str, int] = {}
    for account, handed in _handed(ledger, [each for each in Accounts(ledger).everyone() if _is_own(each, ours)]):
        count = sum(len(run[: _below(run, uncommitted.get(account))]) for run in handed)
        if count:
            found[account.topic] = found.get(account.topic, 0) + count
    return found


def to_run(ledger: Ledger | None, records: Collection[Lying]) -> set[Lying]:
    """Return those of these records of retry topics whose deliveries are yet to run.

    Parameters:
        ledger: `None` where there is no Redis for it: what was handed off has gone out.

    Raises:
        LedgerUnavailable: Redis did not answer.
    """
    if ledger is None or not records:
        return {record for record in records if is_to_run(Fate.OPEN, passed=record.passed)}
    known = LogBook(ledger).known({(record.topic, record.partition) for record in records})
    asked = []
    for topic, partition, offset, _ in records:
        # Of a log that no bridge has met nothing was handed off.
        log = known.get((topic, partition), KnownLog(""))
        asked.append((Account(OWN, topic, log.id, partition), offset, offset))
    fates = ledger.fates_many(asked)
    return {record for record, (own,) in zip(records, fates, strict=True) if is_to_run(Fate(own), passed=record.passed)}


def _is_own(account: Account, ours: Callable[[str], bool]) -> bool:
    return account.handler == OWN and ours(account.topic)


def _below(run: range, bound: int | None) -> int:
    """How many of a run lie below a bound."""
    return len(run) if bound is None else min(len(run), max(0, bound - run.start))


def _uncommitted(ledger: Ledger, there: Iterable[Extent], ids: Mapping[str, str]) -> dict[Account, int]:
    """By account of a partition as it is now, the first offset that its lag has."""
    extents = {each.place: each for each in there}
    known = LogBook(ledger).known(extents)
    found = {}
    for place, extent in extents.items():
        log = known.get(place)
        topic_id = ids.get(place[0], "")
        log_id = log.id if log is not None and log.topic_id == topic_id else topic_id
        found[Account(OWN, place[0], log_id, place[1])] = max(extent.first, extent.committed or 0)
    return found


def _handed(ledger: Ledger, accounts: list[Account]) -> Iterable[tuple[Account, list[range]]]:
    """What is handed off of each, as the index of hand-offs leads to it: only where that lies is looked."""
    if not accounts:
        return
    with ledger.asking("see what of retry topics is handed off") as pipe:
        for account in accounts:
            pipe.hgetall(ledger.index_key(account))
        answers = pipe.execute()
    for account, fields in zip(accounts, answers, strict=True):
        yield account, [run for look in looks(ledger, account, steps_of(fields)) for run in look.own]
