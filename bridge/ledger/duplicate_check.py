"""The check whether a record is processed already: which fates make a delivery a duplicate that is skipped (pure)."""

from bridge.ledger.fate_rules import SETTLED, Fate


def is_to_skip(own: Fate, origin: Fate = Fate.OPEN, *, retried: bool = False, again: bool = False) -> bool:
    """Return whether a worker skips a delivery: its record is settled, or its source record is done or discarded.

    A retry needs a parked source record and a replay a dead one, so these do not count. But a retry whose source record
    is dead was parked by a run that was killed before it could mark that; the next run ended it.

    Parameters:
        own: the fate at the record's own coordinates.
        origin: the fate of its source record; a record on a source topic is its own source record.
        retried: whether its record was in a retry topic, and no person ever sent it back.
        again: whether a person asked for another run whatever the source record's fate: then only `own` counts.
    """
    if own in SETTLED or again:
        return own in SETTLED
    return origin in (Fate.DONE, Fate.DISCARDED) or (retried and origin is Fate.DEAD)


def is_to_run(own: Fate, *, passed: bool) -> bool:
    """Return whether the delivery in a record of a retry topic is yet to run.

    Parameters:
        own: the fate at the record's own coordinates.
        passed: whether the group has committed the record: an open one was forgotten, and is not read again.
    """
    return own is Fate.HANDED or (own is Fate.OPEN and not passed)
