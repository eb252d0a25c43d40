"""The rule that tells a recreated topic or a truncated log from the log that was read (pure)."""

from collections.abc import Sequence
from typing import NamedTuple

from bridge.ledger import KnownLog


class LogDecision(NamedTuple):
    """What a commit is worth on the log as it is now.

    Attributes:
        offset: where to go on; `None` where nobody has been yet.
        kept: whether the commit stands as it is.
        epoch: the leader epoch up to which the log was read, for Kafka's client to check; -1 if it is not known.
        back: whether the log went back: it may have lost more than its end says, and have other records there.
    """

    offset: int | None
    kept: bool
    epoch: int
    back: bool = False


class SuspectedLog(NamedTuple):
    """Another log than the one that was read, by one answer of Kafka's: it is to be asked again.

    Attributes:
        log: the log that it would be.
        what: what would have happened to the one that was read.
    """

    log: KnownLog
    what: str


class CommitEvidence(NamedTuple):
    """What the group has committed on a partition, as far as it concerns the log.

    Attributes:
        offset: `None` if nothing.
        log: the id of the log that it is of; `None` if it was not a bridge that committed.
        epoch: the leader epoch that wrote the record before it; -1 if it is not known.
    """

    offset: int | None
    log: str | None
    epoch: int


class LogComparison(NamedTuple):
    """What records say of the log that they were read from.

    Attributes:
        anew: whether where to begin is to be found out anew, before any of them is taken in.
        cut: the first offset that is written by a leader epoch of which nothing was read yet.
        epoch: the last leader epoch of these records.
    """

    anew: bool
    cut: int | None
    epoch: int


def merge_known_logs(noted: KnownLog | None, here: KnownLog | None) -> KnownLog | None:
    """What is known of a partition's log together.

    Parameters:
        noted: in the ledger, which may have been wiped, or set back to before an epoch was read.
        here: by this bridge, from when it had the partition last.
    """
    if noted is None or here is None or noted.topic_id != here.topic_id:
        return noted or here
    return KnownLog(noted.topic_id, max(noted.turn, here.turn), max(noted.epoch, here.epoch))


def decide_log(
    known: KnownLog | None, topic_id: str, said: CommitEvidence, low: int, high: int
) -> tuple[KnownLog, LogDecision, str | None]:
    """Decide which log a partition has, and where to go on in it.

    Parameters:
        known: the log that it had as far as bridges knew; `None` if none ever was here.
        low, high: the first offset that Kafka has, and one more than the last.

    Returns:
        the log; what the commit is worth; and what happened to the log, if anything did.
    """
    told = KnownLog.of(said.log) if said.log else None
    before = told or known
    if before is not None and before.topic_id != topic_id:
        return KnownLog(topic_id), LogDecision(low, False, -1), "made anew"
    same = [log for log in (told, known) if log is not None and log.topic_id == topic_id]
    epoch = max((each.epoch for each in same), default=-1)
    # What a bridge has committed was read, whatever the ledger has lost since: of that epoch nothing is new.
    epoch = max(epoch, said.epoch) if told is not None or epoch < 0 else epoch
    log = KnownLog(topic_id, max((each.turn for each in same), default=0), epoch)
    if said.offset is not None and said.offset > high:
        return log._replace(turn=log.turn + 1), LogDecision(high, False, epoch, back=True), "went back"
    if told is not None and told.turn < log.turn:
        # It was found that the log went back, and nothing is committed since: what lies below may be others by now.
        return log, LogDecision(said.offset, False, said.epoch, back=True), None
    ours = told is not None and told.id == log.id
    return log, LogDecision(said.offset, ours, epoch), None


def compare_records(known: KnownLog, expected: int, low: int, records: Sequence[tuple[int, int]]) -> LogComparison:
    """Decide what records say of their log.

    Parameters:
        expected: one more than the last offset that was read.
        low: the first offset that Kafka had, as its client last heard.
        records: offset and leader epoch of each, ascending.
    """
    (first, _), (_, last) = records[0], records[-1]
    cut = None
    if last > known.epoch:
        cut = next(offset for offset, epoch in records if epoch > known.epoch)
    # Below the window: another log. Above it, and below what Kafka has: it expired while nobody read it.
    return LogComparison(first < expected or first > expected < low, cut, last)
