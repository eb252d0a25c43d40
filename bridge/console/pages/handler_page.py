"""The pages of a handler: its throughput, queue, workers, circuit breakers and failure groups, and the form that
changes its policy.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Final, NamedTuple
from urllib.parse import quote

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from bridge.console import console
from bridge.console.confirmation import UndoForm, take_back
from bridge.console.console import Console
from bridge.console.decision_audit import list_durability_warnings
from bridge.console.live_snapshot import LiveSnapshot
from bridge.console.narrowed_status import NarrowedStatusCache
from bridge.console.pages import charts, status_rows
from bridge.console.pages.chart_options import DEFAULT_OPTIONS, ChartControls, ChartOptions, read_chart_options
from bridge.console.pages.form_submission import answer_done, note_decided, require_why
from bridge.console.pages.page_charts import PageCharts, build_page_charts
from bridge.console.pages.status_rows import HandlerRow
from bridge.console.pages.status_view import (
    StatusView,
    build_place_id,
    build_snapshot,
    build_status_view,
    digest_text,
    get_live_view,
)
from bridge.deadletters.inspection.failure_groups import GroupState
from bridge.deadletters.inspection.policy_trial import PolicyTrial, describe_trial
from bridge.deadletters.model.letter_filter import LetterFilter
from bridge.deadletters.model.stored_letter import LetterStatus
from bridge.errors import DeskUnavailable, PolicyRefused, UnknownHandler
from bridge.formats import group_decision
from bridge.handler_routes import Handler
from bridge.inspection.report_tables import describe_limit
from bridge.ledger.gauge_history import GaugeKey
from bridge.operator_actions import handler_policy as commands

#: The most groups that are listed; the others are counted.
MAX_LISTED_GROUPS: Final = 50
#: The prefix of element ids in its page.
PLACE: Final = partial(build_place_id, "h")


def show_handler(request: Request) -> Response:
    """Show a handler's state."""
    asked, name = console.get_console(request), request.path_params["name"]
    handler, found = _require_handler(asked, name), build_status_view(asked)
    options = read_chart_options(request.query_params)
    listed = _select_rows(found, name)
    return asked.page(
        request,
        "handler.html",
        view=found,
        handler=handler,
        rows=listed,
        heading=_build_heading(name, listed),
        act=_build_version(found, name),
        name=f"handler-{name}",
        causes=[cause for cause in found.causes if name in cause.handlers],
        queue=next((each for each in status_rows.build_queue_rows(found.status) if each.name == handler.queue), None),
        batches=_list_batches(found.status, name),
        breakers=_list_breakers(found.status, name),
        limits=_list_limits(found.status, name),
        groups=_list_groups(asked, name),
        charts=_build_charts(asked, found, handler, options),
        controls=ChartControls(options, request.url.path, request.query_params.multi_items()),
        place=PLACE,
    )


def _build_charts(here: Console, found: StatusView, handler: Handler, options: ChartOptions) -> PageCharts:
    status = charts.narrow_status(found.status, handler=handler.name)
    # The backlog of a handler is that of all its topics.
    cache = here.status_cache
    whole = not isinstance(cache, NarrowedStatusCache) or cache.view.covers_whole(handler)
    gauge = GaugeKey("backlog", handler.name) if whole else None
    return build_page_charts(here, status, options, {"handler": handler.name}, gauge=gauge, durations=True)


def watch_handler(here: Console, name: str, options: ChartOptions = DEFAULT_OPTIONS) -> Callable[[], LiveSnapshot]:
    """Return a function that makes the live parts of a handler's page.

    Raises:
        UnknownHandler: no handler has this name.
    """
    handler = _require_handler(here, name)
    return lambda: _take_snapshot(here, handler, options)


def _take_snapshot(here: Console, handler: Handler, options: ChartOptions) -> LiveSnapshot:
    found, made, name = get_live_view(here), here.macros("status-macros.html"), handler.name
    listed = _select_rows(found, name)
    parts = {"h-heading": _build_heading(name, listed)}
    for topic, row in listed.items():
        parts[PLACE(topic, "rate")] = made.rate(row.handled)
        parts[PLACE(topic, "oldest")] = made.oldest(row)
    shown = _build_charts(here, found, handler, options)
    return build_snapshot(here, found, "h", _build_version(found, name), parts, shown)


def _require_handler(asked: Console, name: str) -> Handler:
    handler = asked.desk.routes.handlers.get(name)
    if handler is None:
        raise UnknownHandler(f"No handler here is called {name!r}.")
    return handler


def _select_rows(found: StatusView, name: str) -> dict[str, HandlerRow]:
    """Return the rows of the handler in its topics."""
    return {topic.name: row for topic in found.topics for row in topic.handlers if row.name == name}


def _build_heading(name: str, listed: Mapping[str, HandlerRow]) -> str:
    """Return the heading: the handler's state and its dead letters."""
    row = next(iter(listed.values()), None)
    if row is None:
        return name
    dead = "" if row.dead is None else f", {row.dead or 'no'} open letter{'' if row.dead == 1 else 's'}"
    return f"{name}: {row.state.words}{dead}"


def _build_version(found: StatusView, name: str) -> str:
    """Return the version of what the page lists and offers."""
    causes = [cause.about for cause in found.causes if name in cause.handlers]
    breakers = sorted(each["dependency"] for each in _list_breakers(found.status, name))
    return digest_text(
        repr((causes, breakers, [*_select_rows(found, name)], found.status.get("policies", {}).get(name)))
    )


def _list_batches(status: Mapping[str, Any], name: str) -> Sequence[Mapping[str, Any]]:
    """Return how many deliveries a message carries, by each bridge's report, and why."""
    bridges = status.get("bridges") or {}
    return [
        {"bridge": bridge, **each["batches"][name]}
        for bridge, each in sorted(bridges.items())
        if name in each.get("batches", {})
    ]


def _list_limits(status: Mapping[str, Any], name: str) -> Sequence[str]:
    """Return the words for the limit that the handler shares; empty: it has none, or its state is not known."""
    limits = sorted(status.get("limits", {}).items())
    return [describe_limit(key, limit) for key, limit in limits if name in limit.get("handlers", ())]


def _list_breakers(status: Mapping[str, Any], name: str) -> Sequence[Mapping[str, Any]]:
    """Return the circuit breakers of the handler's dependencies that are not closed."""
    return [
        {"dependency": key, "shown": status_rows.describe_breaker(each), **each}
        for key, each in sorted(status.get("breakers", {}).items())
        if name in each["handlers"]
    ]


def _list_groups(asked: Console, name: str) -> tuple[Sequence[GroupState], int] | None:
    """Return its groups with open letters, and the number of further ones; `None` without the database."""
    groups = asked.desk.groups
    try:
        found = [each.id for each in groups.ranked(LetterFilter(handlers=(name,), statuses=(LetterStatus.OPEN,)))]
        return groups.read_groups(found[:MAX_LISTED_GROUPS]), max(0, len(found) - MAX_LISTED_GROUPS)
    except DeskUnavailable:
        return None


#: The letters that a change is tried on: those of so many days, and so many at most.
TRIAL_DAYS: Final = 30
MAX_TRIED_LETTERS: Final = 100_000


def show_policy_form(request: Request) -> Response:
    """Show the policy; the option that the address names has a form in its row."""
    return _render_policy_form(request, 200)


def change_policy(request: Request) -> Response:
    """Set an option, or return to the value in the code; or only try the value on the handler's letters."""
    desk, given = console.get_console(request).desk, request.state.form
    if given.get("try"):
        return _try_option(request, given.get("option", "").strip(), given.get("value", "").strip())
    said, name, by = require_why(request), request.path_params["name"], console.get_principal(request).name
    change = OptionChange(given.get("option", "").strip(), given.get("value", "").strip(), bool(given.get("unset")))
    stood, history = commands.read_policy(desk.app, desk.settings, desk.routes, name)
    if given.get("seen", "") != build_policy_version(latest := history[:1]):
        if latest and _is_same_change(latest[0], change, said, by):
            return RedirectResponse(_build_policy_address(name), 303)
        return _render_policy_form(request, 409)
    whose = (desk.app, desk.settings, desk.routes, name)
    try:
        if change.unset:
            found = commands.unset_policy(*whose, [change.option], said, by)
        else:
            found = commands.set_policy(*whose, [f"{change.option}={change.value}"], said, by)
    except PolicyRefused as error:
        return _render_policy_form(request, 400, refused=str(error))
    note_decided(request, "policy", f"{change.words} of {name}: {said}")
    told = [*list_durability_warnings(found), *(f"{topic}: {fault}" for topic, fault in found["tiers"].items())]
    if told:
        return _render_policy_form(request, 200, told=told)
    undo = _build_policy_undo(name, change, stood["changed"].get(change.option), _read_history(request), said)
    return answer_done(request, _build_policy_address(name), f"Policy changed: {change.words}.", undo)


def _try_option(request: Request, option: str, value: str) -> Response:
    """Show what a value would have made of the handler's latest letters; nothing is changed."""
    here, name = console.get_console(request), request.path_params["name"]
    since = LetterFilter(since=here.clock() - TRIAL_DAYS * 86_400_000)
    try:
        trial = here.desk.simulations.run(name, [f"{option}={value}"], since, most=MAX_TRIED_LETTERS)
    except PolicyRefused as error:
        return _render_policy_form(request, 400, refused=str(error))
    return _render_policy_form(request, 200, trial=trial)


class OptionChange(NamedTuple):
    """A change of one option of a policy.

    Attributes:
        unset: whether the option returns to the value in the code.
    """

    option: str
    value: str
    unset: bool

    @property
    def words(self) -> str:
        """Return the words for the audit log."""
        return f"unset {self.option}" if self.unset else f"{self.option}={self.value}"


def _build_policy_undo(
    name: str,
    change: OptionChange,
    former: Mapping[str, Any] | None,
    history: Sequence[Mapping[str, Any]],
    why: str,
) -> UndoForm | None:
    """Return the form that puts the former value back.

    Parameters:
        former: the option's change before; `None`: it had the value in the code.
    """
    fields = {"option": change.option, "seen": build_policy_version(history[:1]), "why": take_back(why)}
    if former is not None:
        value = group_decision.format_option_value(former["is"])
        return UndoForm(f"Put {value[:60]} back", _build_policy_address(name), {**fields, "value": value})
    if change.unset:
        # It was not set before either.
        return None
    return UndoForm("Put the former one back", _build_policy_address(name), {**fields, "unset": "1"})


def build_policy_version(history: Sequence[Mapping[str, Any]]) -> str:
    """Return the version of a policy that a user saw: its last change."""
    return f"{history[0]['at']} {history[0]['by']} {history[0]['why']}" if history else ""


def _is_same_change(last: Mapping[str, Any], change: OptionChange, said: str, by: str) -> bool:
    """Return whether the last change is the requested one: the form was sent twice."""
    done = change.option in (last["unset"] if change.unset else last["set"])
    return done and (last["why"], last["by"]) == (said, by)


def _read_history(request: Request) -> Sequence[Mapping[str, Any]]:
    desk = console.get_console(request).desk
    return commands.read_policy_history(desk.settings, desk.routes, request.path_params["name"])


def _build_policy_address(name: str) -> str:
    return f"/handlers/{quote(name, safe='')}/policy"


def _render_policy_form(
    request: Request, status: int, refused: str = "", told: Sequence[str] = (), trial: PolicyTrial | None = None
) -> Response:
    asked, name = console.get_console(request), request.path_params["name"]
    desk = asked.desk
    found, history = commands.read_policy(desk.app, desk.settings, desk.routes, name)
    return asked.page(
        request,
        "policy.html",
        status,
        name=name,
        found=found,
        word=group_decision.format_option_value,
        words=group_decision.format_options,
        history=history,
        seen=build_policy_version(history),
        quicker=history[0] if status == 409 and history else None,
        refused=refused,
        told=told,
        editing=console.get_typed_values(request).get("option", "") or request.query_params.get("option", ""),
        trial=trial,
        trial_days=TRIAL_DAYS,
        most_tried=MAX_TRIED_LETTERS,
        describe_trial=describe_trial,
    )
