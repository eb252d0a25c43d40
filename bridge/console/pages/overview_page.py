"""The overview: problems, the state of each topic and handler, queues and workers, and the first start's checklist."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import islice
from typing import Any, Final, NamedTuple

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from bridge.console import console, template_filters
from bridge.console.console import Console
from bridge.console.live_snapshot import LiveSnapshot
from bridge.console.pages import plan_view, status_rows
from bridge.console.pages.chart_options import DEFAULT_OPTIONS, ChartControls, ChartOptions, read_chart_options
from bridge.console.pages.page_charts import PageCharts, build_page_charts
from bridge.console.pages.status_view import (
    ShownCause,
    StatusView,
    build_place_id,
    build_snapshot,
    build_status_view,
    get_live_view,
)
from bridge.deadletters.dead_letter_service import DeadLetterService
from bridge.deadletters.inspection.letter_statistics import LetterCounts
from bridge.deadletters.inspection.recorder_presence import RecorderPresence
from bridge.errors import DeskUnavailable
from bridge.formats.text_forms import format_count
from bridge.jobs.group_facts import format_letter_count as letters_said


class OnboardingCheck(NamedTuple):
    """A thing that a complete installation has.

    Attributes:
        next: what to do if it is missing.
    """

    what: str
    that: str
    there: bool
    state: str
    next: str = ""


def list_onboarding_checks(
    desk: DeadLetterService, status: Mapping[str, Any], stats: LetterCounts, recorders: RecorderPresence
) -> list[OnboardingCheck]:
    """Return what is there and what is missing; nothing once a letter was replayed and resolved."""
    if stats.statuses.get("resolved") or stats.statuses.get("replaying"):
        return []
    bridges, workers = status.get("bridges") or {}, status.get("workers") or {}
    versions = {v for each in workers.values() for v in each.get("handler_versions", {}).values() if v}
    letters = sum(stats.statuses.values())
    processes = sum(each["processes"] for each in workers.values())
    return [
        OnboardingCheck(
            "A bridge",
            f"consumes {', '.join(desk.routes.topics)}",
            bool(bridges),
            _describe_count(len(bridges)),
            "`bridge run`",
        ),
        OnboardingCheck(
            "A worker",
            f"takes {', '.join(desk.routes.queues)}",
            bool(workers),
            f"{_describe_count(len(workers))}, {format_count(processes, 'process')}",
            f"`celery -A {desk.settings.app} worker`",
        ),
        OnboardingCheck(
            "The recorder",
            f"has its database, {desk.database.name}",
            bool(recorders.living) or not recorders.wanted,
            f"{_describe_recorders(recorders)}, {letters_said(letters)}",
            "`bridge deadletters record` runs beside the bridge",
        ),
        OnboardingCheck(
            "The version",
            "of your code is known",
            bool(versions),
            ", ".join(sorted(versions)) or "unknown",
            "Set `KAFKA_HANDLERS_VERSION` where workers start: groups then know which version fails",
        ),
    ]


def _describe_count(count: int) -> str:
    return f"{count} alive" if count else "none"


def _describe_recorders(recorders: RecorderPresence) -> str:
    if recorders.living is None:
        return "not known"
    return _describe_count(len(recorders.living)) if recorders.wanted or recorders.living else "none expected"


#: The number of topics up to which all are listed; of more, only those with a problem.
MAX_LISTED_TOPICS: Final = 30
#: The handlers outside this app that are listed; the others are counted.
MAX_LISTED_OTHERS: Final = 5
#: The prefix of element ids.
PLACE: Final = partial(build_place_id, "o")


def show_overview(request: Request) -> Response:
    """Show the overview; an unavailable server leaves the rest of it as it is."""
    asked = console.get_console(request)
    recorders, options = asked.recorders(), read_chart_options(request.query_params)
    found = build_status_view(asked, counts=True)
    listed = found.topics
    if len(listed) > MAX_LISTED_TOPICS and request.query_params.get("show") != "all":
        listed = _keep_worse(listed)
    checks: list[OnboardingCheck] = []
    if found.stats is not None and not found.causes and not found.silent:
        checks = list_onboarding_checks(asked.desk, found.status, found.stats, recorders)
    return asked.page(
        request,
        "overview.html",
        view=found,
        recorders=recorders,
        so_far=plan_view.describe_progress,
        checks=checks,
        topics=listed,
        well=len(found.topics) - len(listed),
        queues=status_rows.build_queue_rows(found.status),
        others=dict(islice(found.others.items(), MAX_LISTED_OTHERS)),
        more_others=[*found.others.values()][MAX_LISTED_OTHERS:],
        audits=asked.audit_cache.all(),
        charts=_build_charts(asked, found, options),
        controls=ChartControls(options, request.url.path, request.query_params.multi_items()),
        spark_scale=_find_spark_scale(found, options),
        errors=_read_group_errors(asked, found.causes),
        place=PLACE,
    )


def _read_group_errors(asked: Console, causes: Sequence[ShownCause]) -> dict[str, str]:
    """Return the exceptions of the groups that problems lead to, by the address of their page."""
    addresses = (link.address for cause in causes for link in cause.links)
    ids = {int(number) for address in addresses if (number := address.removeprefix("/groups/")).isdecimal()}
    try:
        groups = asked.desk.groups.read_groups(sorted(ids)) if ids else []
    except DeskUnavailable:
        return {}
    return {f"/groups/{group.id}": group.error_class.rpartition(".")[2] for group in groups}


def _build_charts(asked: Console, found: StatusView, options: ChartOptions) -> PageCharts:
    def read_letters(hours: int) -> Sequence[int] | None:
        if found.hours is None or hours <= len(found.hours):
            return found.hours
        try:
            return asked.desk.totals.count_failures(hours)
        except DeskUnavailable:
            return None

    return build_page_charts(asked, found.status, options, letters=read_letters)


def _find_spark_scale(found: StatusView, options: ChartOptions) -> int | None:
    """Return the highest value of the handlers' charts, if they share a scale."""
    if not options.shared:
        return None
    return max((each.handled.most for topic in found.topics for each in topic.handlers if each.handled), default=0)


def watch_overview(here: Console, rest: str, options: ChartOptions = DEFAULT_OPTIONS) -> Callable[[], LiveSnapshot]:
    """Return a function that makes the live parts of the overview: heading, numbers and states, no rows.

    Raises:
        HTTPException: the name has a rest; there is only one overview.
    """
    if rest:
        raise HTTPException(404)
    return lambda: _take_snapshot(here, get_live_view(here), options)


def _take_snapshot(here: Console, found: StatusView, options: ChartOptions) -> LiveSnapshot:
    made, scale = here.macros("status-macros.html"), _find_spark_scale(found, options)
    parts = {"o-heading": found.heading}
    if found.group_status is not None:
        parts["o-asked"] = template_filters.format_time(found.group_status.at, here.clock())
    for topic in found.topics:
        parts[PLACE(topic.name, "", "lag")] = made.known(topic.lag)
        parts[PLACE(topic.name, "", "state")] = made.state(topic.state, here.clock())
        parts[PLACE(topic.name, "", "parked")] = made.known(topic.parked_total)
        for wait, records in (topic.parked or {}).items():
            parts[PLACE(topic.name, "", f"parked {wait}")] = made.known(records)
        for handler in topic.handlers:
            parts[PLACE(topic.name, handler.name, "spark")] = made.spark(handler.handled, scale)
            parts[PLACE(topic.name, handler.name, "rate")] = made.rate(handler.handled)
            parts[PLACE(topic.name, handler.name, "in flight")] = made.known(handler.in_flight)
            parts[PLACE(topic.name, handler.name, "oldest")] = made.oldest(handler)
            parts[PLACE(topic.name, handler.name, "dead")] = made.dead(handler)
            parts[PLACE(topic.name, handler.name, "state")] = made.state(handler.state, here.clock())
    return build_snapshot(here, found, "o", found.act, parts, _build_charts(here, found, options))


def _keep_worse(topics: Sequence[status_rows.TopicRow]) -> list[status_rows.TopicRow]:
    return [
        row
        for row in topics
        if row.state != status_rows.RUNS or any(each.state != status_rows.RUNS for each in row.handlers)
    ]
