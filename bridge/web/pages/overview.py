"""Overview: what needs a person, how each topic and handler stands, and who is alive."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Final

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from bridge.web import beginning, console, rows, showing, strips
from bridge.web.console import Console
from bridge.web.live import Snapshot
from bridge.web.pages import plan_figures
from bridge.web.pages.look import Look, live_look, look, place, snapshot

#: Topics up to which all are listed; of more, those with a problem.
ALL: Final = 30
#: Of a topic's number, or a handler's.
PLACE: Final = partial(place, "o")


def shown(request: Request) -> Response:
    """The overview; what cannot be asked leaves the rest as it is."""
    asked = console.of(request)
    found = look(asked, counts=True)
    listed = found.topics
    if len(listed) > ALL and request.query_params.get("show") != "all":
        listed = _worse(listed)
    is_well = found.stats is not None and not found.problems and not found.silent
    return asked.page(
        request,
        "overview.html",
        look=found,
        recorders=asked.recorders(),
        so_far=plan_figures.so_far,
        checks=beginning.checks(asked.desk, found.status, found.stats) if is_well and found.stats else [],
        topics=listed,
        well=len(found.topics) - len(listed),
        waits=rows.waits(found.status),
        queues=rows.queues(found.status),
        others=found.others,
        proofs=asked.proofs.all(),
        hour=strips.hour(found.status, asked.clock()),
        day=strips.day(found.status, found.hours, asked.clock()),
        place=PLACE,
    )


def live(here: Console, rest: str) -> Callable[[], Snapshot]:
    """Makes what of the overview changes: the heading, and numbers and states of topics and handlers; no row.

    Raises:
        HTTPException: there is one overview, and it has no other name.
    """
    if rest:
        raise HTTPException(404)
    return lambda: _snapshot(here, live_look(here))


def _snapshot(here: Console, found: Look) -> Snapshot:
    made = here.macros("overview-live.html")
    parts = {"o-heading": found.heading}
    if found.standing is not None:
        parts["o-asked"] = showing.clock(found.standing.at, here.clock())
    for topic in found.topics:
        parts[PLACE(topic.name, "", "lag")] = made.known(topic.lag)
        parts[PLACE(topic.name, "", "state")] = made.state(topic.state, here.clock())
        for wait in rows.waits(found.status):
            parts[PLACE(topic.name, "", f"parked {wait}")] = made.known(topic.parked.get(wait, 0))
        for handler in topic.handlers:
            parts[PLACE(topic.name, handler.name, "spark")] = made.spark(handler.handled)
            parts[PLACE(topic.name, handler.name, "rate")] = made.rate(handler.handled)
            parts[PLACE(topic.name, handler.name, "in flight")] = made.known(handler.in_flight)
            parts[PLACE(topic.name, handler.name, "oldest")] = made.oldest(handler)
            parts[PLACE(topic.name, handler.name, "dead")] = made.dead(handler)
            parts[PLACE(topic.name, handler.name, "state")] = made.state(handler.state, here.clock())
    return snapshot(here, found, "o", found.act, found.status, parts, found.hours)


def _worse(topics: Sequence[rows.TopicRow]) -> list[rows.TopicRow]:
    return [row for row in topics if row.state != rows.RUNS or any(each.state != rows.RUNS for each in row.handlers)]
