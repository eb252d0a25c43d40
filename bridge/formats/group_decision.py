"""The decisions for a group: halts of topics and changes of policies, with who made each, when and why (pure).

A person or `StopConsuming` makes them; the control topic and Redis hold them.
"""

import json
import secrets
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from bridge.formats.text_forms import format_time
from bridge.formats.untrusted_json import encodable, is_time, parse_json

#: How many earlier decisions of its key a decision carries.
HISTORY: Final = 20
#: The offset of a decision that is not in Kafka yet.
UNPUBLISHED: Final = -1

_HALT: Final = "halt:"
_POLICY: Final = "policy:"


def halt_key(topic: str) -> str:
    """Return the key of decisions on a topic's consumption."""
    return f"{_HALT}{topic}"


def policy_key(handler: str) -> str:
    """Return the key of decisions on a handler's policy."""
    return f"{_POLICY}{handler}"


def limit_subject(name: str) -> str:
    """Return the name by which decisions on the numbers of a limit are known, beside the names of handlers."""
    return f"limit:{name}"


def halted_topic(key: str) -> str | None:
    """Return the topic whose consumption a key is about; `None` for other keys."""
    return key.removeprefix(_HALT) if key.startswith(_HALT) else None


def policy_handler(key: str) -> str | None:
    """Return the handler whose policy a key is about; `None` for other keys."""
    return key.removeprefix(_POLICY) if key.startswith(_POLICY) else None


def make_halt_data(before: "GroupDecision | None", at: float, **cause: str) -> dict[str, Any]:
    """Return the data of a halt: its cause, and since when; a topic that is halted already keeps its time."""
    since = before.data.get("since") if before is not None and before.data is not None else None
    return {"since": since if is_time(since) else at, **cause}


class DecisionEntry(NamedTuple):
    """One decision of a key.

    Attributes:
        id: unique for each decision.
        data: JSON values; `None` withdraws the decision before it.
        by, why: who decided, and the reason.
        at: when, a Unix time.
    """

    id: str
    data: Mapping[str, Any] | None
    by: str
    at: float
    why: str


@dataclass(frozen=True, slots=True)
class GroupDecision:
    """The decision in force for a key, and the decisions before it, the latest first."""

    key: str
    change: DecisionEntry
    history: tuple[DecisionEntry, ...] = ()

    @property
    def data(self) -> Mapping[str, Any] | None:
        """Return the decision's data; `None` if it withdraws the one before it."""
        return self.change.data

    @property
    def by(self) -> str:
        """Return who decided."""
        return self.change.by

    @property
    def at(self) -> float:
        """Return when it was decided (Unix time)."""
        return self.change.at

    @property
    def why(self) -> str:
        """Return the reason."""
        return self.change.why

    @property
    def since(self) -> float:
        """Return since when it is in force (Unix time): a topic that was halted twice counts from the first time."""
        since = (self.data or {}).get("since")
        return float(since) if since is not None and is_time(since) else self.at

    def follows(self, other: "GroupDecision") -> bool:
        """Return whether this decision was made with knowledge of the other."""
        # A tombstone, which only a foreign tool writes, has no id.
        return bool(other.change.id) and any(entry.id == other.change.id for entry in self.history)

    def counts_over(self, other: "GroupDecision") -> bool:
        """Return whether this decision counts more than the other, wherever they are stored: it was made knowing the
        other.

        If neither was made knowing the other, Kafka or Redis did not respond then: the later one counts, by the clocks
        of those who decided.
        """
        if self.follows(other) or other.follows(self):
            return self.follows(other)
        return bool(self.change.id and other.change.id) and self.at > other.at

    def to_value(self) -> str:
        """Return the decision as JSON: the value of a record in the control topic, and of a field in Redis."""
        return json.dumps({**_write_entry(self.change), "history": [_write_entry(entry) for entry in self.history]})


class PublishedDecision(NamedTuple):
    """A decision and its offset in the control topic; `UNPUBLISHED` if it is not there, or not the last of its key."""

    decision: GroupDecision
    offset: int = UNPUBLISHED


def append_decision(key: str, before: GroupDecision | None, change: DecisionEntry) -> GroupDecision:
    """Return the decision that follows `before`."""
    history = () if before is None else (before.change, *before.history)
    return GroupDecision(key, change, history[:HISTORY])


def make_decision_entry(data: Mapping[str, Any] | None, by: str, at: float, why: str) -> DecisionEntry:
    """Return a new decision with a unique id."""
    return DecisionEntry(secrets.token_hex(8), data, by, at, why)


def read_decision(key: str, value: str | bytes | None) -> GroupDecision | None:
    """Return the decision in a record or a field of Redis; `None` if there is none that this version can read.

    A record without a value withdraws the decision before it; only a foreign tool writes one.
    """
    # A key that is not UTF-8 could not be written to Kafka or to Redis again.
    if encodable(key) != key:
        return None
    if value is None:
        return GroupDecision(key, DecisionEntry("", None, "", 0.0, ""))
    try:
        data = parse_json(value)
        return GroupDecision(
            key, _read_entry(data), tuple(_read_entry(each) for each in data.get("history", ())[:HISTORY])
        )
    except Exception:
        # Anyone with access to the topic or to Redis may have written this: it must not stop a bridge.
        return None


def choose_newest_decision(one: PublishedDecision | None, other: PublishedDecision | None) -> PublishedDecision | None:
    """Return the one of two decisions of a key that counts: the one with the higher offset in the control topic.

    A write that was given up may arrive after a later decision, and a recreated topic may get an older decision. The
    later decision counts then and is marked as unpublished: a compacted topic keeps the last record of a key.
    """
    if one is None or other is None:
        return one or other
    first, last = sorted((one, other), key=lambda each: each.offset)
    return PublishedDecision(first.decision) if first.decision.counts_over(last.decision) else last


def choose_effective_decision(
    published: PublishedDecision | None, unpublished: GroupDecision | None
) -> GroupDecision | None:
    """Return the decision in force for a key: the unpublished one, unless Kafka has a later one."""
    if unpublished is None or (published is not None and _settled_by(published.decision, unpublished)):
        return None if published is None else published.decision
    return unpublished


def _settled_by(published: GroupDecision, unpublished: GroupDecision) -> bool:
    return published.change.id == unpublished.change.id or published.counts_over(unpublished)


def _write_entry(one: DecisionEntry) -> dict[str, Any]:
    return {"id": one.id, "data": one.data, "by": one.by, "at": one.at, "why": one.why}


def _read_entry(found: Mapping[str, Any]) -> DecisionEntry:
    data = found["data"]
    if data is not None and not isinstance(data, dict):
        raise TypeError("no object")
    if not is_time(found["at"]):
        raise ValueError("no time")
    return DecisionEntry(str(found["id"]), data, str(found["by"]), float(found["at"]), str(found["why"]))


PolicyData = Mapping[str, Any] | None


class ChangedOption(NamedTuple):
    """A policy option that differs from the code's: its value, and who set it, when (Unix time) and why."""

    value: Any
    by: str
    at: float
    why: str


class PolicyChange(NamedTuple):
    """One change of a policy, as its history tells it.

    Attributes:
        set: the new value of each option that was set.
        unset: options that have the code's value again.
    """

    set: Mapping[str, Any]
    unset: tuple[str, ...]
    by: str
    at: float
    why: str


def read_changed_options(data: PolicyData) -> dict[str, ChangedOption]:
    """Return the changed options by name; anything that is no change is left out."""
    options = {}
    for option, change in (data or {}).items():
        if isinstance(change, Mapping) and "is" in change:
            at = change.get("at")
            at = float(at) if at is not None and is_time(at) else 0.0
            options[str(option)] = ChangedOption(
                change["is"], str(change.get("by", "")), at, str(change.get("why", ""))
            )
    return options


def read_option_values(data: PolicyData) -> dict[str, Any]:
    """Return the values of the changed options by name."""
    return {option: changed.value for option, changed in read_changed_options(data).items()}


def set_policy_options(data: PolicyData, changes: Mapping[str, Any], by: str, at: float, why: str) -> dict[str, Any]:
    """Return the data with further options set."""
    kept = {option: _write_option(changed) for option, changed in read_changed_options(data).items()}
    return kept | {option: _write_option(ChangedOption(value, by, at, why)) for option, value in changes.items()}


def unset_policy_options(data: PolicyData, options: Collection[str]) -> dict[str, Any] | None:
    """Return the data with these options withdrawn; `None` if none is left."""
    kept = {
        option: _write_option(changed)
        for option, changed in read_changed_options(data).items()
        if option not in options
    }
    return kept or None


def list_policy_changes(decision: GroupDecision | None) -> Iterator[PolicyChange]:
    """Yield the changes of a policy, the latest first, as far as the decision's history goes back."""
    changes = [] if decision is None else [decision.change, *decision.history]
    # The decision before the oldest of a full history is unknown, and so is what that one changed.
    befores = [change.data for change in changes[1:]] + ([None] if len(changes) <= HISTORY else [])
    for change, before in zip(changes, befores, strict=False):
        yield _make_policy_change(change, read_changed_options(before))


def format_options(changes: Mapping[str, Any]) -> str:
    """Return options as a person would set them, `max_retries=20 retry_delays=60,300`."""
    return " ".join(f"{option}={format_option_value(value)}" for option, value in changes.items())


def find_changed_policies(standing: Mapping[str, GroupDecision]) -> dict[str, PolicyData]:
    """Return the changed policies by handler.

    Parameters:
        standing: the decisions in force, by key.
    """
    return {
        name: decision.data
        for key, decision in sorted(standing.items())
        if read_changed_options(decision.data) and (name := policy_handler(key)) is not None
    }


def summarize_policy_changes(data: PolicyData, until: float | None = None) -> str | None:
    """Return by whom and when a policy was changed last, `changed by ann at 2026-01-31T12:00:00+00:00`; `None` if
    never.

    Parameters:
        until: changes after this Unix time are left out.
    """
    changes = [change for change in read_changed_options(data).values() if until is None or change.at <= until]
    if not changes:
        return None
    last = max(changes, key=lambda changed: changed.at)
    return f"changed by {last.by} at {format_time(last.at)}"


def _write_option(changed: ChangedOption) -> dict[str, Any]:
    return {"is": changed.value, "by": changed.by, "at": changed.at, "why": changed.why}


def _make_policy_change(change: DecisionEntry, before: Mapping[str, ChangedOption]) -> PolicyChange:
    after = read_changed_options(change.data)
    fresh = {option: one.value for option, one in after.items() if before.get(option) != one}
    return PolicyChange(
        fresh, tuple(option for option in before if option not in after), change.by, change.at, change.why
    )


def format_option_value(value: Any) -> str:
    """Return one value as a person would set it."""
    match value:
        case None:
            return "none"
        case bool():
            return str(value).lower()
        case list():
            return ",".join(map(format_option_value, value)) or "none"
        case str():
            return value
    return json.dumps(value)
