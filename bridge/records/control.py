"""What people, or `StopConsuming`, have decided for a group: halts and policies, with who, when and why (pure).

A decision is the whole value of a record of the control topic, which keeps the last of each key: so the decisions
before it travel in it. One that takes another back has no data, and a history still.
"""

import json
import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from bridge.records.untrusted_json import encodable, is_time, parse_json

#: How many earlier decisions of its key one carries.
HISTORY: Final = 20
#: The offset of a decision that Kafka does not have yet.
UNPUBLISHED: Final = -1

_HALT: Final = "halt:"
_POLICY: Final = "policy:"


def halt_key(topic: str) -> str:
    """The key of what was decided on a topic's consumption."""
    return f"{_HALT}{topic}"


def policy_key(handler: str) -> str:
    """The key of what was decided on a handler's policy."""
    return f"{_POLICY}{handler}"


def halted_topic(key: str) -> str | None:
    """The topic whose consumption a key is about; `None` if it is about something else."""
    return key.removeprefix(_HALT) if key.startswith(_HALT) else None


def policy_handler(key: str) -> str | None:
    """The handler whose policy a key is about; `None` if it is about something else."""
    return key.removeprefix(_POLICY) if key.startswith(_POLICY) else None


def halt(before: "Decision | None", at: float, **cause: str) -> dict[str, Any]:
    """The data of a halt: since when nothing is consumed, and what caused it; one halted before goes on being so."""
    since = before.data.get("since") if before is not None and before.data is not None else None
    return {"since": since if is_time(since) else at, **cause}


class Change(NamedTuple):
    """One decision of a key, as it was made.

    Attributes:
        id: its own.
        data: what was decided, JSON values; `None`: what stood was taken back.
        by, why: who decided, and for what reason.
        at: when, a Unix time.
    """

    id: str
    data: Mapping[str, Any] | None
    by: str
    at: float
    why: str


@dataclass(frozen=True, slots=True)
class Decision:
    """What stands for a key, and the decisions before it, the latest first."""

    key: str
    change: Change
    history: tuple[Change, ...] = ()

    @property
    def data(self) -> Mapping[str, Any] | None:
        """What was decided; `None`: nothing stands."""
        return self.change.data

    @property
    def by(self) -> str:
        """Who decided."""
        return self.change.by

    @property
    def at(self) -> float:
        """When (Unix time)."""
        return self.change.at

    @property
    def why(self) -> str:
        """For what reason."""
        return self.change.why

    @property
    def since(self) -> float:
        """Since when it has been so (Unix time): a topic that was halted once more has been halted for longer."""
        since = (self.data or {}).get("since")
        return float(since) if since is not None and is_time(since) else self.at

    def follows(self, other: "Decision") -> bool:
        """Whether it was made by who knew of the other."""
        # What a person's tool has taken away has no id of its own.
        return bool(other.change.id) and any(each.id == other.change.id for each in self.history)

    def counts_over(self, other: "Decision") -> bool:
        """Whether it counts of the two, wherever they lie: it was made by who knew of the other.

        Where neither knew of the other, Kafka or Redis could not be asked: the later one counts, by the clocks of who
        decided.
        """
        if self.follows(other) or other.follows(self):
            return self.follows(other)
        return bool(self.change.id and other.change.id) and self.at > other.at

    def to_value(self) -> str:
        """As JSON: the value of a record of the control topic, and what Redis has."""
        return json.dumps({**_said(self.change), "history": [_said(each) for each in self.history]})


class Standing(NamedTuple):
    """A decision, and where in the control topic it lies; `UNPUBLISHED`: nowhere yet, or not as the last of its key."""

    decision: Decision
    offset: int = UNPUBLISHED


def decided(key: str, before: Decision | None, change: Change) -> Decision:
    """The decision that follows `before`."""
    history = () if before is None else (before.change, *before.history)
    return Decision(key, change, history[:HISTORY])


def change(data: Mapping[str, Any] | None, by: str, at: float, why: str) -> Change:
    """A decision with an id of its own."""
    return Change(secrets.token_hex(8), data, by, at, why)


def read(key: str, value: str | bytes | None) -> Decision | None:
    """Return the decision in a record or a field of Redis; `None`: it is none, or one that this version cannot read.

    A record without a value takes away what stood: nobody of ours writes it, a person's tool may.
    """
    # A key that is no UTF-8 could be written neither to Kafka nor to Redis again.
    if encodable(key) != key:
        return None
    if value is None:
        return Decision(key, Change("", None, "", 0.0, ""))
    try:
        found = parse_json(value)
        return Decision(key, _heard(found), tuple(_heard(each) for each in found.get("history", ())[:HISTORY]))
    except Exception:
        # Anybody who may write to the topic or to Redis has written it: no error of theirs stops a bridge.
        return None


def newest(one: Standing | None, other: Standing | None) -> Standing | None:
    """That of two which counts, of one key: the one that lies later in the control topic.

    But a write that nobody waited for any more may arrive after what was decided since, and a topic that was made again
    may get what is older than what was decided since. What counts is to be published again then: a compacted topic
    keeps the last.
    """
    if one is None or other is None:
        return one or other
    first, last = sorted((one, other), key=lambda each: each.offset)
    return Standing(first.decision) if first.decision.counts_over(last.decision) else last


def in_force(published: Standing | None, unpublished: Decision | None) -> Decision | None:
    """What stands for a key: what is not in Kafka yet, unless something was decided since."""
    if unpublished is None or (published is not None and _settled_by(published.decision, unpublished)):
        return None if published is None else published.decision
    return unpublished


def _settled_by(published: Decision, unpublished: Decision) -> bool:
    return published.change.id == unpublished.change.id or published.counts_over(unpublished)


def _said(one: Change) -> dict[str, Any]:
    return {"id": one.id, "data": one.data, "by": one.by, "at": one.at, "why": one.why}


def _heard(found: Mapping[str, Any]) -> Change:
    data = found["data"]
    if data is not None and not isinstance(data, dict):
        raise TypeError("no object")
    if not is_time(found["at"]):
        raise ValueError("no time")
    return Change(str(found["id"]), data, str(found["by"]), float(found["at"]), str(found["why"]))
