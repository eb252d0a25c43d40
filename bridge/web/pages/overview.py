"""Overview: what needs a person, how each topic and handler stands, and who is alive."""

from collections.abc import Callable, Sequence
from typing import Final

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from bridge.web import beginning, console, rows, showing, strips
from bridge.web.console import Console
from bridge.web.live import Snapshot
from bridge.web.pages.look import Look, digest, look

#: Topics up to which all are listed; of more, those with a problem.
ALL: Final = 30


def shown(request: Request) -> Response:
    """The overview; what cannot be asked leaves the rest as it is."""
    asked = console.of(request)
    found = look(asked)
    listed = found.topics
    if len(listed) > ALL and request.query_params.get("show") != "all":
        listed = _worse(listed)
    is_well = found.stats is not None and not found.problems and not found.silent
    return asked.page(
        request,
        "overview.html",
        look=found,
        checks=beginning.checks(asked.desk, found.status, found.stats) if is_well and found.stats else [],
        topics=listed,
        well=len(found.topics) - len(listed),
        waits=rows.waits(found.status),
        queues=rows.queues(found.status),
        others=found.others,
        proofs=asked.proofs.all(),
        hour=strips.hour(found.status, asked.clock()),
        day=strips.day(found.status, found.hours, asked.clock()),
        place=place,
    )


def live(here: Console, rest: str) -> Callable[[], Snapshot]:
    """Makes what of the overview changes: the heading, and numbers and states of topics and handlers; no row.

    Raises:
        HTTPException: there is one overview, and it has no other name.
    """
    if rest:
        raise HTTPException(404)
    return lambda: _snapshot(here, look(here))


def place(topic: str, handler: str, column: str) -> str:
    """The id of a number's place in the page: names are others' words."""
    return f"o-{digest(repr((topic, handler, column)))}"


def _snapshot(here: Console, found: Look) -> Snapshot:
    made = here.macros("overview-live.html")
    parts = {"o-heading": found.heading}
    if found.standing is not None:
        parts["o-asked"] = showing.clock(found.standing.at, here.clock())
    if (hour := strips.hour(found.status, here.clock())) is not None:
        parts["o-hour"] = made.picture(hour, "last minute", True)
    if (day := strips.day(found.status, found.hours, here.clock())) is not None:
        parts["o-day"] = made.picture(day, "sum", False)
    for topic in found.topics:
        parts[place(topic.name, "", "lag")] = made.known(topic.lag)
        parts[place(topic.name, "", "state")] = made.state(topic.state)
        for wait in rows.waits(found.status):
            parts[place(topic.name, "", f"parked {wait}")] = made.known(topic.parked.get(wait, 0))
        for handler in topic.handlers:
            parts[place(topic.name, handler.name, "spark")] = made.spark(handler.handled)
            parts[place(topic.name, handler.name, "rate")] = made.rate(handler.handled)
            parts[place(topic.name, handler.name, "in flight")] = made.known(handler.in_flight)
            parts[place(topic.name, handler.name, "oldest")] = made.oldest(handler)
            parts[place(topic.name, handler.name, "dead")] = made.dead(handler)
            parts[place(topic.name, handler.name, "state")] = made.state(handler.state)
    return Snapshot(found.act, False, {name: str(html).strip() for name, html in parts.items()})


def _worse(topics: Sequence[rows.TopicRow]) -> list[rows.TopicRow]:
    return [row for row in topics if row.state != rows.RUNS or any(each.state != rows.RUNS for each in row.handlers)]
