"""How a delivery that was sent back ended, judged from the ledger, Kafka and the database (pure)."""

from dataclasses import dataclass
from enum import Enum

from bridge.ledger.fate_rules import Fate

#: What its record's own fate may be while nothing was done with it.
_UNTOUCHED = (Fate.OPEN, Fate.GAP)


class OutcomeVerdict(Enum):
    """What is to be done with a letter that is on its way."""

    WAIT = "wait"
    """It is under way, or it died again and that is not recorded yet: the recorder says so."""
    DONE = "done"
    DISCARDED = "discarded"
    LOOK = "look"
    """The ledger has forgotten it, or says nothing for long: Kafka is to be looked through."""
    UNKNOWN = "unknown"
    GONE = "gone"
    """Kafka dropped its record before anybody read it, and the ledger proves that it was not handed off."""


@dataclass(frozen=True, slots=True)
class KnownOutcome:
    """What is known of a delivery that was sent back.

    Attributes:
        origin: its fate.
        own: that of the record by which it was sent back.
        passed: whether the group has committed that record.
        there: whether Kafka has it still.
        dropped: whether Kafka has it no more: the log begins behind it, or the topic is gone. A log that ends before it
            does not prove that.
        remembers: whether the ledger has forgotten nothing since it was sent.
        settles: whether what is committed is settled (commit="completion"), else in the broker.
        again: whether it runs though its origin was done: that tells nothing of it.
        since: seconds for which all that could have told of it has been silent: since it was sent, or the ledger's data
            begin, if that is later.
        patience: seconds after which what cannot be known is called so.
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
    """What the ledger and the topic's offsets tell."""
    told = known.own if known.again else known.origin
    if told is Fate.DONE:
        return OutcomeVerdict.DONE
    if told is Fate.DISCARDED:
        return OutcomeVerdict.DISCARDED
    if known.own in _UNTOUCHED:
        if known.passed:
            # The ledger has forgotten who began with it.
            return OutcomeVerdict.LOOK
        if known.dropped and known.remembers:
            return OutcomeVerdict.GONE
        if known.there:
            return OutcomeVerdict.WAIT
        return OutcomeVerdict.LOOK if known.since > known.patience else OutcomeVerdict.WAIT
    if known.own is Fate.HANDED:
        # Bridges care for what is handed off: what is stuck they open again.
        return OutcomeVerdict.WAIT
    if known.again and known.own is Fate.PARKED:
        return OutcomeVerdict.LOOK
    # It had its run: it is parked, or died again, which the recorder says soon.
    return OutcomeVerdict.LOOK if known.since > known.patience else OutcomeVerdict.WAIT


def judge_by_kafka(known: KnownOutcome, *, parked: bool, recorded: bool) -> OutcomeVerdict:
    """What Kafka tells of one that is no more where it was sent.

    Parameters:
        parked: whether it lies in a retry topic, and is to run.
        recorded: whether all dead letters are recorded that Kafka had when that was looked for; then this one has none.
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
