"""The pages of a topic: its partitions, retry and replay topics and handlers, who halted it, and the form that halts or
resumes it.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Final
from urllib.parse import quote

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from bridge.console import console
from bridge.console.console import Console
from bridge.console.decision_audit import list_durability_warnings
from bridge.console.live_snapshot import LiveSnapshot
from bridge.console.pages import charts, status_rows
from bridge.console.pages.form_submission import note_decided, require_why
from bridge.console.pages.status_rows import TopicRow, build_partition_rows, list_own_topics
from bridge.console.pages.status_view import (
    StatusView,
    build_place_id,
    build_snapshot,
    build_status_view,
    digest_text,
    get_live_view,
)
from bridge.deadletters.db.audit_rows import AuditEntry
from bridge.errors import UnknownTopic
from bridge.formats.text_forms import format_count
from bridge.inspection.status import redact_halt
from bridge.kafka.topic_names import TopicNames
from bridge.operator_actions import topic_halt
from bridge.operator_actions import topic_halt as commands

#: The prefix of element ids in its page.
PLACE: Final = partial(build_place_id, "t")


def show_topic(request: Request) -> Response:
    """Show a topic's state."""
    here, name = console.get_console(request), request.path_params["topic"]
    view = build_status_view(here)
    row = _require_row(view, name)
    status = charts.narrow_status(view.status, topic=name)
    return here.page(
        request,
        "topic.html",
        view=view,
        topic=row,
        heading=_build_heading(row),
        act=_build_version(view, row),
        name=f"topic-{name}",
        problems=[problem for problem in view.problems if problem.topic == name],
        partitions=build_partition_rows(name, view.status),
        beside=list_own_topics(name, view.status),
        letters=TopicNames.from_settings(here.desk.settings).dead_letters(name),
        hour=charts.build_hour_chart(status, here.clock()),
        day=charts.build_day_chart(status, None, here.clock()),
        place=PLACE,
        history=_read_history(request, name) if "decisions" in request.query_params else None,
    )


def show_decisions(request: Request) -> Response:
    """Show who halted and resumed the topic, read from Kafka; this takes seconds while Kafka is unavailable."""
    here, name = console.get_console(request), request.path_params["topic"]
    return here.page(request, "topic-decisions.html", history=_read_history(request, name))


def _read_history(request: Request, name: str) -> list[dict[str, Any]]:
    changes = topic_halt.read_halt_history(console.get_console(request).desk.settings, name)
    return [redact_halt(change) for change in changes] if console.get_masks(request).find_fields(name) else changes


def watch_topic(here: Console, name: str) -> Callable[[], LiveSnapshot]:
    """Return a function that makes the live parts of a topic's page.

    Raises:
        UnknownTopic: no handler names it, and it is not halted.
    """
    _require_row(get_live_view(here), name)
    return lambda: _take_snapshot(here, name)


def _take_snapshot(here: Console, name: str) -> LiveSnapshot:
    view, macros = get_live_view(here), here.macros("status-macros.html")
    row, status = _require_row(view, name), charts.narrow_status(view.status, topic=name)
    parts = {"t-heading": _build_heading(row), "t-state": macros.state(row.state, here.clock())}
    for partition in build_partition_rows(name, view.status):
        parts[PLACE(name, f"committed {partition.number}")] = macros.known(partition.committed)
        parts[PLACE(name, f"lag {partition.number}")] = macros.known(partition.lag)
        parts[PLACE(name, f"state {partition.number}")] = macros.partition(partition, here.clock())
    for tier in list_own_topics(name, view.status):
        parts[PLACE(name, f"records {tier['topic']}")] = macros.known(tier["records"])
    return build_snapshot(here, view, "t", _build_version(view, row), status, parts)


def _require_row(view: StatusView, name: str) -> TopicRow:
    row = next((row for row in view.topics if row.name == name), None)
    if row is None:
        raise UnknownTopic(f"No handler here names the topic {name!r}, and it is not halted.")
    return row


def _build_heading(row: TopicRow) -> str:
    waiting = "" if row.lag is None else f", consumer lag {format_count(row.lag, 'record')}"
    return f"{row.name}: {row.state.words}{waiting}"


def _build_version(view: StatusView, row: TopicRow) -> str:
    """Return the version of what the page lists and offers."""
    problems = [problem.about for problem in view.problems if problem.topic == row.name]
    tiers = [tier["topic"] for tier in list_own_topics(row.name, view.status)]
    return digest_text(repr((problems, row.halted, row.partitions, tiers)))


#: Seconds to wait for the topic's state: the form works without it.
STATUS_WITHIN = 0.5


def show_halt_form(request: Request) -> Response:
    """Show the topic's state, and the form for the action in the address, never for the opposite one."""
    halt = commands.read_halts(console.get_console(request).desk.settings).get(request.path_params["topic"])
    return _render_halt_form(request, 200, halt, typed=console.get_typed_values(request).get("why", ""))


def halt_topic(request: Request) -> Response:
    """Halt a topic: the group stops reading it and running its deliveries."""
    why, desk = require_why(request), console.get_console(request).desk
    return _decide_halt(
        request,
        f"halted {request.path_params['topic']}: {why}",
        lambda topic, by: commands.halt_topics(desk.app, desk.settings, desk.routes, [topic], why, by),
    )


def resume_topic(request: Request) -> Response:
    """Resume a topic from exactly where it stopped."""
    why, desk = require_why(request), console.get_console(request).desk
    return _decide_halt(
        request,
        f"resumed {request.path_params['topic']}: {why}",
        lambda topic, by: commands.resume_topics(desk.app, desk.settings, desk.routes, [topic], why, by),
    )


def _decide_halt(request: Request, entry: str, act: Callable[[str, str], dict[str, Any]]) -> Response:
    """Halt or resume a topic, unless its state has changed since the user saw it."""
    topic, form = request.path_params["topic"], request.state.form
    halt = commands.read_halts(console.get_console(request).desk.settings).get(topic)
    if form.get("seen", "") != _build_halt_version(halt):
        if _is_own_decision(request, halt):
            return _redirect_to_form(topic, halt is not None)
        # The form asks for the reason again: the typed one was written before another user's decision.
        return _render_halt_form(request, 409, halt, unsent=form.get("why", ""))
    outcome = act(topic, console.get_principal(request).name)["topics"][topic]
    if outcome.get("changed", True):
        note_decided(request, "halt" if outcome["halted"] else "resume", entry)
    if warnings := list_durability_warnings(outcome):
        return _render_halt_form(
            request, 200, outcome if outcome["halted"] else None, typed=form.get("why", ""), told=warnings
        )
    return _redirect_to_form(topic, outcome["halted"])


def _is_own_decision(request: Request, halt: Mapping[str, Any] | None) -> bool:
    """Return whether the same user has already decided this, because the form was sent twice."""
    topic, who, why = request.path_params["topic"], console.get_principal(request).name, require_why(request)
    if _is_halt_form(request):
        return halt is not None and (halt["by"], halt["why"]) == (who, why)
    last = _find_resumption(request, topic)
    return halt is None and last is not None and (last.by, last.said) == (who, f"resumed {topic}: {why}")


def _find_resumption(request: Request, topic: str) -> AuditEntry | None:
    """Return the last resumption by a console, among the latest entries of the audit log."""
    entries = console.get_console(request).desk.trail.page(what=("resume",)).entries
    return next((entry for entry in entries if entry.said.startswith(f"resumed {topic}:")), None)


def _redirect_to_form(topic: str, halted: bool) -> Response:
    return RedirectResponse(f"/topics/{quote(topic, safe='')}/{'resume' if halted else 'halt'}", 303)


def _is_halt_form(request: Request) -> bool:
    """Return whether the address is that of the halt form, and not of the resume form."""
    return request.url.path.endswith("/halt")


def _render_halt_form(
    request: Request,
    status: int,
    halt: Mapping[str, Any] | None,
    typed: str = "",
    told: Sequence[str] = (),
    unsent: str = "",
) -> Response:
    here, topic = console.get_console(request), request.path_params["topic"]
    if halt is None and topic not in here.desk.routes.topics:
        raise UnknownTopic(f"No handler here names the topic {topic!r}, and it is not halted.")
    status_now = here.status_cache.read(STATUS_WITHIN)
    listed = [] if status_now is None else status_rows.build_topic_rows(here.desk.routes, status_now.status, None)
    return here.page(
        request,
        "halt.html",
        status,
        topic=topic,
        halt=redact_halt(halt) if halt is not None and console.get_masks(request).find_fields(topic) else halt,
        halts=_is_halt_form(request),
        seen=_build_halt_version(halt),
        unsent=unsent,
        typed=typed,
        quicker=status == 409,
        resumed=_find_resumption(request, topic) if status == 409 and halt is None else None,
        told=told,
        silent={} if status_now is None else status_now.silent,
        row=next((row for row in listed if row.name == topic), None),
    )


def _build_halt_version(halt: Mapping[str, Any] | None) -> str:
    """Return a version that distinguishes a halt from another of the same topic, without the handler's own words."""
    return "" if halt is None else f"{halt['since']} {halt['by']} {redact_halt(halt)['why']}"
