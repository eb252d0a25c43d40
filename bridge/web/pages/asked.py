"""A filter as it stands in an address: the command line's own words, so that one is pasted into the other."""

import time
from collections.abc import Iterable
from dataclasses import replace
from urllib.parse import urlencode

from starlette.datastructures import QueryParams

from bridge.deadletters.letters import written
from bridge.deadletters.letters.filters import EVERYTHING, Filter
from bridge.errors import FilterFault

#: What a list of choices says for "do not ask for this".
ANY = "any"
#: Fields of which a letter has one, and a filter may have several.
_SEVERAL = {"handler": "handlers", "topic": "topics", "exception": "exceptions", "reason": "reasons"} | {
    "version": "versions",
    "origin": "origins",
}


def read(query: QueryParams) -> Filter:
    """The filter that an address says.

    Raises:
        FilterFault: it says what is none.
    """
    given = {name: [each for each in query.getlist(name) if each and each != ANY] for name in query}
    found = replace(EVERYTHING, **{field: tuple(given.get(name, ())) for name, field in _SEVERAL.items()})
    groups = tuple(_number(each) for each in given.get("group", ()))
    return replace(
        found,
        groups=groups,
        statuses=written.statuses(given.get("status", ())),
        text=" ".join(given.get("text", ())),
        key=written.key(given["key"][-1]) if given.get("key") else None,
        headers=tuple(written.header(each) for each in given.get("header", ())),
        since=_moment(given.get("since", ())),
        until=_moment(given.get("until", ())),
    )


def _moment(given: Iterable[str]) -> int | None:
    said = [*given]
    return written.moment(said[-1], time.time()) if said else None


def _number(text: str) -> int:
    if not text.isdecimal():
        raise FilterFault(f"{text!r} is no number of a group.")
    return int(text)


def address(path: str, query: QueryParams, **other: str) -> str:
    """An address with the same filter, and something else besides."""
    kept = [(name, value) for name, value in query.multi_items() if name not in other and value]
    return f"{path}?{urlencode([*kept, *((name, value) for name, value in other.items() if value)])}"


def with_status(query: QueryParams) -> QueryParams:
    """An address that means open letters where it names no status."""
    return query if query.get("status") else QueryParams([*query.multi_items(), ("status", "open")])
