"""Where the recording of a partition begins, by what the database has of it and what Kafka has (pure)."""

from collections.abc import Mapping
from typing import NamedTuple

from bridge.deadletters.store.positions import Log, Reached, Step


class Beginning(NamedTuple):
    """Where to begin.

    Attributes:
        step: what the database is to note before anything is recorded; `None`: it has that already.
        words: what happened to the log meanwhile, a sentence; "": nothing.
    """

    log: Log
    at: Reached
    step: Step | None
    words: str = ""


def begin(log: Log, known: Mapping[Log, Reached], low: int, high: int) -> Beginning:
    """Decide where to begin.

    Parameters:
        known: how far the database has the logs of this topic, earlier ones of its name among them.
        low, high: the first offset that Kafka has, and one more than the last.
    """
    reached = known.get(log)
    if reached is None:
        return _first(log, known, low)
    if reached.next < low:
        words = f"{low - reached.next} records up to offset {low - 1} were dropped by Kafka before they were recorded."
        return _moved(log, reached, low, f"{log}: retention has passed: {words}", low - reached.next)
    if reached.next > high:
        words = (
            f"the log went back: it ends at offset {high}, and was recorded up to {reached.next} (an unclean election, "
            "or a disk that kept less than it had promised). It is read anew; what is recorded is known again."
        )
        return _moved(log, reached, low, f"{log}: {words}")
    return Beginning(log, reached, None)


def back(log: Log, reached: Reached, low: int) -> Beginning:
    """Where to begin in a log that Kafka's client has found to have lost its end: other records lie there now."""
    words = (
        "the log went back: other records lie where some were recorded (an unclean election, or a disk that kept less "
        "than it had promised). It is read anew; what is recorded is known again."
    )
    return _moved(log, reached, low, f"{log}: {words}")


def _first(log: Log, known: Mapping[Log, Reached], low: int) -> Beginning:
    """What was there before the recorder came is missed: nobody can tell how much of it was letters."""
    at = Reached(low, -1)
    same = (log.consumer_group, log.topic, log.partition)
    before = [each for each in known if (each.consumer_group, each.topic, each.partition) == same]
    said = []
    if before:
        said.append("the topic was deleted and made again: what was not recorded of the old one is gone.")
    if low > 0:
        said.append(f"{low} records were dropped by Kafka (its retention has passed) before the recorder came.")
    return Beginning(log, at, Step(log, None, at, low), f"{log}: {' '.join(said)}" if said else "")


def _moved(log: Log, before: Reached, low: int, words: str, missed: int = 0) -> Beginning:
    at = Reached(low, -1)
    return Beginning(log, at, Step(log, before.next, at, missed), words)
