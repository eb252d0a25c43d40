"""A problem of `bridge status` for a page, with links to the pages that do something about it (pure)."""

from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import Any, Final, NamedTuple
from urllib.parse import quote, urlencode

#: For each kind of problem, the words and the address of the page with the remedy.
_PAGES: Final = {
    "halted": ("Resume {topic}…", "/topics/{topic}/resume"),
    "dying": ("Halt {topic}…", "/topics/{topic}/halt"),
    "policy": ("Policy of {handler}…", "/handlers/{handler}/policy"),
}


class ProblemLink(NamedTuple):
    """A link to a page."""

    words: str
    address: str


class ShownProblem(NamedTuple):
    """A problem on a page; its values are those of `bridge.jobs.problem.Problem`.

    Attributes:
        since: ms since the epoch; `None`: not known.
        about: the identity of the problem while its numbers change.
    """

    what: str
    sentence: str
    since: int | None
    many: int | None
    of: str
    lost: int | None
    do: str
    links: tuple[ProblemLink, ...]
    topic: str | None
    handler: str | None
    about: tuple[Any, ...]


def show_problem(values: Mapping[str, Any]) -> ShownProblem:
    """Return a problem of `bridge status --json` with its links."""
    since = values["since"]
    return ShownProblem(
        values["what"],
        values["sentence"],
        None if since is None else int(datetime.fromisoformat(since).timestamp() * 1000),
        values["many"],
        values["of"],
        values["lost"],
        values["do"],
        tuple(_list_links(values)),
        values["topic"],
        values["handler"],
        tuple(values[name] for name in ("kind", "topic", "handler", "group")),
    )


def _list_links(values: Mapping[str, Any]) -> Iterator[ProblemLink]:
    kind, topic, handler = values["kind"], values["topic"], values["handler"]
    if page := _PAGES.get(kind):
        words, address = page
        quoted = {name: quote(values[name] or "", safe="") for name in ("topic", "handler")}
        yield ProblemLink(words.format(**values), address.format(**quoted))
    if kind in ("lost", "log") and topic:
        yield ProblemLink("Proof", f"/audit?{urlencode({'topic': topic})}")
    if kind == "grows":
        group = values["group"]
        yield (
            ProblemLink("Groups", "/groups")
            if group is None
            else ProblemLink(f"Look at group {group}", f"/groups/{group}")
        )
    if topic and kind not in ("halted", "topic"):
        yield ProblemLink(f"Topic {topic}", f"/topics/{quote(topic, safe='')}")
    if handler and kind not in ("policy", "dead", "grows"):
        yield ProblemLink(f"Handler {handler}", f"/handlers/{quote(handler, safe='')}")
    if kind == "dead" and handler:
        yield ProblemLink("Look at them", f"/letters?{urlencode({'handler': handler, 'status': 'open'})}")
