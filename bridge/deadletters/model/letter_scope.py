"""The scope of an account: the source topics and consumer groups whose letters it may see and act on (pure)."""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final, Self

from bridge.errors import ScopeFault

#: Most patterns of topics, and of consumer groups; and the most characters of a pattern.
MOST_PATTERNS: Final = 50
LONGEST_PATTERN: Final = 249
#: Any characters, also none. It is the only wildcard.
WILDCARD: Final = "*"


@dataclass(frozen=True, slots=True)
class LetterScope:
    """The letters that an account may see: those that match a pattern of each field. An empty field matches all.

    Attributes:
        topics: patterns of source topics: `payments.*`.
        consumer_groups: patterns of consumer groups.

    Raises:
        ScopeFault: a pattern is invalid.
    """

    topics: tuple[str, ...] = ()
    consumer_groups: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for patterns in (self.topics, self.consumer_groups):
            if len(patterns) > MOST_PATTERNS:
                raise ScopeFault(f"{len(patterns)} patterns are given, of {MOST_PATTERNS} at most.")
            for pattern in patterns:
                _check_pattern(pattern)

    def __bool__(self) -> bool:
        """Return whether it leaves anything out."""
        return any(patterns and WILDCARD not in patterns for patterns in (self.topics, self.consumer_groups))

    def __str__(self) -> str:
        """Return it in words: `topics payments.*; consumer groups payments`."""
        said = [("topics", self.topics), ("consumer groups", self.consumer_groups)]
        return "; ".join(f"{name} {', '.join(patterns)}" for name, patterns in said if patterns) or "everything"

    def covers(self, topic: str, consumer_group: str) -> bool:
        """Return whether letters of a source topic and a consumer group are in it."""
        return _matches(self.topics, topic) and _matches(self.consumer_groups, consumer_group)

    @property
    def stored(self) -> dict[str, str]:
        """Return its columns, by name, in the row of an account."""
        return {"topics": " ".join(self.topics), "consumer_groups": " ".join(self.consumer_groups)}

    @classmethod
    def from_columns(cls, topics: str, consumer_groups: str) -> Self:
        """Return the scope of an account's row."""
        return cls(tuple(topics.split()), tuple(consumer_groups.split()))

    @classmethod
    def parse(cls, topics: Iterable[str], consumer_groups: Iterable[str] = ()) -> Self:
        """Return the scope of lists that people write: `payments.*, orders`, and several of these.

        Raises:
            ScopeFault: a pattern is invalid, or a list is given that has none: that would be everything.
        """
        return cls(read_patterns(topics, "topics"), read_patterns(consumer_groups, "consumer groups"))


#: The scope of an account without one.
EVERYTHING: Final = LetterScope()


def read_patterns(lists: Iterable[str], name: str) -> tuple[str, ...]:
    """Return the patterns in lists that people or their servers write, once each.

    Parameters:
        name: of the field, in the plural.

    Raises:
        ScopeFault: a pattern is invalid, or lists are given and have none.
    """
    given = [*lists]
    found = dict.fromkeys(word for text in given for word in re.split(r"[,\s]+", text) if word)
    if given and not found:
        raise ScopeFault(f"No {name} are named: name some, with {WILDCARD} for any characters.")
    for pattern in found:
        _check_pattern(pattern)
    return tuple(found)


def _check_pattern(pattern: str) -> None:
    if not pattern or len(pattern) > LONGEST_PATTERN or not pattern.isprintable() or re.search(r"[,\s]", pattern):
        raise ScopeFault(f"{pattern[:100]!r} is no pattern: write names with {WILDCARD} for any characters.")


def _matches(patterns: tuple[str, ...], name: str) -> bool:
    return not patterns or any(_compile(pattern).fullmatch(name) for pattern in patterns)


def _compile(pattern: str) -> re.Pattern[str]:
    return re.compile(".*".join(map(re.escape, pattern.split(WILDCARD))), re.DOTALL)
