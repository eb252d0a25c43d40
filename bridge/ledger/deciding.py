"""A decision is made: Kafka acknowledges it, then Redis has it, then who reads there acts on it.

Dies it in between, Kafka has the decision, and a bridge brings it to Redis. What Kafka does not take is noted in Redis
alone: it stands, and a bridge publishes it when Kafka is there again.
"""

import time
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from bridge.errors import KafkaUnavailable, LedgerUnavailable, NotDecided, PublishFailed
from bridge.ledger.control import NOTHING, Mirror
from bridge.records.control import Decision, change, decided
from bridge.settings import Settings
from bridge.topics import control


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
    clock: Callable[[], float] = time.time,
) -> Outcome:
    """Make a decision on what stands for its key, whatever that is.

    Parameters:
        mirror: of the group; `None` where there is no Redis for it.
        data: JSON values; `None` takes back what stands.

    Raises:
        NotDecided: neither Kafka nor Redis has it.
    """
    decision = decided(key, standing(settings, mirror).get(key), change(data, by, clock(), why))
    try:
        offset = control.publish(settings, decision)
    except (KafkaUnavailable, PublishFailed) as error:
        return _without_kafka(mirror, decision, str(error))
    try:
        if mirror is not None:
            mirror.note(decision, offset)
    except LedgerUnavailable as error:
        return Outcome(decision, unmirrored=str(error))
    return Outcome(decision)


def standing(settings: Settings, mirror: Mirror | None) -> dict[str, Decision]:
    """By key, what stands, as far as Redis knows; where it knows nothing, as Kafka has it."""
    try:
        known = NOTHING if mirror is None else mirror.read()
    except LedgerUnavailable:
        known = NOTHING
    if known.version:
        return known.in_force()
    try:
        return {key: each.decision for key, each in control.published(settings).items()}
    except KafkaUnavailable:
        return {}


def _without_kafka(mirror: Mirror | None, decision: Decision, why: str) -> Outcome:
    if mirror is None:
        raise NotDecided(f"{decision.key}: Kafka does not have it, and there is no Redis to note it in: {why}")
    try:
        mirror.want(decision)
    except LedgerUnavailable as error:
        raise NotDecided(f"{decision.key}: neither Kafka nor Redis has it: {why} {error}") from None
    return Outcome(decision, unpublished=why)
