"""The decisions of people, or of `StopConsuming`, for a group: halts of topics and changes of policies, each with who,
when and why, as the control topic and Redis hold them (pure).
"""

import json
import secrets
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from bridge.formats.text_forms import format_time
from bridge.formats.untrusted_json import encodable, is_time, parse_json

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


def make_halt_data(before: "GroupDecision | None", at: float, **cause: str) -> dict[str, Any]:
    """The data of a halt: since when nothing is consumed, and what caused it; one halted before goes on being so."""
    since = before.data.get("since") if before is not None and before.data is not None else None
    return {"since": since if is_time(since) else at, **cause}


class DecisionEntry(NamedTuple):
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
class GroupDecision:
    """What stands for a key, and the decisions before it, the latest first."""

    key: str
    change: DecisionEntry
    history: tuple[DecisionEntry, ...] = ()

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

    def follows(self, other: "GroupDecision") -> bool:
        """Whether it was made by who knew of the other."""
        # What a person's tool has taken away has no id of its own.
        return bool(other.change.id) and any(each.id == other.change.id for each in self.history)

    def counts_over(self, other: "GroupDecision") -> bool:
        """Whether it counts of the two, wherever they lie: it was made by who knew of the other.

        Where neither knew of the other, Kafka or Redis could not be asked: the later one counts, by the clocks of who
        decided.
        """
        if self.follows(other) or other.follows(self):
            return self.follows(other)
        return bool(self.change.id and other.change.id) and self.at > other.at

    def to_value(self) -> str:
        """As JSON: the value of a record of the control topic, and what Redis has."""
        return json.dumps({**_write_entry(self.change), "history": [_write_entry(each) for each in self.history]})


class PublishedDecision(NamedTuple):
    """A decision, and where in the control topic it lies; `UNPUBLISHED`: nowhere yet, or not as the last of its key."""

    decision: GroupDecision
    offset: int = UNPUBLISHED


def append_decision(key: str, before: GroupDecision | None, change: DecisionEntry) -> GroupDecision:
    """The decision that follows `before`."""
    history = () if before is None else (before.change, *before.history)
    return GroupDecision(key, change, history[:HISTORY])


def make_decision_entry(data: Mapping[str, Any] | None, by: str, at: float, why: str) -> DecisionEntry:
    """A decision with an id of its own."""
    return DecisionEntry(secrets.token_hex(8), data, by, at, why)


def read_decision(key: str, value: str | bytes | None) -> GroupDecision | None:
    """Return the decision in a record or a field of Redis; `None`: it is none, or one that this version cannot read.

    A record without a value takes away what stood: nobody of ours writes it, a person's tool may.
    """
    # A key that is no UTF-8 could be written neither to Kafka nor to Redis again.
    if encodable(key) != key:
        return None
    if value is None:
        return GroupDecision(key, DecisionEntry("", None, "", 0.0, ""))
    try:
        found = parse_json(value)
        return GroupDecision(
            key, _read_entry(found), tuple(_read_entry(each) for each in found.get("history", ())[:HISTORY])
        )
    except Exception:
        # Anybody who may write to the topic or to Redis has written it: no error of theirs stops a bridge.
        return None


def choose_newest_decision(one: PublishedDecision | None, other: PublishedDecision | None) -> PublishedDecision | None:
    """That of two which counts, of one key: the one that lies later in the control topic.

    But a write that nobody waited for any more may arrive after what was decided since, and a topic that was made again
    may get what is older than what was decided since. What counts is to be published again then: a compacted topic
    keeps the last.
    """
    if one is None or other is None:
        return one or other
    first, last = sorted((one, other), key=lambda each: each.offset)
    return PublishedDecision(first.decision) if first.decision.counts_over(last.decision) else last


def choose_effective_decision(
    published: PublishedDecision | None, unpublished: GroupDecision | None
) -> GroupDecision | None:
    """What stands for a key: what is not in Kafka yet, unless something was decided since."""
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
    """An option that is not the code's: its value, and who set it, when (Unix time) and why."""

    value: Any
    by: str
    at: float
    why: str


class PolicyChange(NamedTuple):
    """One change of a policy, as its history tells it.

    Attributes:
        set: by option, what it was set to.
        unset: options that are the code's since.
    """

    set: Mapping[str, Any]
    unset: tuple[str, ...]
    by: str
    at: float
    why: str


def read_changed_options(data: PolicyData) -> dict[str, ChangedOption]:
    """What is changed, by option; what is no change is left out, whoever wrote it."""
    found = {}
    for option, said in (data or {}).items():
        if isinstance(said, Mapping) and "is" in said:
            at = said.get("at")
            at = float(at) if at is not None and is_time(at) else 0.0
            found[str(option)] = ChangedOption(said["is"], str(said.get("by", "")), at, str(said.get("why", "")))
    return found


def read_option_values(data: PolicyData) -> dict[str, Any]:
    """What is changed, by option its value."""
    return {option: changed.value for option, changed in read_changed_options(data).items()}


def set_policy_options(data: PolicyData, changes: Mapping[str, Any], by: str, at: float, why: str) -> dict[str, Any]:
    """The data with options set besides, or anew."""
    kept = {option: _write_option(changed) for option, changed in read_changed_options(data).items()}
    return kept | {option: _write_option(ChangedOption(value, by, at, why)) for option, value in changes.items()}


def unset_policy_options(data: PolicyData, options: Collection[str]) -> dict[str, Any] | None:
    """The data with some options the code's again; `None`: all are."""
    kept = {
        option: _write_option(changed)
        for option, changed in read_changed_options(data).items()
        if option not in options
    }
    return kept or None


def list_policy_changes(decision: GroupDecision | None) -> Iterator[PolicyChange]:
    """How a policy was changed, the latest first, as far as the decision's history goes back."""
    changes = [] if decision is None else [decision.change, *decision.history]
    # What was before the oldest of a full history is not known, and so neither what it changed.
    befores = [change.data for change in changes[1:]] + ([None] if len(changes) <= HISTORY else [])
    for change, before in zip(changes, befores, strict=False):
        yield _make_policy_change(change, read_changed_options(before))


def format_options(changes: Mapping[str, Any]) -> str:
    """`max_retries=20 retry_delays=60,300`, as a person would set it."""
    return " ".join(f"{option}={format_option_value(value)}" for option, value in changes.items())


def find_changed_policies(standing: Mapping[str, GroupDecision]) -> dict[str, PolicyData]:
    """By handler, what is changed of its policy, where anything is.

    Parameters:
        standing: by key, what was decided for the group.
    """
    return {
        name: each.data
        for key, each in sorted(standing.items())
        if read_changed_options(each.data) and (name := policy_handler(key)) is not None
    }


def summarize_policy_changes(data: PolicyData, until: float | None = None) -> str | None:
    """`changed by ann at 2026-01-31T12:00:00+00:00`, by whom and when last; `None`: nothing is.

    Parameters:
        until: changes after this Unix time are left out; `None`: none is.
    """
    found = [each for each in read_changed_options(data).values() if until is None or each.at <= until]
    if not found:
        return None
    last = max(found, key=lambda changed: changed.at)
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
    """One value, as a person would set it."""
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
