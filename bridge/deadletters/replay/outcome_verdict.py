"""The verdict on a replayed delivery, from the ledger, Kafka and the database (pure)."""

from dataclasses import dataclass
from enum import Enum

from bridge.ledger.fate_rules import Fate

#: The fates of a record that no bridge has handled yet.
_UNTOUCHED = (Fate.OPEN, Fate.GAP)


class OutcomeVerdict(Enum):
    """The verdict on a replaying letter."""

    WAIT = "wait"
    """It is in flight, or it died again, which the recorder will record."""
    DONE = "done"
    DISCARDED = "discarded"
    LOOK = "look"
    """The ledger has forgotten it, or is silent for long: search Kafka."""
    UNKNOWN = "unknown"
    GONE = "gone"
    """Kafka dropped its record before a bridge read it, and the ledger proves that it was not handed off."""


@dataclass(frozen=True, slots=True)
class KnownOutcome:
    """The known facts about a replayed delivery.

    Attributes:
        origin: its fate.
        own: the fate of the record that replayed it.
        passed: whether the group has committed that record.
        there: whether Kafka still has it.
        dropped: whether Kafka has dropped it: the log begins behind it, or the topic is gone. A log that ends before it
            is no proof.
        remembers: whether the ledger has forgotten nothing since it was sent.
        settles: whether committed deliveries are settled (commit="completion"), else in the broker.
        again: whether it runs though its origin was done, so that the origin's fate says nothing.
        since: seconds since it was sent, or since the ledger's data begin, if that is later.
        patience: seconds after which the outcome is called unknown.
    """

    origin: Fate
    own: Fate
    passed: bool
    there: bool
    settles: bool
    since: float
    patience: float
    again: bool = False
    dropped: bool = False
    remembers: bool = True


def judge_by_ledger(known: KnownOutcome) -> OutcomeVerdict:
    """Return the verdict from the ledger and the topic's offsets."""
    told = known.own if known.again else known.origin
    if told is Fate.DONE:
        return OutcomeVerdict.DONE
    if told is Fate.DISCARDED:
        return OutcomeVerdict.DISCARDED
    if known.own in _UNTOUCHED:
        if known.passed:
            # The ledger has forgotten its hand-off.
            return OutcomeVerdict.LOOK
        if known.dropped and known.remembers:
            return OutcomeVerdict.GONE
        if known.there:
            return OutcomeVerdict.WAIT
        return OutcomeVerdict.LOOK if known.since > known.patience else OutcomeVerdict.WAIT
    if known.own is Fate.HANDED:
        # Bridges watch handed deliveries: they open stuck ones again.
        return OutcomeVerdict.WAIT
    if known.again and known.own is Fate.PARKED:
        return OutcomeVerdict.LOOK
    # It ran: it is parked, or died again, which the recorder will record.
    return OutcomeVerdict.LOOK if known.since > known.patience else OutcomeVerdict.WAIT


def judge_by_kafka(known: KnownOutcome, *, parked: bool, recorded: bool) -> OutcomeVerdict:
    """Return the verdict from Kafka on a delivery that has left the topic to which it was sent.

    Parameters:
        parked: whether it is parked in a retry topic, and is to run.
        recorded: whether all dead letters that Kafka had then are recorded, so that this delivery has none.
    """
    if parked or not recorded:
        return OutcomeVerdict.WAIT
    if known.again and known.own is Fate.PARKED:
        # It ran after that, and did not die.
        return OutcomeVerdict.DONE
    if known.own in _UNTOUCHED and known.passed and known.settles and known.origin is not Fate.DEAD:
        # It was settled, and is neither dead nor parked.
        return OutcomeVerdict.DONE
    return OutcomeVerdict.UNKNOWN if known.since > known.patience else OutcomeVerdict.WAIT
