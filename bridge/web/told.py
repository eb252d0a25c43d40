"""A problem as `bridge status` says it, taken apart for a page: what, since when, what can be opened (pure)."""

import re
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Final, NamedTuple
from urllib.parse import quote, urlencode

_SINCE: Final = re.compile(r"\bsince (\d{4}-\d\d-\d\d \d\d:\d\d:\d\d) UTC")
_END: Final = re.compile(r"(?<=\.) (?=[A-Z0-9`])")
_COMMAND: Final = re.compile(r"`([^`]+)`")
#: A command that is advised, and the page that does the same: its words, and its address.
_PAGES: Final = (
    (re.compile(r"bridge resume (\S+)"), "Resume {}…", "/topics/{}/resume"),
    (re.compile(r"bridge policy (?:un)?set ([\w.]+\.[\w.]+)\b.*"), "Policy of {}…", "/handlers/{}/policy"),
    (re.compile(r"bridge deadletters list --group (\d+)"), "Look at group {}", "/groups/{}"),
    (re.compile(r"bridge deadletters groups"), "Groups", "/groups"),
)
_AUDIT: Final = re.compile(r"bridge audit(?: (\S+))?")


class Link(NamedTuple):
    """A page that does what a command does."""

    words: str
    address: str


class Told(NamedTuple):
    """One problem.

    Attributes:
        what: its first sentence; `more`: the others.
        since: ms since the epoch; `None`: it does not say.
    """

    what: str
    more: str
    since: int | None
    links: tuple[Link, ...]


def told(sentence: str) -> Told:
    """One problem, taken apart."""
    what, *more = _END.split(sentence, maxsplit=1)
    since = _SINCE.search(sentence)
    return Told(what, "".join(more), _ms(since[1]) if since else None, tuple(dict.fromkeys(_links(sentence))))


def _links(sentence: str) -> Iterator[Link]:
    for command in _COMMAND.findall(sentence):
        for asked, words, address in _PAGES:
            if match := asked.fullmatch(command):
                named = match.groups()
                yield Link(words.format(*named), address.format(*(quote(name, safe="") for name in named)))
        if match := _AUDIT.fullmatch(command):
            yield Link("Proof", "/audit" + (f"?{urlencode({'topic': match[1]})}" if match[1] else ""))


def _ms(text: str) -> int:
    return int(datetime.strptime(text, "%Y-%m-%d %H:%M:%S").replace(tzinfo=UTC).timestamp() * 1000)
