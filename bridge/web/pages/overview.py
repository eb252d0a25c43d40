"""Overview: what needs a person, how each topic and handler stands, and who is alive."""

import hashlib
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeVar

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from bridge.deadletters.plan.plan import Plan, State
from bridge.deadletters.questions.totals import Stats
from bridge.errors import DeskUnavailable
from bridge.web import beginning, console, rows, showing
from bridge.web.console import Console
from bridge.web.live import Snapshot
from bridge.web.looking import Standing, about
from bridge.web.told import Told, told

#: Topics up to which all are listed; of more, those with a problem.
ALL: Final = 30
#: Plans of which those that are applied are looked for, the latest.
PLANS: Final = 50

#: What of a problem's sentence changes while it stays the same problem.
_NUMBERS: Final = re.compile(r"\d[\d,.:]*")

Found = TypeVar("Found")


@dataclass(frozen=True)
class Look:
    """What is known of the group now.

    Attributes:
        silent: what does not answer, a sentence each, and since when.
        in_hand: plans that are applied.
        topics: all of them, the worst first.
    """

    standing: Standing | None
    status: Mapping[str, Any]
    silent: Mapping[str, int]
    problems: Sequence[Told]
    in_hand: Sequence[Plan]
    stats: Stats | None
    topics: Sequence[rows.TopicRow]
    others: Mapping[str, int]

    @property
    def heading(self) -> str:
        """The answer."""
        if self.standing is None and not self.silent:
            return "Still asking how the group stands"
        if not (count := len(self.problems) + len(self.silent)):
            return "Nothing needs a person"
        return f"{count} problem{' needs' if count == 1 else 's need'} a person"

    @property
    def act(self) -> str:
        """What is listed: with another one, a page that is open has rows of the past."""
        problems = [(_NUMBERS.sub("", each.what), each.links) for each in self.problems]
        listed = [problems, sorted(map(about, self.silent)), [plan.id for plan in self.in_hand]]
        halted = sorted(row.name for row in self.topics if row.halted)
        return _digest(repr([*listed, halted, self.standing is None, sorted(row.name for row in self.topics)]))


def shown(request: Request) -> Response:
    """The overview; what cannot be asked leaves the rest as it is."""
    asked = console.of(request)
    look = _look(asked)
    listed = look.topics
    if len(listed) > ALL and request.query_params.get("show") != "all":
        listed = _worse(listed)
    is_well = look.stats is not None and not look.problems and not look.silent
    return asked.page(
        request,
        "overview.html",
        look=look,
        checks=beginning.checks(asked.desk, look.status, look.stats) if is_well and look.stats else [],
        topics=listed,
        well=len(look.topics) - len(listed),
        waits=rows.waits(look.status),
        queues=rows.queues(look.status),
        others=look.others,
        proofs=asked.proofs.all(),
        place=place,
    )


def live(here: Console, rest: str) -> Callable[[], Snapshot]:
    """Makes what of the overview changes: the heading, and numbers and states of topics and handlers; no row.

    Raises:
        HTTPException: there is one overview, and it has no other name.
    """
    if rest:
        raise HTTPException(404)
    return lambda: _snapshot(here, _look(here))


def place(topic: str, handler: str, column: str) -> str:
    """The id of a number's place in the page: names are others' words."""
    return f"o-{_digest(repr((topic, handler, column)))}"


def _snapshot(here: Console, look: Look) -> Snapshot:
    made = here.macros("overview-live.html")
    parts = {"o-heading": look.heading}
    if look.standing is not None:
        parts["o-asked"] = showing.clock(look.standing.at, here.clock())
    for topic in look.topics:
        parts[place(topic.name, "", "lag")] = made.known(topic.lag)
        parts[place(topic.name, "", "state")] = made.state(topic.state)
        for wait in rows.waits(look.status):
            parts[place(topic.name, "", f"parked {wait}")] = made.known(topic.parked.get(wait, 0))
        for handler in topic.handlers:
            parts[place(topic.name, handler.name, "in flight")] = made.known(handler.in_flight)
            parts[place(topic.name, handler.name, "oldest")] = made.oldest(handler)
            parts[place(topic.name, handler.name, "dead")] = made.dead(handler)
            parts[place(topic.name, handler.name, "state")] = made.state(handler.state)
    return Snapshot(look.act, False, {name: str(html).strip() for name, html in parts.items()})


def _look(asked: Console) -> Look:
    standing = asked.looking.latest()
    status: Mapping[str, Any] = {} if standing is None else standing.status
    silent: dict[str, int] = {} if standing is None else standing.silent
    stats = _from_desk(asked.desk.totals.stats, silent, standing, asked.clock())
    in_hand = _from_desk(lambda: _applied(asked.desk.plans.latest(PLANS)), silent, standing, asked.clock())
    letters = None if stats is None else _by_handler(stats)
    return Look(
        standing,
        status,
        silent,
        [told(sentence) for sentence in _others_than(silent, status.get("problems", ()))],
        in_hand or [],
        stats,
        rows.topics(asked.desk.routes, status, letters),
        _others(asked.desk.routes.handlers, letters),
    )


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "backslashreplace")).hexdigest()[:16]


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


def _worse(topics: Sequence[rows.TopicRow]) -> list[rows.TopicRow]:
    return [row for row in topics if row.state != rows.RUNS or any(each.state != rows.RUNS for each in row.handlers)]


def _others(known: Mapping[str, Any], letters: Mapping[str, Mapping[str, int]] | None) -> dict[str, int]:
    """Open letters of handlers that are not of this app, and of other programs."""
    there = {name: each.get("open", 0) for name, each in (letters or {}).items() if name not in known}
    return {name: count for name, count in sorted(there.items()) if count}
