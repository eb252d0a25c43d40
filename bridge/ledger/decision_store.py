"""Decisions of the group:

Kafka acknowledges each, then Redis mirrors it for workers and commands. If the process dies in between, Kafka has the
decision, and a bridge brings it to Redis. A decision that Kafka does not take stands in Redis alone until a bridge
publishes it. Nothing here is keyed by the Kafka cluster, so it can be read while Kafka is down.
"""

import logging
import secrets
import time
from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple

from bridge.errors import KafkaUnavailable, LedgerUnavailable, NotDecided, PublishFailed
from bridge.formats.group_decision import (
    GroupDecision,
    PublishedDecision,
    append_decision,
    choose_effective_decision,
    choose_newest_decision,
    make_decision_entry,
    read_decision,
)
from bridge.formats.untrusted_json import LARGEST, log_skipped_once
from bridge.kafka import control_topic
from bridge.ledger.fate_pages import ledger_key
from bridge.ledger.ledger_client import Ledger
from bridge.ledger.ledger_scripts import CONTROL
from bridge.settings import Settings

logger = logging.getLogger(__name__)

_IS: Final = "is "
_WANTS: Final = "wants "


class MirroredDecisions(NamedTuple):
    """What Redis knows.

    Attributes:
        version: another one after each change; empty where nothing was noted: Redis is new, or was wiped.
        published: by key, what Kafka has.
        unpublished: by key, what it does not have yet.
        whole: whether a bridge has seen, since Redis was new or wiped, that nothing is missing that Kafka has.
    """

    version: str
    published: Mapping[str, PublishedDecision]
    unpublished: Mapping[str, GroupDecision]
    whole: bool = False

    def in_force(self) -> dict[str, GroupDecision]:
        """By key, what stands: the last decision, also one that took back what stood."""
        keys = self.published.keys() | self.unpublished.keys()
        found = {name: choose_effective_decision(self.published.get(name), self.unpublished.get(name)) for name in keys}
        return {name: each for name, each in found.items() if each is not None}


NO_DECISIONS: Final = MirroredDecisions("", {}, {})


class DecisionMirror:
    """The decisions of the ledger's group. Each method raises LedgerUnavailable when Redis does not do as asked."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self._key = ledger_key("control", ledger.group)

    def version(self) -> str:
        """Return the version of what is known: one small read."""
        with self._ledger.asking("read whether anything was decided") as pipe:
            pipe.hget(self._key, "version")
            (found,) = pipe.execute()
        return _decode_text(found)

    def read(self) -> MirroredDecisions:
        """Return all that is known."""
        with self._ledger.asking("read what was decided") as pipe:
            pipe.hgetall(self._key)
            (found,) = pipe.execute()
        return _read_mirror({_decode_text(name): _decode_text(value) for name, value in found.items()})

    def note(self, decision: GroupDecision, offset: int) -> None:
        """Note what Kafka has, unless something newer is known; what it counts over is not to be published any more."""
        self._do("is", decision.key, offset, decision.change.id, decision.to_value())

    def want(self, decision: GroupDecision) -> None:
        """Note what Kafka could not take: it stands, and a bridge publishes it."""
        self._do("wants", decision.key, decision.change.id, decision.to_value())

    def anew(self) -> None:
        """The control topic was made again, or lost its end: all that is known stands, and is to be published again."""
        self._do("anew")

    def whole(self, version: str) -> None:
        """Note that nothing is missing that Kafka has, where this is the version still."""
        self._do("whole", version)

    def _do(self, *args: str | int) -> None:
        self._ledger.run("note what was decided", CONTROL, [self._key], [secrets.token_hex(8), *args])


def _read_mirror(fields: Mapping[str, str]) -> MirroredDecisions:
    """Return what the fields say; one that holds no decision is left out, and logged once."""
    published: dict[str, PublishedDecision] = {}
    unpublished: dict[str, GroupDecision] = {}
    for name, value in fields.items():
        if name.startswith(_IS):
            offset, _, rest = value.partition(" ")
            decision = _read_decision(name.removeprefix(_IS), rest)
            if decision is not None and _is_offset(offset):
                published[decision.key] = PublishedDecision(decision, int(offset))
                continue
        elif name.startswith(_WANTS):
            decision = _read_decision(name.removeprefix(_WANTS), value)
            if decision is not None:
                unpublished[decision.key] = decision
                continue
        else:
            continue
        log_skipped_once(logger, f"field {name!r} of the decisions in Redis", "it holds no decision of this version")
    return MirroredDecisions(fields.get("version", ""), published, unpublished, "whole" in fields)


def _is_offset(text: str) -> bool:
    digits = text.removeprefix("-")
    return digits.isascii() and digits.isdecimal() and len(digits) < len(str(LARGEST))


def _read_decision(name: str, value: str) -> GroupDecision | None:
    return read_decision(name, value.partition(" ")[2])


def _decode_text(found: Any) -> str:
    return found.decode(errors="surrogateescape") if found else ""


#: Of what was sent to Kafka, and given up.
LATE_PUBLICATION: Final = (
    " What was sent to Kafka may arrive there yet, and counts then: look at `bridge status`, and decide again when it "
    "answers."
)


#: Of a Redis that may have lost what Kafka has.
INCOMPLETE_MIRROR: Final = "Redis is new, or was wiped, and no bridge has seen since that it has all."


class DecisionOutcome(NamedTuple):
    """What became of a decision.

    Attributes:
        unpublished: why Kafka does not have it yet; empty if it does.
        unmirrored: why Redis does not have it yet; empty if it does.
    """

    decision: GroupDecision
    unpublished: str = ""
    unmirrored: str = ""


def make_decision(
    settings: Settings,
    mirror: DecisionMirror | None,
    key: str,
    data: Mapping[str, Any] | None,
    by: str,
    why: str,
    before: GroupDecision | None = None,
    clock: Callable[[], float] = time.time,
) -> DecisionOutcome:
    """Make a decision.

    Parameters:
        mirror: of the group; `None` where there is no Redis for it.
        data: JSON values; `None` takes back what stands.
        before: what stood so far (`standing`).

    Raises:
        NotDecided: neither Kafka nor Redis has it.
    """
    decision = append_decision(key, before, make_decision_entry(data, by, clock(), why))
    try:
        offset = control_topic.publish_decision(settings, decision)
    except KafkaUnavailable as error:
        return _note_in_redis_alone(mirror, decision, str(error))
    except PublishFailed as error:
        return _note_in_redis_alone(mirror, decision, str(error), LATE_PUBLICATION)
    try:
        if mirror is not None:
            mirror.note(decision, offset)
    except LedgerUnavailable as error:
        return DecisionOutcome(decision, unmirrored=str(error))
    return DecisionOutcome(decision)


class KnownDecisions(NamedTuple):
    """What stands, as far as it is known.

    Attributes:
        standing: by key.
        unread: why Kafka could not be asked: it may have what Redis does not know, or no longer; empty if it was.
        unknown: why there may be more than what is known: what has it could not be asked, and no bridge has seen that
            the other has all; empty where this is all.
    """

    standing: dict[str, GroupDecision]
    unread: str = ""
    unknown: str = ""


def read_standing_decisions(settings: Settings, mirror: DecisionMirror | None) -> dict[str, GroupDecision]:
    """By key, what stands, as far as Kafka and Redis can be asked: either may know more.

    Raises:
        NotDecided: neither can be asked.
    """
    return read_decisions(settings, mirror).standing


def read_decisions(settings: Settings, mirror: DecisionMirror | None) -> KnownDecisions:
    """What stands, as far as Kafka and Redis can be asked, and whether Kafka was.

    Raises:
        NotDecided: neither can be asked.
    """
    silent, unread = [], ""
    try:
        mirrored = NO_DECISIONS if mirror is None else mirror.read()
    except LedgerUnavailable as error:
        mirrored = NO_DECISIONS
        silent.append(str(error))
    try:
        published = control_topic.read_published_decisions(settings).standing
    except KafkaUnavailable as error:
        published, unread = {}, str(error)
        silent.append(unread)
    if len(silent) == (1 if mirror is None else 2):
        raise NotDecided(f"what was decided is not known: {' '.join(silent)}")
    # What Redis has may not be in Kafka yet; what Kafka has Redis may have lost, and no bridge put back.
    unknown = silent[0] if silent else ""
    if unread:
        unknown = "" if mirrored.whole else f"{unread} {INCOMPLETE_MIRROR}"
    return KnownDecisions(merge_decisions(published, mirrored).in_force(), unread, unknown)


def look_up_decisions(settings: Settings, mirror: DecisionMirror) -> dict[str, GroupDecision]:
    """By key, what stands, as Redis has it; Kafka is asked where Redis may have lost something.

    Raises:
        LedgerUnavailable: Redis did not answer.
        KafkaUnavailable: Kafka was asked, and did not answer.
    """
    mirrored = mirror.read()
    return merge_decisions(
        {} if mirrored.whole else control_topic.read_published_decisions(settings).standing, mirrored
    ).in_force()


def merge_decisions(published: Mapping[str, PublishedDecision], mirrored: MirroredDecisions) -> MirroredDecisions:
    """What Kafka and Redis know together: either may know more."""
    found = {
        key: kept
        for key in published.keys() | mirrored.published.keys()
        if (kept := choose_newest_decision(published.get(key), mirrored.published.get(key))) is not None
    }
    return mirrored._replace(published=found)


def _note_in_redis_alone(
    mirror: DecisionMirror | None, decision: GroupDecision, why: str, late: str = ""
) -> DecisionOutcome:
    if mirror is None:
        raise NotDecided(f"{decision.key}: Kafka does not have it, and there is no Redis to note it in: {why}{late}")
    try:
        mirror.want(decision)
    except LedgerUnavailable as error:
        raise NotDecided(f"{decision.key}: neither Kafka nor Redis has it: {why} {error}{late}") from None
    return DecisionOutcome(decision, unpublished=why)
