"""One topic: its partitions, what of it waits and where, its handlers, and who halted it."""

from collections.abc import Callable
from functools import partial
from typing import Any, Final

from starlette.requests import Request
from starlette.responses import Response

from bridge.commands import halt
from bridge.commands.unquoted import unquoted_halt
from bridge.errors import UnknownTopic
from bridge.topics.names import TopicNames
from bridge.web import console, strips
from bridge.web.console import Console
from bridge.web.live import Snapshot
from bridge.web.pages.look import Look, digest, live_look, look, place, snapshot
from bridge.web.partitions import beside, partitions
from bridge.web.rows import TopicRow

#: Of a topic's number in its page.
PLACE: Final = partial(place, "t")


def shown(request: Request) -> Response:
    """How the topic stands."""
    asked, name = console.of(request), request.path_params["topic"]
    found = look(asked)
    row = _row(found, name)
    status = strips.only(found.status, topic=name)
    return asked.page(
        request,
        "topic.html",
        look=found,
        topic=row,
        heading=_heading(row),
        act=_act(found, row),
        name=f"topic-{name}",
        problems=[each for each in found.problems if each.topic == name],
        partitions=partitions(name, found.status),
        beside=beside(name, found.status),
        letters=TopicNames.of(asked.desk.settings).dead_letters(name),
        hour=strips.hour(status, asked.clock()),
        day=strips.day(status, None, asked.clock()),
        place=PLACE,
        history=_history(request, name) if "decisions" in request.query_params else None,
    )


def decided(request: Request) -> Response:
    """Who halted and resumed it, from wherever: asked of Kafka, which takes seconds where it is away."""
    asked, name = console.of(request), request.path_params["topic"]
    return asked.page(request, "topic-decided.html", history=_history(request, name))


def _history(request: Request, name: str) -> list[dict[str, Any]]:
    found = halt.history(console.of(request).desk.settings, name)
    return [unquoted_halt(each) for each in found] if console.masks(request).of(name) else found


def live(here: Console, name: str) -> Callable[[], Snapshot]:
    """Makes what of a topic's page changes.

    Raises:
        UnknownTopic: no handler names it, and it is not halted.
    """
    _row(live_look(here), name)
    return lambda: _snapshot(here, name)


def _snapshot(here: Console, name: str) -> Snapshot:
    found, made = live_look(here), here.macros("overview-live.html")
    row, status = _row(found, name), strips.only(found.status, topic=name)
    parts = {"t-heading": _heading(row), "t-state": made.state(row.state, here.clock())}
    for each in partitions(name, found.status):
        parts[PLACE(name, f"committed {each.number}")] = made.known(each.committed)
        parts[PLACE(name, f"lag {each.number}")] = made.known(each.lag)
        parts[PLACE(name, f"state {each.number}")] = made.partition(each, here.clock())
    for tier in beside(name, found.status):
        parts[PLACE(name, f"records {tier['topic']}")] = made.known(tier["records"])
    return snapshot(here, found, "t", _act(found, row), status, parts)


def _row(found: Look, name: str) -> TopicRow:
    row = next((row for row in found.topics if row.name == name), None)
    if row is None:
        raise UnknownTopic(f"No handler here names the topic {name!r}, and it is not halted.")
    return row


def _heading(row: TopicRow) -> str:
    waiting = "" if row.lag is None else f", {row.lag:,} record{'' if row.lag == 1 else 's'} behind"
    return f"{row.name}: {row.state.words}{waiting}"


def _act(found: Look, row: TopicRow) -> str:
    """What the page lists, and offers."""
    problems = [each.about for each in found.problems if each.topic == row.name]
    tiers = [tier["topic"] for tier in beside(row.name, found.status)]
    return digest(repr((problems, row.halted, row.partitions, tiers)))
