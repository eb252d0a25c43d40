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

#: The choice that does not restrict a list, and the fields that have it.
ANY: Final = "any"
_CHOICES: Final = ("status", "reason")
#: The parameters of an address that belong to the filter.
FILTER_FIELDS: Final = (
    *("id", "handler", "topic", "exception", "reason", "text", "key", "header", "since", "until", "status", "version"),
    *("group", "cause", "origin", "plan", "attempts", "died-again"),
)
#: The value in an address for an option that is a flag on the command line.
YES: Final = "yes"


def read_filter(query: QueryParams) -> LetterFilter:
    """Return the filter of an address, or of the hidden fields of a form.

    Raises:
        FilterFault: a field is malformed.
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
        raise FilterFault(f"{other[0]!r} is not {YES!r}: for letters that died again say {YES!r}, or leave it out.")
    return bool(said)


def _read_number(text: str) -> int:
    if not (text.isascii() and text.isdecimal() and len(text) < 20):
        raise FilterFault(f"{text!r} is no number: letters, groups, plans and attempts are numbers.")
    return int(text)


def build_address(path: str, query: QueryParams, **other: str) -> str:
    """Return an address with the same filter and other parameters besides."""
    kept = [(name, value) for name, value in query.multi_items() if name not in other and value]
    said = urlencode([*kept, *((name, value) for name, value in other.items() if value)])
    return f"{path}?{said}" if said else path


def read_chosen_filter(form: QueryParams) -> LetterFilter:
    """Return a filter for the letters that a form of the list means: the ticked ones, or all that match.

    `scope` is "ids" or "filter"; `ids` is repeated for each letter, or comma-separated; the filter's own fields are
    named as in its address.

    Raises:
        FilterFault: a field is malformed, or nothing is ticked.
    """
    if form.get("scope") == "filter":
        return read_filter(form)
    ids = [each.strip() for said in form.getlist("ids") for each in said.split(",") if each.strip()]
    if not ids:
        raise FilterFault("No letter is ticked: tick some, or choose all that match.")
    return LetterFilter(ids=tuple(map(_read_number, ids)))


def list_filter_fields(query: QueryParams) -> list[tuple[str, str]]:
    """Return a filter as fields of a form or of an address."""
    return [(name, value) for name, value in query.multi_items() if name in FILTER_FIELDS and value]


def build_command(verb: str, query: QueryParams) -> str:
    """Return the command line with the same filter."""
    words = ["bridge", "deadletters", verb]
    for name, value in list_filter_fields(query):
        if not (value == ANY and name in _CHOICES):
            words += [value] if name == "id" else [f"--{name}"] if name == "died-again" else [f"--{name}", value]
    return shlex.join(words)


def add_open_status(query: QueryParams) -> QueryParams:
    """Return a query that means open letters if it names no status."""
    return query if query.get("status") else QueryParams([*query.multi_items(), ("status", "open")])
