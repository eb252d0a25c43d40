"""The page of a topic: partitions, retry and replay topics, handlers, and who halted it."""

from collections.abc import Callable
from functools import partial
from typing import Any, Final

from starlette.requests import Request
from starlette.responses import Response

from bridge.console import console
from bridge.console.console import Console
from bridge.console.live_snapshot import LiveSnapshot
from bridge.console.pages import charts
from bridge.console.pages.status_rows import TopicRow, build_partition_rows, list_own_topics
from bridge.console.pages.status_view import (
    StatusView,
    build_place_id,
    build_snapshot,
    build_status_view,
    digest_text,
    get_live_view,
)
from bridge.errors import UnknownTopic
from bridge.formats.text_forms import format_count
from bridge.inspection import topic_halt
from bridge.inspection.redacted_status import redact_halt
from bridge.kafka.topic_names import TopicNames

#: The prefix of element ids in its page.
PLACE: Final = partial(build_place_id, "t")


def show_topic(request: Request) -> Response:
    """Show a topic's state."""
    asked, name = console.get_console(request), request.path_params["topic"]
    found = build_status_view(asked)
    row = _require_row(found, name)
    status = charts.narrow_status(found.status, topic=name)
    return asked.page(
        request,
        "topic.html",
        view=found,
        topic=row,
        heading=_build_heading(row),
        act=_build_version(found, row),
        name=f"topic-{name}",
        problems=[each for each in found.problems if each.topic == name],
        partitions=build_partition_rows(name, found.status),
        beside=list_own_topics(name, found.status),
        letters=TopicNames.from_settings(asked.desk.settings).dead_letters(name),
        hour=charts.build_hour_chart(status, asked.clock()),
        day=charts.build_day_chart(status, None, asked.clock()),
        place=PLACE,
        history=_read_history(request, name) if "decisions" in request.query_params else None,
    )


def show_decisions(request: Request) -> Response:
    """Show who halted and resumed the topic, as Kafka has it: seconds while Kafka is unavailable."""
    asked, name = console.get_console(request), request.path_params["topic"]
    return asked.page(request, "topic-decided.html", history=_read_history(request, name))


def _read_history(request: Request, name: str) -> list[dict[str, Any]]:
    found = topic_halt.read_halt_history(console.get_console(request).desk.settings, name)
    return [redact_halt(each) for each in found] if console.get_masks(request).of(name) else found


def watch_topic(here: Console, name: str) -> Callable[[], LiveSnapshot]:
    """Return a function that makes the live parts of a topic's page.

    Raises:
        UnknownTopic: no handler names it, and it is not halted.
    """
    _require_row(get_live_view(here), name)
    return lambda: _take_snapshot(here, name)


def _take_snapshot(here: Console, name: str) -> LiveSnapshot:
    found, made = get_live_view(here), here.macros("overview-live.html")
    row, status = _require_row(found, name), charts.narrow_status(found.status, topic=name)
    parts = {"t-heading": _build_heading(row), "t-state": made.state(row.state, here.clock())}
    for each in build_partition_rows(name, found.status):
        parts[PLACE(name, f"committed {each.number}")] = made.known(each.committed)
        parts[PLACE(name, f"lag {each.number}")] = made.known(each.lag)
        parts[PLACE(name, f"state {each.number}")] = made.partition(each, here.clock())
    for tier in list_own_topics(name, found.status):
        parts[PLACE(name, f"records {tier['topic']}")] = made.known(tier["records"])
    return build_snapshot(here, found, "t", _build_version(found, row), status, parts)


def _require_row(found: StatusView, name: str) -> TopicRow:
    row = next((row for row in found.topics if row.name == name), None)
    if row is None:
        raise UnknownTopic(f"No handler here names the topic {name!r}, and it is not halted.")
    return row


def _build_heading(row: TopicRow) -> str:
    waiting = "" if row.lag is None else f", {format_count(row.lag, 'record')} behind"
    return f"{row.name}: {row.state.words}{waiting}"


def _build_version(found: StatusView, row: TopicRow) -> str:
    """Return the version of what the page lists and offers."""
    problems = [each.about for each in found.problems if each.topic == row.name]
    tiers = [tier["topic"] for tier in list_own_topics(row.name, found.status)]
    return digest_text(repr((problems, row.halted, row.partitions, tiers)))
