"""Overview: what needs a person, how each topic and handler stands, and who is alive."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final, TypeVar

from starlette.requests import Request
from starlette.responses import Response

from bridge.deadletters.plan.plan import Plan, State
from bridge.deadletters.questions.totals import Stats
from bridge.errors import DeskUnavailable
from bridge.web import beginning, console, rows
from bridge.web.looking import Standing, about
from bridge.web.told import Told, told

#: Topics up to which all are listed; of more, those with a problem.
ALL: Final = 30
#: Plans of which those that are applied are looked for, the latest.
PLANS: Final = 50

Found = TypeVar("Found")


def shown(request: Request) -> Response:
    """The overview; what cannot be asked leaves the rest as it is."""
    asked = console.of(request)
    standing = asked.looking.latest()
    status: Mapping[str, Any] = {} if standing is None else standing.status
    silent: dict[str, int] = {} if standing is None else standing.silent
    stats = _from_desk(asked.desk.totals.stats, silent, standing, asked.clock())
    in_hand = _from_desk(lambda: _applied(asked.desk.plans.latest(PLANS)), silent, standing, asked.clock())
    problems = [told(sentence) for sentence in _others_than(silent, status.get("problems", ()))]
    letters = None if stats is None else _by_handler(stats)
    topics = rows.topics(asked.desk.routes, status, letters)
    listed = topics if len(topics) <= ALL or request.query_params.get("show") == "all" else _worse(topics)
    return asked.page(
        request,
        "overview.html",
        heading=_heading(standing, problems, silent),
        standing=standing,
        problems=problems,
        checks=[] if stats is None or problems or silent else beginning.checks(asked.desk, status, stats),
        silent=silent,
        in_hand=in_hand or [],
        group=status,
        stats=stats,
        topics=listed,
        well=len(topics) - len(listed),
        waits=rows.waits(status),
        queues=rows.queues(status),
        others=_others(asked.desk.routes.handlers, letters),
        proofs=asked.proofs.all(),
    )


def _heading(standing: Standing | None, problems: Sequence[Told], silent: Mapping[str, int]) -> str:
    if standing is None and not silent:
        return "Still asking how the group stands"
    if not (count := len(problems) + len(silent)):
        return "Nothing needs a person"
    return f"{count} problem{' needs' if count == 1 else 's need'} a person"


def _from_desk(
    question: Callable[[], Found], silent: dict[str, int], standing: Standing | None, now: int
) -> Found | None:
    """What the database answers; or why it does not, as one of what is silent."""
    try:
        return question()
    except DeskUnavailable as error:
        if about(str(error)) not in map(about, silent):
            silent[str(error)] = now if standing is None else standing.since(str(error))
        return None


def _others_than(silent: Iterable[str], problems: Iterable[str]) -> list[str]:
    said = {about(sentence) for sentence in silent}
    return [sentence for sentence in problems if about(sentence) not in said]


def _by_handler(stats: Stats) -> dict[str, dict[str, int]]:
    found: dict[str, dict[str, int]] = {}
    for each in stats.handled:
        statuses = found.setdefault(each.handler, {})
        for status, count in each.statuses.items():
            statuses[status] = statuses.get(status, 0) + count
    return found


def _applied(plans: list[Plan]) -> list[Plan]:
    return [plan for plan in plans if plan.state is State.APPLYING]


def _worse(topics: list[rows.TopicRow]) -> list[rows.TopicRow]:
    return [row for row in topics if row.state != rows.RUNS or any(each.state != rows.RUNS for each in row.handlers)]


def _others(known: Mapping[str, Any], letters: Mapping[str, Mapping[str, int]] | None) -> dict[str, int]:
    """Open letters of handlers that are not of this app, and of other programs."""
    there = {name: each.get("open", 0) for name, each in (letters or {}).items() if name not in known}
    return {name: count for name, count in sorted(there.items()) if count}
