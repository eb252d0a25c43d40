"""The filter of dead letters: the table of its fields, its match against a letter, and its description (pure)."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from itertools import chain
from operator import attrgetter
from typing import Any, Final, NamedTuple, Self

from bridge.deadletters.model.filter_syntax import (
    CLASS_NAMES,
    FLAG,
    HEADERS,
    KEY,
    LEAST,
    NAMES,
    NUMBERS,
    SINCE,
    STATUSES,
    UNTIL,
    VALUE_FIELDS,
    WORDS,
    ValueType,
)
from bridge.deadletters.model.search_words import mark_header, split_words
from bridge.deadletters.model.stored_letter import DISCARDABLE, REASONS, LetterStatus, StoredLetter
from bridge.errors import FilterFault
from bridge.formats.text_forms import format_count

#: Most ids of letters in a filter.
MOST_IDS: Final = 10_000

#: Most exceptions, headers, fields of the value and words in a filter, each: a database refuses a larger expression.
MOST_VALUES: Final = 100

#: The types of fields whose texts the database stores as they are.
_TEXTS: Final = (NAMES, CLASS_NAMES, VALUE_FIELDS)

#: The largest number of attempts in a filter.
MOST_ATTEMPTS: Final = 2**31 - 1

#: The largest id in either database.
HIGHEST: Final = 2**63 - 1


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
            raise FilterFault(f"{text!r} is not a page cursor.")
        return cls(int(failed_at), int(letter))


@dataclass(frozen=True, slots=True)
class FilterField:
    """A field of the filter. Options, parameters, the page's form, SQL and the match in memory read it from here.

    Attributes:
        word: its name in addresses and the API, and of its option, but for `option`.
        type: the type of its value.
        help: a sentence for the command line and the API.
        value: the path to a letter's value, below `kind` if letters share it; its end is the column. Empty: the field
            has SQL of its own (db/filter_sql.py).
        label, place: its name in the page's form, and its place: "main", "wide" (main, on two columns), "more".
        option: the name of its option, where it is another.
        example: a value, which the empty input of the form shows.
        choices: the possible values, where they are known.
        is_stored: whether only the database knows the value.
        is_indexed: whether the database has an index for it; without one, letters are read one by one.
        hidden_as: the words for the audit log if values are parts of letters, which not every role may see.
        name: the attribute of `LetterFilter`.
    """

    word: str
    type: ValueType
    help: str
    value: str
    label: str
    place: str = "more"
    option: str = ""
    example: str = ""
    choices: tuple[str, ...] = ()
    is_stored: bool = False
    is_indexed: bool = True
    hidden_as: str = ""
    name: str = ""

    @property
    def is_of_kind(self) -> bool:
        """Return whether letters of one kind share the value."""
        return self.value.startswith("kind.")

    @property
    def column(self) -> str:
        """Return the column of the value, in `kinds` or `letters`."""
        return self.value.rpartition(".")[2]


def _field(word: str, type_: ValueType, help_: str, value: str, label: str, place: str = "more", **more: Any) -> Any:
    declared = FilterField(word, type_, help_, value, label, place, **more)
    return field(default=type_.empty, metadata={"filter": declared})


_TIME_HELP: Final = "2026-11-20T08:00 (UTC), 2h, 3d, today, yesterday."


@dataclass(frozen=True, slots=True)
class LetterFilter:
    """A filter of dead letters, and the table of its fields: all fields must match; of several values, one; an empty
    field matches all.

    Raises:
        FilterFault: a field is invalid.
    """

    ids: tuple[int, ...] = _field("id", NUMBERS, "Letters by their ids.", "id", "Letter", is_stored=True)
    handlers: tuple[str, ...] = _field(
        "handler", NAMES, "The handler that failed.", "kind.group.handler", "Handler", "main"
    )
    reasons: tuple[str, ...] = _field("reason", NAMES, "Why it died.", "kind.reason", "Reason", "main", choices=REASONS)
    statuses: tuple[LetterStatus, ...] = _field(
        "status", STATUSES, "Their status.", "status", "Status", "main", choices=tuple(LetterStatus), is_stored=True
    )
    text: str = _field(
        "text",
        WORDS,
        "Words of error, key, headers or value.",
        "words",
        "Words anywhere in it",
        "wide",
        hidden_as="words",
    )
    key: bytes | None = _field("key", KEY, "Key: text, 0x… or base64:….", "key", "Key", "wide", hidden_as="a key")
    since: int | None = _field(
        "since", SINCE, f"Failed at this time or later: {_TIME_HELP}", "failed_at", "Failed since", "main"
    )
    until: int | None = _field("until", UNTIL, "Failed before this time.", "failed_at", "until", "main")
    exceptions: tuple[str, ...] = _field(
        "exception", CLASS_NAMES, "Class: full name, or its last part.", "kind.group.error_class", "Exception", "main"
    )
    headers: tuple[tuple[str, str], ...] = _field(
        "header",
        HEADERS,
        "name=value, also name=0x… or name=base64:…; repeated: all.",
        "headers",
        "Header",
        example="tenant=blue",
        hidden_as="headers",
    )
    values: tuple[tuple[str, str], ...] = _field(
        "value",
        VALUE_FIELDS,
        "A field of the value: order.currency=EUR; repeated: all.",
        "",
        "Field of the value",
        "wide",
        example="order.currency=EUR",
        is_stored=True,
        is_indexed=False,
        hidden_as="fields of the value",
    )
    topics: tuple[str, ...] = _field("topic", NAMES, "Source topic.", "kind.topic", "Topic", "main")
    versions: tuple[str, ...] = _field("version", NAMES, "Version of the code that failed.", "kind.version", "Version")
    groups: tuple[int, ...] = _field(
        "group", NUMBERS, "Id of a group.", "kind.group_id", "Group", "main", is_stored=True
    )
    causes: tuple[str, ...] = _field(
        "cause", NAMES, "Id of a cause in a group (groups --group N).", "kind.cause", "Cause"
    )
    origins: tuple[str, ...] = _field(
        "origin", NAMES, "Program that wrote it: bridge, spring, …", "kind.origin", "Written by"
    )
    consumer_groups: tuple[str, ...] = _field(
        "consumer-group", NAMES, "The consumer group that handed it off.", "kind.consumer_group", "Consumer group"
    )
    plans: tuple[int, ...] = _field(
        "plan",
        NUMBERS,
        "Id of a plan that it is or was in.",
        "",
        "Plan",
        option="in-plan",
        is_stored=True,
        is_indexed=False,
    )
    attempts: int | None = _field(
        "attempts", LEAST, "Its handler ran at least so often.", "runs", "Attempts, at least", is_indexed=False
    )
    died_again: bool = _field(
        "died-again", FLAG, "A replay of it has failed.", "", "Died again", is_stored=True, is_indexed=False
    )

    def __post_init__(self) -> None:
        if len(self.ids) > MOST_IDS:
            raise FilterFault(f"{len(self.ids):,} letters are named one by one, of {MOST_IDS:,} at most.")
        for each, value in self.given():
            if each.type in (CLASS_NAMES, HEADERS, VALUE_FIELDS) and len(value) > MOST_VALUES:
                raise FilterFault(f"{len(value):,} values of {each.word} are given, of {MOST_VALUES} at most.")
            if each.type is NUMBERS and (too_high := [id_ for id_ in value if not 0 <= id_ <= HIGHEST]):
                raise FilterFault(f"{too_high[0]} is no letter's id, and no group's or plan's.")
            texts = (*chain(*value),) if each.type is VALUE_FIELDS else value
            if each.type in _TEXTS and (strange := [text for text in texts if not _is_storable(text)]):
                raise FilterFault(f"{strange[0][:100]!r} has a character that the database cannot store.")
        if self.attempts is not None and not 0 < self.attempts <= MOST_ATTEMPTS:
            raise FilterFault(f"{self.attempts} is no number of attempts: say 1 to {MOST_ATTEMPTS:,}.")
        words = set(split_words(self.text))
        if len(words) > MOST_VALUES:
            raise FilterFault(f"The text has {len(words):,} words, of {MOST_VALUES} at most.")
        if self.text and not any(words):
            raise FilterFault(f"There is no word in {self.text!r}: text is looked for by whole words.")
        if self.since is not None and self.until is not None and self.since >= self.until:
            raise FilterFault("`since` must be earlier than `until`.")

    def given(self) -> list[tuple[FilterField, Any]]:
        """Return the fields that are not empty, with their values."""
        found = ((each, getattr(self, each.name)) for each in FILTER_FIELDS)
        return [(each, value) for each, value in found if value != each.type.empty]

    @property
    def of_history(self) -> bool:
        """Return whether it has fields without an index: letters are read one by one."""
        return not all(each.is_indexed for each, _ in self.given())

    @property
    def words(self) -> tuple[str, ...]:
        """Return the words that a letter must have: those of the text, and one for each header."""
        marks = (mark_header((name, value.encode("utf-8", "surrogateescape"))) for name, value in self.headers)
        return tuple(dict.fromkeys((*split_words(self.text), *marks)))

    def only_open(self) -> Self:
        """Return the same filter for open letters, the only ones that are replayed.

        Raises:
            FilterFault: it selects other statuses, and not open.
        """
        if self.statuses and LetterStatus.OPEN not in self.statuses:
            raise FilterFault(
                f"Only open letters are replayed, and this selects {' or '.join(self.statuses)} ones: "
                "leave the status out."
            )
        return replace(self, statuses=(LetterStatus.OPEN,))

    def only_discardable(self) -> Self:
        """Return the same filter for letters that are discarded: open ones, and archived ones that it names, by their
        ids or their status.

        Raises:
            FilterFault: it selects other statuses, and neither open nor archived.
        """
        named = self.statuses or ((*DISCARDABLE,) if self.ids else (LetterStatus.OPEN,))
        if not (taken := tuple(status for status in DISCARDABLE if status in named)):
            raise FilterFault(
                f"Only open letters and archived ones are discarded, and this selects {' or '.join(named)} ones: "
                "leave the status out."
            )
        return replace(self, statuses=taken)

    def to_data(self) -> dict[str, Any]:
        """Return the filter as JSON, without empty fields: a key as base64, headers as people write them."""
        return {each.name: each.type.to_json(value) for each, value in self.given()}

    @classmethod
    def from_data(cls, data: Mapping[str, Any]) -> Self:
        """Return the filter that `to_data` wrote.

        Raises:
            FilterFault: the data is no filter.
        """
        types = {each.name: each.type for each in FILTER_FIELDS}
        if strange := set(data) - set(types):
            raise FilterFault(f"A filter has no {', '.join(sorted(strange))}.")
        try:
            return cls(**{name: types[name].from_json(value) for name, value in data.items()})
        except (TypeError, ValueError) as error:
            raise FilterFault(f"This is no filter: {error}.") from None

    @classmethod
    def parse(cls, texts: Mapping[str, Sequence[str]], now: float) -> Self:
        """Return the filter that a person wrote.

        Parameters:
            texts: the values of fields by their words.
            now: Unix time.

        Raises:
            FilterFault: a field is malformed.
        """
        given = {each.name: each.type.parse(texts[each.word], now) for each in FILTER_FIELDS if texts.get(each.word)}
        return cls(**given)


#: The table of fields, which `LetterFilter` declares.
FILTER_FIELDS: Final = tuple(
    replace(declared.metadata["filter"], name=declared.name) for declared in fields(LetterFilter)
)

#: All dead letters.
ALL_LETTERS: Final = LetterFilter()


def _is_storable(text: str) -> bool:
    """Return whether both databases can store a text: PostgreSQL has no null characters."""
    return not any(each == "\0" or "\ud800" <= each <= "\udfff" for each in text)


def check_topic_filter(filter_: LetterFilter) -> None:
    """Refuse a filter with fields that a letter in a topic does not have.

    Raises:
        FilterFault: it has such fields; the message says what to do.
    """
    if unknown := [each.name.replace("_", " ") for each, _ in filter_.given() if each.is_stored]:
        raise FilterFault(
            f"A letter in a topic is not found by {', '.join(unknown)}: the database does that, without --from-topic."
        )


def accepts_letter(filter_: LetterFilter, letter: StoredLetter) -> bool:
    """Return whether a filter matches a letter as the database would; fields that `check_topic_filter` refuses are
    ignored.
    """
    return all(
        each.type.matches(value, attrgetter(each.value)(letter))
        for each, value in filter_.given()
        if not each.is_stored
    )


def describe_filter(asked: Mapping[str, Any]) -> str:
    """Return a filter in words: `handler orders.handlers.charge, reason poison`; "" for all open letters.

    Parameters:
        asked: as `LetterFilter.to_data` returns it.
    """
    return ", ".join(each for each in _describe_fields(asked) if each != "status open")


def describe_filter_for_audit(filter_: LetterFilter) -> str:
    """Return a filter in words for the audit log, which every role reads: without words, keys and headers."""
    hidden = {each.name: each.hidden_as for each, _ in filter_.given() if each.hidden_as}
    named = _describe_fields({name: value for name, value in filter_.to_data().items() if name not in hidden})
    return ", ".join([*named, *hidden.values()]) or "all"


def _describe_fields(asked: Mapping[str, Any]) -> list[str]:
    if ids := asked.get("ids"):
        return [f"letter {ids[0]}" if len(ids) == 1 else f"{format_count(len(ids), 'letter')}, chosen one by one"]
    return [f"{name} {value}" for name, value in list_filter_pairs(asked)]


def list_filter_pairs(asked: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield the parameters of a filter in JSON for an address, but for ids."""
    for each in FILTER_FIELDS:
        if each.name in asked and each.name != "ids":
            yield from ((each.word, text) for text in each.type.write(asked[each.name]))
