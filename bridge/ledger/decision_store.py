"""The decisions of the group: Kafka acknowledges each, then Redis mirrors it for workers and commands.

If the process dies in between, a bridge copies the decision from Kafka to Redis. A decision that Kafka refuses is in
Redis alone until a bridge publishes it. The keys do not name the Kafka cluster, so they can be read while Kafka is
down.
"""

import logging
import secrets
import time
from collections.abc import Callable, Collection, Mapping
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
from bridge.ledger.ledger_client import Ledger
from bridge.ledger.ledger_layout import ledger_key
from bridge.ledger.ledger_scripts import NOTE_DECISION
from bridge.settings import Settings

logger = logging.getLogger(__name__)

_IS: Final = "is "
_WANTS: Final = "wants "


class MirroredDecisions(NamedTuple):
    """The decisions that Redis has.

    Attributes:
        version: changes with each write; empty if Redis is new or was wiped.
        published: the decisions in Kafka, by key.
        unpublished: the decisions that Kafka does not have yet, by key.
        whole: whether a bridge has checked, since Redis was new or wiped, that it has all that Kafka has.
    """

    version: str
    published: Mapping[str, PublishedDecision]
    unpublished: Mapping[str, GroupDecision]
    whole: bool = False

    def in_force(self) -> dict[str, GroupDecision]:
        """Return the last decision of each key, also one that withdraws the decision before it."""
        keys = self.published.keys() | self.unpublished.keys()
        found = {name: choose_effective_decision(self.published.get(name), self.unpublished.get(name)) for name in keys}
        return {name: each for name, each in found.items() if each is not None}


NO_DECISIONS: Final = MirroredDecisions("", {}, {})


class DecisionMirror:
    """The mirror of the group's decisions in Redis. Each method raises LedgerUnavailable when Redis is unavailable."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self._key = ledger_key("control", ledger.group)

    def version(self) -> str:
        """Return the version of the mirror: one small read."""
        with self._ledger.asking("read whether anything was decided") as pipe:
            pipe.hget(self._key, "version")
            (found,) = pipe.execute()
        return _decode_text(found)

    def read(self) -> MirroredDecisions:
        """Return all decisions of the mirror."""
        with self._ledger.asking("read what was decided") as pipe:
            pipe.hgetall(self._key)
            (found,) = pipe.execute()
        return _read_mirror({_decode_text(name): _decode_text(value) for name, value in found.items()})

    def note(self, decision: GroupDecision, offset: int) -> None:
        """Note a decision that Kafka has, unless a newer one is known; older unpublished ones are dropped."""
        self._do("is", decision.key, offset, decision.change.id, decision.to_value())

    def want(self, decision: GroupDecision) -> None:
        """Note a decision that Kafka could not take: it is in force, and a bridge publishes it."""
        self._do("wants", decision.key, decision.change.id, decision.to_value())

    def anew(self) -> None:
        """Mark all decisions as unpublished: the control topic was recreated or truncated."""
        self._do("anew")

    def whole(self, version: str) -> None:
        """Note that the mirror has all that Kafka has, if this is still its version."""
        self._do("whole", version)

    def _do(self, *args: str | int) -> None:
        self._ledger.run("note what was decided", NOTE_DECISION, [self._key], [secrets.token_hex(8), *args])


def _read_mirror(fields: Mapping[str, str]) -> MirroredDecisions:
    """Return the decisions in the fields; a field without one is left out and logged once."""
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


#: The warning about a record whose publication was given up.
LATE_PUBLICATION: Final = (
    " The record may still arrive in Kafka, and counts then: check `bridge status`, and decide again once Kafka "
    "answers."
)


#: The warning about a Redis that may lack decisions that Kafka has.
INCOMPLETE_MIRROR: Final = "Redis is new, or was wiped, and no bridge has copied the decisions from Kafka since."


class DecisionOutcome(NamedTuple):
    """The result of a decision.

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
    """Publish a decision, and mirror it.

    Parameters:
        mirror: of the group; `None` if there is no Redis for it.
        data: JSON values; `None` withdraws the decision in force.
        before: the decision in force so far.

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
    """The decisions in force, as far as they are known.

    Attributes:
        standing: by key.
        unread: why Kafka could not be read; empty if it was. Kafka may have other decisions than Redis.
        unknown: why decisions may be missing: Kafka or Redis could not be read, and the other one may not have all;
            empty if none is missing.
        unpublished: the keys of decisions that Redis alone has until a bridge publishes them.
    """

    standing: dict[str, GroupDecision]
    unread: str = ""
    unknown: str = ""
    unpublished: Collection[str] = ()


def read_standing_decisions(settings: Settings, mirror: DecisionMirror | None) -> dict[str, GroupDecision]:
    """Return the decisions in force by key, as far as Kafka and Redis respond: each may have more than the other.

    Raises:
        NotDecided: neither can be asked.
    """
    return read_decisions(settings, mirror).standing


def read_decisions(settings: Settings, mirror: DecisionMirror | None) -> KnownDecisions:
    """Return the decisions in force, as far as Kafka and Redis respond, and whether Kafka did.

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
        raise NotDecided(f"the decisions of the group are unknown: {' '.join(silent)}")
    # Redis may have decisions that are not in Kafka yet; Kafka may have decisions that Redis has lost.
    unknown = silent[0] if silent else ""
    if unread:
        unknown = "" if mirrored.whole else f"{unread} {INCOMPLETE_MIRROR}"
    standing = merge_decisions(published, mirrored).in_force()
    unpublished = [key for key, decision in mirrored.unpublished.items() if standing.get(key) == decision]
    return KnownDecisions(standing, unread, unknown, unpublished)


def look_up_decisions(settings: Settings, mirror: DecisionMirror) -> dict[str, GroupDecision]:
    """Return the decisions in force by key from Redis; from Kafka too if Redis may lack some.

    Raises:
        LedgerUnavailable: Redis did not answer.
        KafkaUnavailable: Kafka was needed, and did not answer.
    """
    mirrored = mirror.read()
    return merge_decisions(
        {} if mirrored.whole else control_topic.read_published_decisions(settings).standing, mirrored
    ).in_force()


def merge_decisions(published: Mapping[str, PublishedDecision], mirrored: MirroredDecisions) -> MirroredDecisions:
    """Return the newest decisions of Kafka and Redis: each may have more than the other."""
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
