"""The pages of a topic: its partitions, retry and replay topics and handlers, and who halted it."""

from collections.abc import Callable
from functools import partial
from typing import Any, Final

from starlette.requests import Request
from starlette.responses import Response

from bridge.console import console
from bridge.console.console import Console
from bridge.console.live_snapshot import LiveSnapshot
from bridge.console.pages import charts
from bridge.console.pages.blocking_rows import build_blocking
from bridge.console.pages.chart_options import DEFAULT_OPTIONS, ChartControls, ChartOptions, read_chart_options
from bridge.console.pages.page_charts import PageCharts, build_page_charts
from bridge.console.pages.status_rows import TopicRow, build_partition_rows, list_own_topics
from bridge.console.pages.status_view import (
    ShownCause,
    StatusView,
    build_place_id,
    build_snapshot,
    build_status_view,
    digest_text,
    get_live_view,
)
from bridge.errors import UnknownTopic
from bridge.formats.text_forms import format_count
from bridge.inspection.status import redact_halt
from bridge.kafka.topic_names import TopicNames
from bridge.ledger.gauge_history import GaugeKey
from bridge.operator_actions import topic_halt

#: The prefix of element ids in its page.
PLACE: Final = partial(build_place_id, "t")


def show_topic(request: Request) -> Response:
    """Show a topic's state."""
    here, name = console.get_console(request), request.path_params["topic"]
    view = build_status_view(here)
    row = _require_row(view, name)
    options = read_chart_options(request.query_params)
    return here.page(
        request,
        "topic.html",
        view=view,
        topic=row,
        heading=_build_heading(view, row),
        act=_build_version(view, row),
        name=f"topic-{name}",
        causes=_list_causes(view, row),
        partitions=build_partition_rows(name, view.status),
        beside=list_own_topics(name, view.status),
        letters=TopicNames.from_settings(here.desk.settings).dead_letters(name),
        charts=_build_charts(here, view, name, options),
        controls=ChartControls(options, request.url.path, request.query_params.multi_items()),
        place=PLACE,
        history=_read_history(request, name) if "decisions" in request.query_params else None,
        has_source=name in here.desk.routes.topics,
        blocking=build_blocking(request, name) if "blocking" in request.query_params else None,
    )


def show_decisions(request: Request) -> Response:
    """Show who halted and resumed the topic, read from Kafka; this takes seconds while Kafka is unavailable."""
    here, name = console.get_console(request), request.path_params["topic"]
    return here.page(request, "topic-decisions.html", history=_read_history(request, name))


def _read_history(request: Request, name: str) -> list[dict[str, Any]]:
    changes = topic_halt.read_halt_history(console.get_console(request).desk.settings, name)
    return [redact_halt(change) for change in changes] if console.get_masks(request).find_fields(name) else changes


def _build_charts(here: Console, view: StatusView, name: str, options: ChartOptions) -> PageCharts:
    status = charts.narrow_status(view.status, topic=name)
    return build_page_charts(here, status, options, {"topic": name}, gauge=GaugeKey("lag", name))


def watch_topic(here: Console, name: str, options: ChartOptions = DEFAULT_OPTIONS) -> Callable[[], LiveSnapshot]:
    """Return a function that makes the live parts of a topic's page.

    Raises:
        UnknownTopic: no handler names it, and it is not halted.
    """
    _require_row(get_live_view(here), name)
    return lambda: _take_snapshot(here, name, options)


def _take_snapshot(here: Console, name: str, options: ChartOptions) -> LiveSnapshot:
    view, macros = get_live_view(here), here.macros("status-macros.html")
    row = _require_row(view, name)
    parts = {"t-heading": _build_heading(view, row), "t-state": macros.state(row.state, here.clock())}
    for partition in build_partition_rows(name, view.status):
        parts[PLACE(name, f"committed {partition.number}")] = macros.known(partition.committed)
        parts[PLACE(name, f"lag {partition.number}")] = macros.known(partition.lag)
        parts[PLACE(name, f"state {partition.number}")] = macros.partition(partition, here.clock())
    for tier in list_own_topics(name, view.status):
        parts[PLACE(name, f"records {tier['topic']}")] = macros.known(tier["records"])
    shown = _build_charts(here, view, name, options)
    return build_snapshot(here, view, "t", _build_version(view, row), parts, shown)


def _require_row(view: StatusView, name: str) -> TopicRow:
    row = next((row for row in view.topics if row.name == name), None)
    if row is None:
        raise UnknownTopic(f"No handler here names the topic {name!r}, and it is not halted.")
    return row


def _list_causes(view: StatusView, row: TopicRow) -> list[ShownCause]:
    """Return the causes that are about the topic, or about one of its handlers."""
    handlers = {handler.name for handler in row.handlers}
    return [cause for cause in view.causes if row.name in cause.topics or handlers & cause.handlers]


def _build_heading(view: StatusView, row: TopicRow) -> str:
    waiting = "" if row.lag is None else f", consumer lag {format_count(row.lag, 'record')}"
    causes = len(_list_causes(view, row))
    problems = f", {format_count(causes, 'problem')}" if causes else ""
    return f"{row.name}: {row.state.words}{problems}{waiting}"


def _build_version(view: StatusView, row: TopicRow) -> str:
    """Return the version of what the page lists and offers."""
    causes = [cause.about for cause in _list_causes(view, row)]
    tiers = [tier["topic"] for tier in list_own_topics(row.name, view.status)]
    return digest_text(repr((causes, row.halted, row.partitions, tiers)))
