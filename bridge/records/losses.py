"""The counters among a message's headers: anybody may write into a queue, and what is no count there counts as 0."""

from collections.abc import Mapping
from typing import Any


def count_in(headers: Mapping[str, Any], name: str) -> int:
    """A counter of a message; 0 where there is none, or what is no counter."""
    value = headers.get(name)
    return value if type(value) is int and value > 0 else 0


def losses(headers: Mapping[str, Any]) -> int:
    """How many processes and workers a message has cost."""
    return count_in(headers, "lost") + count_in(headers, "restored")
