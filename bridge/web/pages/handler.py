"""One handler: what it handles and how fast, its queue and workers, what it needs, and what of it is dead."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Final

from starlette.requests import Request
from starlette.responses import Response

from bridge.deadletters.letters.filters import Filter
from bridge.deadletters.letters.letter import Status
from bridge.deadletters.questions.groups import Grouped
from bridge.errors import DeskUnavailable, UnknownHandler
from bridge.handlers import Handler
from bridge.web import console, rows, strips
from bridge.web.console import Console
from bridge.web.live import Snapshot
from bridge.web.pages.look import Look, digest, live_look, look, place, snapshot
from bridge.web.rows import HandlerRow

#: Groups that are listed; of more, how many there are.
LISTED: Final = 50
#: Of a number in its page.
PLACE: Final = partial(place, "h")


def shown(request: Request) -> Response:
    """How the handler stands."""
    asked, name = console.of(request), request.path_params["name"]
    handler, found = _known(asked, name), look(asked)
    status = strips.only(found.status, handler=name)
    listed = _rows(found, name)
    return asked.page(
        request,
        "handler.html",
        look=found,
        handler=handler,
        rows=listed,
        heading=_heading(name, listed),
        act=_act(found, name),
        name=f"handler-{name}",
        problems=[each for each in found.problems if each.handler == name],
        queue=next((each for each in rows.queues(found.status) if each.name == handler.queue), None),
        batches=_batches(found.status, name),
        breakers=_breakers(found.status, name),
        groups=_groups(asked, name),
        hour=strips.hour(status, asked.clock()),
        day=strips.day(status, None, asked.clock()),
        place=PLACE,
    )


def live(here: Console, name: str) -> Callable[[], Snapshot]:
    """Makes what of a handler's page changes.

    Raises:
        UnknownHandler: there is none of that name.
    """
    _known(here, name)
    return lambda: _snapshot(here, name)


def _snapshot(here: Console, name: str) -> Snapshot:
    found, made = live_look(here), here.macros("overview-live.html")
    listed, status = _rows(found, name), strips.only(found.status, handler=name)
    parts = {"h-heading": _heading(name, listed)}
    for topic, row in listed.items():
        parts[PLACE(topic, "rate")] = made.rate(row.handled)
        parts[PLACE(topic, "oldest")] = made.oldest(row)
    return snapshot(here, found, "h", _act(found, name), status, parts)


def _known(asked: Console, name: str) -> Handler:
    handler = asked.desk.routes.handlers.get(name)
    if handler is None:
        raise UnknownHandler(f"No handler here is called {name!r}.")
    return handler


def _rows(found: Look, name: str) -> dict[str, HandlerRow]:
    """The handler in each of its topics."""
    return {topic.name: row for topic in found.topics for row in topic.handlers if row.name == name}


def _heading(name: str, listed: Mapping[str, HandlerRow]) -> str:
    """The answer: how it is, and what of it is dead."""
    row = next(iter(listed.values()), None)
    if row is None:
        return name
    dead = "" if row.dead is None else f", {row.dead or 'no'} open letter{'' if row.dead == 1 else 's'}"
    return f"{name}: {row.state.words}{dead}"


def _act(found: Look, name: str) -> str:
    """What the page lists, and offers."""
    problems = [each.about for each in found.problems if each.handler == name]
    breakers = sorted(each["dependency"] for each in _breakers(found.status, name))
    return digest(repr((problems, breakers, [*_rows(found, name)], found.status.get("policies", {}).get(name))))


def _batches(status: Mapping[str, Any], name: str) -> Sequence[Mapping[str, Any]]:
    """How many deliveries a message carries, as each bridge says it, and why."""
    bridges = status.get("bridges") or {}
    return [
        {"bridge": bridge, **each["batches"][name]}
        for bridge, each in sorted(bridges.items())
        if name in each.get("batches", {})
    ]


def _breakers(status: Mapping[str, Any], name: str) -> Sequence[Mapping[str, Any]]:
    """What it needs and is held to be down, or is tried again."""
    found = status.get("breakers", {})
    return [{"dependency": key, **each} for key, each in sorted(found.items()) if name in each["handlers"]]


def _groups(asked: Console, name: str) -> tuple[Sequence[Grouped], int] | None:
    """Its groups with open letters, and how many more than these there are; `None`: the database does not answer."""
    groups = asked.desk.groups
    try:
        found = [each.id for each in groups.ranked(Filter(handlers=(name,), statuses=(Status.OPEN,)))]
        return groups.of(found[:LISTED]), max(0, len(found) - LISTED)
    except DeskUnavailable:
        return None
