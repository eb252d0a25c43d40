"""The rule that tells a recreated topic or a truncated log from the log that was read (pure)."""

from collections.abc import Sequence
from typing import NamedTuple

from bridge.ledger import KnownLog


class LogDecision(NamedTuple):
    """The start in a log, and the worth of a commit there.

    Attributes:
        offset: where to go on; `None` if the group has read nothing there.
        kept: whether the commit stands as it is.
        epoch: the leader epoch up to which the log was read, for Kafka's client to check; -1 if unknown.
        back: whether the log was truncated: it may have lost more than its end shows, and have other records there.
    """

    offset: int | None
    kept: bool
    epoch: int
    back: bool = False


class SuspectedLog(NamedTuple):
    """A changed log, by one answer of Kafka: a second one must confirm it.

    Attributes:
        log: the changed log.
        what: the change of the log that was read.
    """

    log: KnownLog
    what: str


class CommitEvidence(NamedTuple):
    """The evidence of a commit about the log of its partition.

    Attributes:
        offset: the committed offset; `None` if nothing is committed.
        log: the id of the log that it is of; `None` if no bridge committed it.
        epoch: the leader epoch that wrote the record before it; -1 if unknown.
    """

    offset: int | None
    log: str | None
    epoch: int


class LogComparison(NamedTuple):
    """The evidence of records about the log that they were read from.

    Attributes:
        anew: whether the partition must start anew before any of them is taken in.
        cut: the first offset of a leader epoch of which nothing was read yet.
        epoch: the last leader epoch of these records.
    """

    anew: bool
    cut: int | None
    epoch: int


def merge_known_logs(noted: KnownLog | None, here: KnownLog | None) -> KnownLog | None:
    """Return the known log of a partition, from the ledger and this bridge together.

    Parameters:
        noted: the log in the ledger, which may have been wiped or set back.
        here: the log that this bridge knew when it last had the partition.
    """
    if noted is None or here is None or noted.topic_id != here.topic_id:
        return noted or here
    return KnownLog(noted.topic_id, max(noted.turn, here.turn), max(noted.epoch, here.epoch))


def decide_log(
    known: KnownLog | None, topic_id: str, evidence: CommitEvidence, low: int, high: int
) -> tuple[KnownLog, LogDecision, str | None]:
    """Decide which log a partition has, and where to go on in it.

    Parameters:
        known: the log that bridges knew; `None` if none did.
        low, high: the first offset that Kafka has, and one more than the last.

    Returns:
        the log; the start in it; the change of the log, if there was one.
    """
    committed_log = KnownLog.from_id(evidence.log) if evidence.log else None
    before = committed_log or known
    if before is not None and before.topic_id != topic_id:
        return KnownLog(topic_id), LogDecision(low, False, -1), "made anew"
    same = [log for log in (committed_log, known) if log is not None and log.topic_id == topic_id]
    epoch = max((each.epoch for each in same), default=-1)
    # A bridge has read what it committed, whatever the ledger lost since: nothing of that epoch is new.
    epoch = max(epoch, evidence.epoch) if committed_log is not None or epoch < 0 else epoch
    log = KnownLog(topic_id, max((each.turn for each in same), default=0), epoch)
    if evidence.offset is not None and evidence.offset > high:
        return log._replace(turn=log.turn + 1), LogDecision(high, False, epoch, back=True), "went back"
    if committed_log is not None and committed_log.turn < log.turn:
        # The log was truncated and nothing was committed since: the records below may be others by now.
        return log, LogDecision(evidence.offset, False, evidence.epoch, back=True), None
    ours = committed_log is not None and committed_log.id == log.id
    return log, LogDecision(evidence.offset, ours, epoch), None


def compare_records(known: KnownLog, expected: int, low: int, records: Sequence[tuple[int, int]]) -> LogComparison:
    """Return what records tell about their log.

    Parameters:
        expected: one more than the last offset that was read.
        low: the first offset that Kafka's client last heard of.
        records: offset and leader epoch of each, ascending.
    """
    (first, _), (_, last) = records[0], records[-1]
    cut = None
    if last > known.epoch:
        cut = next(offset for offset, epoch in records if epoch > known.epoch)
    # A record below the window is of a changed log; one above a gap below Kafka's first offset: the gap has expired.
    return LogComparison(first < expected or first > expected < low, cut, last)
