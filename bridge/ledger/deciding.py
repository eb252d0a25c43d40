"""A decision is made: Kafka acknowledges it, then Redis has it, then who reads there acts on it.

Dies it in between, Kafka has the decision, and a bridge brings it to Redis. What Kafka does not take is noted in Redis
alone: it stands, and a bridge publishes it when Kafka is there again.
"""

import time
from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple

from bridge.errors import KafkaUnavailable, LedgerUnavailable, NotDecided, PublishFailed
from bridge.ledger.control import NOTHING, Mirror, Mirrored
from bridge.records.control import Decision, Standing, change, decided, newest
from bridge.settings import Settings
from bridge.topics import control

#: Of what was sent to Kafka, and given up.
LATE: Final = (
    " What was sent to Kafka may arrive there yet, and counts then: look at `bridge status`, and decide again when it "
    "answers."
)


#: Of a Redis that may have lost what Kafka has.
HALF: Final = "Redis is new, or was wiped, and no bridge has seen since that it has all."


class Outcome(NamedTuple):
    """What became of a decision.

    Attributes:
        unpublished: why Kafka does not have it yet; empty if it does.
        unmirrored: why Redis does not have it yet; empty if it does.
    """

    decision: Decision
    unpublished: str = ""
    unmirrored: str = ""


def decide(
    settings: Settings,
    mirror: Mirror | None,
    key: str,
    data: Mapping[str, Any] | None,
    by: str,
    why: str,
    before: Decision | None = None,
    clock: Callable[[], float] = time.time,
) -> Outcome:
    """Make a decision.

    Parameters:
        mirror: of the group; `None` where there is no Redis for it.
        data: JSON values; `None` takes back what stands.
        before: what stood so far (`standing`).

    Raises:
        NotDecided: neither Kafka nor Redis has it.
    """
    decision = decided(key, before, change(data, by, clock(), why))
    try:
        offset = control.publish(settings, decision)
    except KafkaUnavailable as error:
        return _without_kafka(mirror, decision, str(error))
    except PublishFailed as error:
        return _without_kafka(mirror, decision, str(error), LATE)
    try:
        if mirror is not None:
            mirror.note(decision, offset)
    except LedgerUnavailable as error:
        return Outcome(decision, unmirrored=str(error))
    return Outcome(decision)


class Known(NamedTuple):
    """What stands, as far as it is known.

    Attributes:
        standing: by key.
        unread: why Kafka could not be asked: it may have what Redis does not know, or no longer; empty if it was.
        unknown: why there may be more than what is known: what has it could not be asked, and no bridge has seen that
            the other has all; empty where this is all.
    """

    standing: dict[str, Decision]
    unread: str = ""
    unknown: str = ""


def standing(settings: Settings, mirror: Mirror | None) -> dict[str, Decision]:
    """By key, what stands, as far as Kafka and Redis can be asked: either may know more.

    Raises:
        NotDecided: neither can be asked.
    """
    return known(settings, mirror).standing


def known(settings: Settings, mirror: Mirror | None) -> Known:
    """What stands, as far as Kafka and Redis can be asked, and whether Kafka was.

    Raises:
        NotDecided: neither can be asked.
    """
    silent, unread = [], ""
    try:
        mirrored = NOTHING if mirror is None else mirror.read()
    except LedgerUnavailable as error:
        mirrored = NOTHING
        silent.append(str(error))
    try:
        published = control.published(settings).standing
    except KafkaUnavailable as error:
        published, unread = {}, str(error)
        silent.append(unread)
    if len(silent) == (1 if mirror is None else 2):
        raise NotDecided(f"what was decided is not known: {' '.join(silent)}")
    # What Redis has may not be in Kafka yet; what Kafka has Redis may have lost, and no bridge put back.
    unknown = silent[0] if silent else ""
    if unread:
        unknown = "" if mirrored.whole else f"{unread} {HALF}"
    return Known(merged(published, mirrored).in_force(), unread, unknown)


def looked_up(settings: Settings, mirror: Mirror) -> dict[str, Decision]:
    """By key, what stands, as Redis has it; Kafka is asked where Redis may have lost something.

    Raises:
        LedgerUnavailable: Redis did not answer.
        KafkaUnavailable: Kafka was asked, and did not answer.
    """
    mirrored = mirror.read()
    return merged({} if mirrored.whole else control.published(settings).standing, mirrored).in_force()


def merged(published: Mapping[str, Standing], mirrored: Mirrored) -> Mirrored:
    """What Kafka and Redis know together: either may know more."""
    found = {
        key: kept
        for key in published.keys() | mirrored.published.keys()
        if (kept := newest(published.get(key), mirrored.published.get(key))) is not None
    }
    return mirrored._replace(published=found)


def _without_kafka(mirror: Mirror | None, decision: Decision, why: str, late: str = "") -> Outcome:
    if mirror is None:
        raise NotDecided(f"{decision.key}: Kafka does not have it, and there is no Redis to note it in: {why}{late}")
    try:
        mirror.want(decision)
    except LedgerUnavailable as error:
        raise NotDecided(f"{decision.key}: neither Kafka nor Redis has it: {why} {error}{late}") from None
    return Outcome(decision, unpublished=why)
