"""What people have changed of a handler's policy: the data of its decision in the control topic (pure).

By option its value, and who set it, when and why; an option that is not there is the code's.
"""

import json
from collections.abc import Collection, Iterator, Mapping
from typing import Any, NamedTuple

from bridge.records.control import HISTORY, Change, Decision, policy_handler
from bridge.records.times import iso
from bridge.records.untrusted_json import is_time

Data = Mapping[str, Any] | None


class Changed(NamedTuple):
    """An option that is not the code's: its value, and who set it, when (Unix time) and why."""

    value: Any
    by: str
    at: float
    why: str


class Step(NamedTuple):
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


def changed_options(data: Data) -> dict[str, Changed]:
    """What is changed, by option; what is no change is left out, whoever wrote it."""
    found = {}
    for option, said in (data or {}).items():
        if isinstance(said, Mapping) and "is" in said:
            at = said.get("at")
            at = float(at) if at is not None and is_time(at) else 0.0
            found[str(option)] = Changed(said["is"], str(said.get("by", "")), at, str(said.get("why", "")))
    return found


def values(data: Data) -> dict[str, Any]:
    """What is changed, by option its value."""
    return {option: changed.value for option, changed in changed_options(data).items()}


def with_set(data: Data, changes: Mapping[str, Any], by: str, at: float, why: str) -> dict[str, Any]:
    """The data with options set besides, or anew."""
    kept = {option: _said(changed) for option, changed in changed_options(data).items()}
    return kept | {option: _said(Changed(value, by, at, why)) for option, value in changes.items()}


def without(data: Data, options: Collection[str]) -> dict[str, Any] | None:
    """The data with some options the code's again; `None`: all are."""
    kept = {option: _said(changed) for option, changed in changed_options(data).items() if option not in options}
    return kept or None


def steps(decision: Decision | None) -> Iterator[Step]:
    """How a policy was changed, the latest first, as far as the decision's history goes back."""
    changes = [] if decision is None else [decision.change, *decision.history]
    # What was before the oldest of a full history is not known, and so neither what it changed.
    befores = [change.data for change in changes[1:]] + ([None] if len(changes) <= HISTORY else [])
    for change, before in zip(changes, befores, strict=False):
        yield _step(change, changed_options(before))


def words(changes: Mapping[str, Any]) -> str:
    """`max_retries=20 retry_delays=60,300`, as a person would set it."""
    return " ".join(f"{option}={word(value)}" for option, value in changes.items())


def changed_policies(standing: Mapping[str, Decision]) -> dict[str, Data]:
    """By handler, what is changed of its policy, where anything is.

    Parameters:
        standing: by key, what was decided for the group.
    """
    return {
        name: each.data
        for key, each in sorted(standing.items())
        if changed_options(each.data) and (name := policy_handler(key)) is not None
    }


def summary(data: Data, until: float | None = None) -> str | None:
    """`changed by ann at 2026-01-31T12:00:00+00:00`, by whom and when last; `None`: nothing is.

    Parameters:
        until: changes after this Unix time are left out; `None`: none is.
    """
    found = [each for each in changed_options(data).values() if until is None or each.at <= until]
    if not found:
        return None
    last = max(found, key=lambda changed: changed.at)
    return f"changed by {last.by} at {iso(last.at)}"


def _said(changed: Changed) -> dict[str, Any]:
    return {"is": changed.value, "by": changed.by, "at": changed.at, "why": changed.why}


def _step(change: Change, before: Mapping[str, Changed]) -> Step:
    after = changed_options(change.data)
    fresh = {option: one.value for option, one in after.items() if before.get(option) != one}
    return Step(fresh, tuple(option for option in before if option not in after), change.by, change.at, change.why)


def word(value: Any) -> str:
    """One value, as a person would set it."""
    match value:
        case None:
            return "none"
        case bool():
            return str(value).lower()
        case list():
            return ",".join(map(word, value)) or "none"
        case str():
            return value
    return json.dumps(value)
