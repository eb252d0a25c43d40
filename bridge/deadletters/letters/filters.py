"""Which dead letters are meant: a filter, as commands, plans and addresses of pages have it (pure)."""

from base64 import b64decode, b64encode
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Any, Final, NamedTuple, Self

from bridge.deadletters.letters import written
from bridge.deadletters.letters.letter import Status
from bridge.deadletters.letters.words import mark, words
from bridge.errors import FilterFault

#: Most letters that are named one by one: what is more is a filter's.
MOST_IDS: Final = 10_000

#: That a letter has of attempts: of more there is no filter.
MOST_ATTEMPTS: Final = 2**31 - 1

#: That an id may be, in either database.
HIGHEST: Final = 2**63 - 1

_NUMBERS: Final = ("ids", "groups", "plans")
_TEXTS: Final = ("handlers", "topics", "exceptions", "reasons", "versions", "origins", "causes")


class Cursor(NamedTuple):
    """A letter, as the end of one page of a list and the beginning of the next: letters are listed newest first.

    Attributes:
        failed_at: ms since the epoch.
    """

    failed_at: int
    id: int

    def __str__(self) -> str:
        """`1795163400000-42`, for an address."""
        return f"{self.failed_at}-{self.id}"

    @classmethod
    def read(cls, text: str) -> Self:
        """What `str` made of one.

        Raises:
            FilterFault: it is none.
        """
        failed_at, _, letter = text.partition("-")
        if not all(each.isdecimal() and len(each) < 20 and int(each) <= HIGHEST for each in (failed_at, letter)):
            raise FilterFault(f"{text!r} is no end of a page.")
        return cls(int(failed_at), int(letter))


@dataclass(frozen=True, slots=True)
class Filter:
    """The dead letters that have all of this: of what has several values, one of them; of what is empty, anything.

    Attributes:
        ids: the letters themselves.
        topics: source topics.
        exceptions: classes by their full name, or by its last part: `CardDeclined`.
        versions: of the code that failed.
        origins: "bridge", or who else wrote a letter.
        groups: ids of groups.
        causes: ids of the causes in a group.
        text: words; a letter has all of them, in any order, in what `bridge.deadletters.letters.words` reads of it.
        plans: ids of plans that it is or was in.
        died_again: died more than once: a replay has failed.
        attempts: its handler ran so often for it, or more often.
        headers: name and value, bytes that are no UTF-8 as `surrogateescape` has them; a letter has all of them.
        since: failed then or later, ms since the epoch.
        until: failed before then.

    Raises:
        FilterFault: it can mean nothing.
    """

    ids: tuple[int, ...] = ()
    handlers: tuple[str, ...] = ()
    topics: tuple[str, ...] = ()
    exceptions: tuple[str, ...] = ()
    reasons: tuple[str, ...] = ()
    versions: tuple[str, ...] = ()
    origins: tuple[str, ...] = ()
    statuses: tuple[Status, ...] = ()
    groups: tuple[int, ...] = ()
    causes: tuple[str, ...] = ()
    text: str = ""
    key: bytes | None = None
    headers: tuple[tuple[str, str], ...] = ()
    since: int | None = None
    until: int | None = None
    plans: tuple[int, ...] = ()
    died_again: bool = False
    attempts: int | None = None

    def __post_init__(self) -> None:
        if len(self.ids) > MOST_IDS:
            raise FilterFault(f"{len(self.ids):,} letters are named one by one, of {MOST_IDS:,} at most.")
        if too_high := [id_ for id_ in (*self.ids, *self.groups, *self.plans) if not 0 <= id_ <= HIGHEST]:
            raise FilterFault(f"{too_high[0]} is no letter's id, and no group's or plan's.")
        if strange := [text for name in _TEXTS for text in getattr(self, name) if not _is_kept(text)]:
            raise FilterFault(f"{strange[0][:100]!r} is nothing that a letter has: it is no text that can be kept.")
        if self.attempts is not None and not 0 < self.attempts <= MOST_ATTEMPTS:
            raise FilterFault(f"{self.attempts} is no number of attempts: say 1 to {MOST_ATTEMPTS:,}.")
        if self.text and not any(words(self.text)):
            raise FilterFault(f"There is no word in {self.text!r}: text is looked for by whole words.")
        if self.since is not None and self.until is not None and self.since >= self.until:
            raise FilterFault("No letter failed both since and until then: the one must be earlier than the other.")

    @property
    def of_history(self) -> bool:
        """Whether it asks for what no index of letters has: they are looked at one by one."""
        return bool(self.plans or self.died_again or self.attempts)

    @property
    def words(self) -> tuple[str, ...]:
        """The words that a letter must have: those of the text, and one for each header."""
        marks = (mark((name, value.encode("utf-8", "surrogateescape"))) for name, value in self.headers)
        return tuple(dict.fromkeys((*words(self.text), *marks)))

    def only_open(self) -> Self:
        """The same, of letters that are open: what is done with letters is done with no others.

        Raises:
            FilterFault: it asks for other statuses, and none that is open.
        """
        if self.statuses and Status.OPEN not in self.statuses:
            raise FilterFault(
                f"Only what is open is sent back or discarded, and this asks for what is {' or '.join(self.statuses)}: "
                "leave the status out."
            )
        return replace(self, statuses=(Status.OPEN,))

    def to_data(self) -> dict[str, Any]:
        """As JSON: what is empty is left out, a key is base64, headers are as a person writes them."""
        found = {field.name: getattr(self, field.name) for field in fields(self)}
        found["headers"] = [[name, written.header_words(value)] for name, value in self.headers]
        data = {name: list(value) if isinstance(value, tuple) else value for name, value in found.items() if value}
        if self.key is not None:
            data["key"] = b64encode(self.key).decode()
        return data | {name: found[name] for name in ("since", "until") if found[name] is not None}

    @classmethod
    def from_data(cls, data: Mapping[str, Any]) -> Self:
        """What `to_data` wrote.

        Raises:
            FilterFault: it is no filter's.
        """
        strange = set(data) - {field.name for field in fields(cls)}
        if strange:
            raise FilterFault(f"A filter has no {', '.join(sorted(strange))}.")
        try:
            return cls(**{name: _read(name, value) for name, value in data.items()})
        except (TypeError, ValueError) as error:
            raise FilterFault(f"This is no filter: {error}.") from None


#: All dead letters.
EVERYTHING: Final = Filter()


def _is_kept(text: str) -> bool:
    """Whether each of the databases could have it: PostgreSQL has no text with a null in it."""
    return not any(each == "\0" or "\ud800" <= each <= "\udfff" for each in text)


def _read(name: str, value: Any) -> Any:
    if name in _NUMBERS:
        return tuple(int(each) for each in value)
    if name in _TEXTS:
        return tuple(str(each) for each in value)
    if name == "statuses":
        return tuple(Status(each) for each in value)
    if name == "headers":
        return tuple((str(header), written.header_value(str(text), str(header))) for header, text in value)
    if name == "key":
        return b64decode(value, validate=True)
    if name == "died_again":
        return bool(value)
    return str(value) if name == "text" else int(value)
