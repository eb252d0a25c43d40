"""The filter that selects dead letters: its fields, its match against a letter, and its description in words (pure)."""

from base64 import b64decode, b64encode
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields, replace
from datetime import UTC, datetime
from typing import Any, Final, NamedTuple, Self

from bridge.deadletters.model import filter_syntax, search_words
from bridge.deadletters.model.search_words import mark_header, split_words
from bridge.deadletters.model.stored_letter import LetterStatus, StoredLetter
from bridge.errors import FilterFault

#: Most ids of letters in a filter.
MOST_IDS: Final = 10_000

#: The largest number of attempts in a filter.
MOST_ATTEMPTS: Final = 2**31 - 1

#: The largest id in either database.
HIGHEST: Final = 2**63 - 1

_NUMBERS: Final = ("ids", "groups", "plans")
_TEXTS: Final = ("handlers", "topics", "exceptions", "reasons", "versions", "origins", "causes")


class LetterCursor(NamedTuple):
    """A position in the list of letters, newest first: the end of one page and the begin of the next.

    Attributes:
        failed_at: ms since the epoch.
    """

    failed_at: int
    id: int

    def __str__(self) -> str:
        """Return the cursor for an address: `1795163400000-42`."""
        return f"{self.failed_at}-{self.id}"

    @classmethod
    def read(cls, text: str) -> Self:
        """Return the cursor of a text.

        Raises:
            FilterFault: the text is no cursor.
        """
        failed_at, _, letter = text.partition("-")
        if not all(each.isdecimal() and len(each) < 20 and int(each) <= HIGHEST for each in (failed_at, letter)):
            raise FilterFault(f"{text!r} is no end of a page.")
        return cls(int(failed_at), int(letter))


@dataclass(frozen=True, slots=True)
class LetterFilter:
    """A filter of dead letters: all fields must match; of several values, one; an empty field matches all.

    Attributes:
        ids: the letters themselves.
        topics: source topics.
        exceptions: classes by their full name, or by its last part: `CardDeclined`.
        versions: of the code that failed.
        origins: "bridge", or the other program that wrote the letter.
        groups: ids of groups.
        causes: ids of the causes in a group.
        text: words that the letter has, in any order (model/search_words.py).
        plans: ids of plans that it is or was in.
        died_again: whether it died more than once: a replay has failed.
        attempts: the least number of runs of its handler.
        headers: names and values, all of which it has; bytes that are no UTF-8 as in `surrogateescape`.
        since: the earliest time of its failure, ms since the epoch.
        until: the end of the time of its failure, exclusive.

    Raises:
        FilterFault: a field is invalid.
    """

    ids: tuple[int, ...] = ()
    handlers: tuple[str, ...] = ()
    topics: tuple[str, ...] = ()
    exceptions: tuple[str, ...] = ()
    reasons: tuple[str, ...] = ()
    versions: tuple[str, ...] = ()
    origins: tuple[str, ...] = ()
    statuses: tuple[LetterStatus, ...] = ()
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
        if strange := [text for name in _TEXTS for text in getattr(self, name) if not _is_storable(text)]:
            raise FilterFault(f"{strange[0][:100]!r} is nothing that a letter has: it is no text that can be kept.")
        if self.attempts is not None and not 0 < self.attempts <= MOST_ATTEMPTS:
            raise FilterFault(f"{self.attempts} is no number of attempts: say 1 to {MOST_ATTEMPTS:,}.")
        if self.text and not any(split_words(self.text)):
            raise FilterFault(f"There is no word in {self.text!r}: text is looked for by whole words.")
        if self.since is not None and self.until is not None and self.since >= self.until:
            raise FilterFault("No letter failed both since and until then: the one must be earlier than the other.")

    @property
    def of_history(self) -> bool:
        """Return whether it has fields without an index: letters are read one by one."""
        return bool(self.plans or self.died_again or self.attempts)

    @property
    def words(self) -> tuple[str, ...]:
        """Return the words that a letter must have: those of the text, and one for each header."""
        marks = (mark_header((name, value.encode("utf-8", "surrogateescape"))) for name, value in self.headers)
        return tuple(dict.fromkeys((*split_words(self.text), *marks)))

    def only_open(self) -> Self:
        """Return the same filter for open letters, the only ones that are replayed or discarded.

        Raises:
            FilterFault: it selects other statuses, and not open.
        """
        if self.statuses and LetterStatus.OPEN not in self.statuses:
            raise FilterFault(
                f"Only open letters are replayed or discarded, and this selects {' or '.join(self.statuses)} ones: "
                "leave the status out."
            )
        return replace(self, statuses=(LetterStatus.OPEN,))

    def to_data(self) -> dict[str, Any]:
        """Return the filter as JSON, without empty fields: a key as base64, headers as people write them."""
        found = {field.name: getattr(self, field.name) for field in fields(self)}
        found["headers"] = [[name, filter_syntax.write_header_value(value)] for name, value in self.headers]
        data = {name: list(value) if isinstance(value, tuple) else value for name, value in found.items() if value}
        if self.key is not None:
            data["key"] = b64encode(self.key).decode()
        return data | {name: found[name] for name in ("since", "until") if found[name] is not None}

    @classmethod
    def from_data(cls, data: Mapping[str, Any]) -> Self:
        """Return the filter that `to_data` wrote.

        Raises:
            FilterFault: the data is no filter.
        """
        strange = set(data) - {field.name for field in fields(cls)}
        if strange:
            raise FilterFault(f"A filter has no {', '.join(sorted(strange))}.")
        try:
            return cls(**{name: _read_field(name, value) for name, value in data.items()})
        except (TypeError, ValueError) as error:
            raise FilterFault(f"This is no filter: {error}.") from None


#: All dead letters.
ALL_LETTERS: Final = LetterFilter()


def _is_storable(text: str) -> bool:
    """Return whether both databases can store a text: PostgreSQL has no null characters."""
    return not any(each == "\0" or "\ud800" <= each <= "\udfff" for each in text)


def _read_field(name: str, value: Any) -> Any:
    if name in _NUMBERS:
        return tuple(int(each) for each in value)
    if name in _TEXTS:
        return tuple(str(each) for each in value)
    if name == "statuses":
        return tuple(LetterStatus(each) for each in value)
    if name == "headers":
        return tuple((str(header), filter_syntax.parse_header_value(str(text), str(header))) for header, text in value)
    if name == "key":
        return b64decode(value, validate=True)
    if name == "died_again":
        return bool(value)
    return str(value) if name == "text" else int(value)


#: The fields that only the database knows.
_OF_THE_DATABASE = ("ids", "groups", "statuses", "plans", "died_again")


def check_topic_filter(asked: LetterFilter) -> None:
    """Refuse a filter with fields that a letter in a topic does not have.

    Raises:
        FilterFault: it has such fields; the message says what to do.
    """
    if unknown := [name.replace("_", " ") for name in _OF_THE_DATABASE if getattr(asked, name)]:
        raise FilterFault(
            f"A letter in a topic has no {', '.join(unknown)}: the database has them, without --from-topic."
        )


def accepts_letter(asked: LetterFilter, letter: StoredLetter) -> bool:
    """Return whether a filter matches a letter as the database would; fields that `check_topic_filter` refuses are
    ignored.
    """
    kind = letter.kind
    one_of = (
        (asked.handlers, kind.group.handler),
        (asked.topics, kind.topic),
        (asked.reasons, kind.reason),
        (asked.versions, kind.version),
        (asked.origins, kind.origin),
        (asked.causes, kind.cause),
    )
    return (
        all(not wanted or had in wanted for wanted, had in one_of)
        and (not asked.exceptions or any(_has_class_name(kind.group.error_class, name) for name in asked.exceptions))
        and (asked.since is None or letter.failed_at >= asked.since)
        and (asked.until is None or letter.failed_at < asked.until)
        and (asked.key is None or letter.key == asked.key)
        and all((name, value.encode("utf-8", "surrogateescape")) in letter.headers for name, value in asked.headers)
        and letter.runs >= (asked.attempts or 0)
        and (not asked.text or _has_words(asked, letter))
    )


def _has_class_name(error_class: str, name: str) -> bool:
    return error_class == name or error_class.endswith(f".{name}")


def _has_words(asked: LetterFilter, letter: StoredLetter) -> bool:
    found = search_words.find_letter_words(letter.error_message, letter.key, letter.headers, letter.value)
    return set(search_words.split_words(asked.text)) <= set(found)


#: A filter's fields as the command line and addresses name them.
_NAMES: Final = {
    "handlers": "handler",
    "topics": "topic",
    "exceptions": "exception",
    "reasons": "reason",
    "versions": "version",
    "origins": "origin",
    "groups": "group",
    "causes": "cause",
    "plans": "plan",
    "statuses": "status",
    "text": "text",
    "since": "since",
    "until": "until",
    "attempts": "attempts",
}
#: The fields that contain parts of letters, which not every role may see.
_OF_LETTERS: Final = {"text": "words", "key": "a key", "headers": "headers"}


def describe_filter(asked: Mapping[str, Any]) -> str:
    """Return a filter in words: `handler orders.handlers.charge, reason poison`; "" for all open letters.

    Parameters:
        asked: as `LetterFilter.to_data` returns it.
    """
    return ", ".join(each for each in _describe_fields(asked) if each != "status open")


def describe_filter_for_audit(asked: LetterFilter) -> str:
    """Return a filter in words for the audit log, which every role reads: without words, keys and headers."""
    data = asked.to_data()
    named = _describe_fields({name: value for name, value in data.items() if name not in _OF_LETTERS})
    return ", ".join([*named, *(said for name, said in _OF_LETTERS.items() if name in data)]) or "all"


def _describe_fields(asked: Mapping[str, Any]) -> list[str]:
    if ids := asked.get("ids"):
        return [f"letter {ids[0]}" if len(ids) == 1 else f"{len(ids):,} letters, chosen one by one"]
    return [f"{name} {value}" for name, value in list_filter_pairs(asked)]


def list_filter_pairs(asked: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield the parameters of a filter for an address."""
    for field, name in _NAMES.items():
        value = asked.get(field)
        if value is None or value == "":
            continue
        for each in value if isinstance(value, list) else [value]:
            yield name, _format_time(each) if field in ("since", "until") else str(each)
    for header in asked.get("headers", ()):
        yield "header", "=".join(header)
    if "key" in asked:
        yield "key", f"base64:{asked['key']}"
    if asked.get("died_again"):
        yield "died-again", "yes"


def _format_time(ms: int) -> str:
    return datetime.fromtimestamp(ms / 1000, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
