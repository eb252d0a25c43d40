"""A filter as it stands in an address: the command line's own words, so that one is pasted into the other."""

import time
from collections.abc import Sequence
from urllib.parse import urlencode

from starlette.datastructures import QueryParams

from bridge.deadletters.letters import written
from bridge.deadletters.letters.filters import Filter
from bridge.errors import FilterFault

#: What a list of choices says for "do not ask for this".
ANY = "any"


def read(query: QueryParams) -> Filter:
    """The filter that an address says.

    Raises:
        FilterFault: it says what is none.
    """
    given = {name: tuple(each for each in query.getlist(name) if each and each != ANY) for name in query}

    def named(name: str) -> tuple[str, ...]:
        return given.get(name, ())

    return Filter(
        handlers=named("handler"),
        topics=named("topic"),
        exceptions=named("exception"),
        reasons=named("reason"),
        versions=named("version"),
        origins=named("origin"),
        groups=tuple(map(_number, named("group"))),
        statuses=written.statuses(named("status")),
        text=" ".join(named("text")),
        key=written.key(named("key")[-1]) if named("key") else None,
        headers=tuple(map(written.header, named("header"))),
        since=_moment(named("since")),
        until=_moment(named("until")),
    )


def _moment(said: Sequence[str]) -> int | None:
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
