"""The dead-letter filter as query parameters or form fields, in the words of the command line."""

import shlex
import time
from collections.abc import Sequence
from typing import Final
from urllib.parse import urlencode

from starlette.datastructures import QueryParams

from bridge.deadletters.model import filter_syntax
from bridge.deadletters.model.letter_filter import LetterFilter
from bridge.errors import FilterFault

#: What a list of choices says for "do not ask for this", and the lists.
ANY: Final = "any"
_CHOICES: Final = ("status", "reason")
#: What of an address is a filter's.
FILTER_FIELDS: Final = (
    *("id", "handler", "topic", "exception", "reason", "text", "key", "header", "since", "until", "status", "version"),
    *("group", "cause", "origin", "plan", "attempts", "died-again"),
)
#: How an address says what the command line says by the option alone.
YES: Final = "yes"


def read_filter(query: QueryParams) -> LetterFilter:
    """The filter that an address says, or the hidden fields of a form.

    Raises:
        FilterFault: it says what is none.
    """

    def named(name: str) -> tuple[str, ...]:
        return tuple(each for each in query.getlist(name) if each and not (each == ANY and name in _CHOICES))

    return LetterFilter(
        ids=tuple(map(_read_number, named("id"))),
        handlers=named("handler"),
        topics=named("topic"),
        exceptions=named("exception"),
        reasons=named("reason"),
        versions=named("version"),
        origins=named("origin"),
        groups=tuple(map(_read_number, named("group"))),
        causes=named("cause"),
        statuses=filter_syntax.parse_statuses(named("status")),
        text=" ".join(named("text")),
        key=filter_syntax.parse_key(named("key")[-1]) if named("key") else None,
        headers=tuple(map(filter_syntax.parse_header, named("header"))),
        since=_read_moment(named("since")),
        until=_read_moment(named("until")),
        plans=tuple(map(_read_number, named("plan"))),
        died_again=_read_yes(named("died-again")),
        attempts=_read_number(named("attempts")[-1]) if named("attempts") else None,
    )


def _read_moment(said: Sequence[str]) -> int | None:
    return filter_syntax.parse_moment(said[-1], time.time()) if said else None


def _read_yes(said: Sequence[str]) -> bool:
    if other := [each for each in said if each != YES]:
        raise FilterFault(f"{other[0]!r} is not {YES!r}: letters died again, or it is not asked.")
    return bool(said)


def _read_number(text: str) -> int:
    if not (text.isascii() and text.isdecimal() and len(text) < 20):
        raise FilterFault(f"{text!r} is no number: letters, groups, plans and attempts have one.")
    return int(text)


def build_address(path: str, query: QueryParams, **other: str) -> str:
    """An address with the same filter, and something else besides."""
    kept = [(name, value) for name, value in query.multi_items() if name not in other and value]
    said = urlencode([*kept, *((name, value) for name, value in other.items() if value)])
    return f"{path}?{said}" if said else path


def read_chosen_filter(form: QueryParams) -> LetterFilter:
    """The letters that a form of the list means: those that are ticked, or all of its filter.

    `scope` is "ids" or "filter"; `ids` is said once a letter, or with commas between them; the filter's own fields are
    named as in its address.

    Raises:
        FilterFault: it says what is none, or nothing is ticked.
    """
    if form.get("scope") == "filter":
        return read_filter(form)
    ids = [each.strip() for said in form.getlist("ids") for each in said.split(",") if each.strip()]
    if not ids:
        raise FilterFault("No letter is ticked: tick some, or choose all that match.")
    return LetterFilter(ids=tuple(map(_read_number, ids)))


def list_filter_fields(query: QueryParams) -> list[tuple[str, str]]:
    """A filter as fields of a form, or of an address."""
    return [(name, value) for name, value in query.multi_items() if name in FILTER_FIELDS and value]


def build_command(verb: str, query: QueryParams) -> str:
    """The same filter for a terminal."""
    words = ["bridge", "deadletters", verb]
    for name, value in list_filter_fields(query):
        if not (value == ANY and name in _CHOICES):
            words += [value] if name == "id" else [f"--{name}"] if name == "died-again" else [f"--{name}", value]
    return shlex.join(words)


def add_open_status(query: QueryParams) -> QueryParams:
    """An address that means open letters where it names no status."""
    return query if query.get("status") else QueryParams([*query.multi_items(), ("status", "open")])
