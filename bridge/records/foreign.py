"""A dead letter that somebody else wrote: where it comes from, and what its headers say (pure).

Only for what is no letter of ours (bridge.records.dead_letter). What is not recognised is kept whole, as "unknown".
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from bridge.records.foreign_headers import (
    CONFLUENT,
    CONNECT,
    FORMATS,
    KARAFKA,
    SHARE_GROUP,
    SMALLRYE,
    SPRING,
    UNKNOWN,
    Format,
)
from bridge.records.message import Header

__all__ = ["CONFLUENT", "CONNECT", "KARAFKA", "SHARE_GROUP", "SMALLRYE", "SPRING", "UNKNOWN", "Foreign", "read"]


@dataclass(frozen=True, slots=True)
class Foreign:
    """What a dead letter that somebody else wrote says of itself, as far as it does.

    Attributes:
        origin: who wrote it: `SPRING`, `CONNECT`, `CONFLUENT`, `SHARE_GROUP`, `SMALLRYE`, `KARAFKA` or `UNKNOWN`.
        topic: the source topic; "" where it does not say, or says what is no topic's name.
        partition, offset: of the source record.
        timestamp: of the source record, in ms since the epoch.
        group: the consumer group, or the connector's name; "".
        reason: in its own words: Connect's stage, a share group's message, mode and name of Confluent's rule (of mode
            WRITE the record never was in the source topic, and its value may be JSON for what is written there); "".
        error_class: Java's name as it is; of Spring's the cause, not that a listener failed. At most `MAX_CLASS`
            characters (bridge.records.failure), as all names are.
        error_message: cut to `MAX_MESSAGE` characters.
        error_traceback: cut to `MAX_TRACEBACK` characters.
        attempts: how often it was tried; 0 where that is not said.
        failed_at: ms since the epoch. No known format says it: that is the letter's own timestamp, but of Connect's,
            whose letters have the source record's.
        theirs: the producer's own headers, byte for byte and in their order: those left when the framework's are taken
            off. All of them, where it is not known.
    """

    origin: str
    topic: str = ""
    partition: int | None = None
    offset: int | None = None
    timestamp: int | None = None
    group: str = ""
    reason: str = ""
    error_class: str = ""
    error_message: str = ""
    error_traceback: str = ""
    attempts: int = 0
    failed_at: int | None = None
    theirs: tuple[Header, ...] = ()


def read(headers: Sequence[Header]) -> Foreign:
    """What these headers say; of a name that occurs twice what was said last counts.

    Parameters:
        headers: of a record that is no dead letter of ours.

    Guarantees: raises nothing, whatever lies in them: what cannot be read was not said. No text has a null character.
    """
    found = _format(headers)
    if found is None:
        return Foreign(UNKNOWN, theirs=tuple(headers))
    theirs = tuple(header for header in headers if header[0] not in found.says)
    return Foreign(found.origin, theirs=theirs, **_said(found, headers))


def _format(headers: Sequence[Header]) -> Format | None:
    """Whose it is; where several dead-lettered it one after another, the last one's."""
    last = {name: at for at, (name, _) in enumerate(headers)}
    proven = [
        (max(last[name] for name in proof), known)
        for known in FORMATS
        for proof in known.proofs
        if proof <= last.keys()
    ]
    return max(proven, key=lambda pair: pair[0])[1] if proven else None


def _said(known: Format, headers: Sequence[Header]) -> dict[str, Any]:
    """Field → value, of what could be read."""
    said: dict[str, Any] = {}
    for name, raw in reversed(headers) if known.in_front else headers:
        says = known.says.get(name)
        if says is not None:
            # Also where it cannot be read: what was said before is of another failure.
            said[says.field] = None if raw is None else says.read(raw)
    return _together({field: value for field, value in said.items() if value is not None})


def _together(said: dict[str, Any]) -> dict[str, Any]:
    """The same, with what two headers say of one field as one."""
    wrapper, mode = said.pop("wrapper_class", ""), said.pop("mode", "")
    error_class, reason = said.get("error_class", ""), said.get("reason", "")
    return {**said, "error_class": error_class or wrapper, "reason": f"{mode} {reason}".strip()}
