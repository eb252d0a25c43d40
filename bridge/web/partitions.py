"""A topic's partitions, and the topics of ours beside it, from `bridge status --json` (pure)."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

#: What `bridge status --json` answers.
Status = Mapping[str, Any]


class PartitionRow(NamedTuple):
    """A partition of a topic.

    Attributes:
        committed: `None`: nothing is, or it is not known.
        bridge: who has it; empty: nobody; `None`: not known.
        paused: why it is; empty: it is not.
        since: since when, ISO 8601; empty: not known.
    """

    number: int
    committed: int | None
    end: int | None
    lag: int | None
    bridge: str | None
    paused: str
    since: str


def partitions(topic: str, status: Status) -> list[PartitionRow]:
    """The partitions of a topic, by their numbers; none where Kafka does not answer."""
    found = (status.get("topics") or {}).get(topic) or {}
    return [_row(topic, int(number), found[number], status.get("bridges")) for number in sorted(found, key=int)]


def beside(topic: str, status: Status) -> Sequence[Mapping[str, Any]]:
    """Its retry and replay topics, the shortest wait first."""
    found = [each for each in status.get("parked") or () if each["source"] == topic]
    return sorted(found, key=lambda each: (each["delay"] or 0, each["topic"]))


def _row(topic: str, number: int, at: Mapping[str, Any], bridges: Mapping[str, Any] | None) -> PartitionRow:
    if bridges is None:
        return PartitionRow(number, at["committed"], at["end"], at["lag"], None, "", "")
    place = f"{topic}-{number}"
    name = next((name for name, each in sorted(bridges.items()) if place in each["assigned"]), "")
    bridge = bridges.get(name, {})
    paused = bridge.get("paused", {}).get(place, "")
    since = bridge.get("paused_since", {}).get(place, "")
    return PartitionRow(number, at["committed"], at["end"], at["lag"], name, paused, since)
