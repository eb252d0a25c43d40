"""What is known of the group now, for pages that show how it stands."""

import hashlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from bridge.deadletters.plan.plan import Plan
from bridge.deadletters.questions.totals import Counted
from bridge.errors import DeskUnavailable
from bridge.web import rows, strips
from bridge.web.console import Console
from bridge.web.live import Snapshot
from bridge.web.looking import Standing, about
from bridge.web.told import Told, told

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
    stats: Counted | None
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
    def hours(self) -> Sequence[int] | None:
        """Dead letters by the hour of the last day."""
        return None if self.stats is None else self.stats.hours

    @property
    def act(self) -> str:
        """What is listed: with another one, a page that is open has rows of the past."""
        problems = [each.about for each in self.problems]
        listed = [problems, sorted(map(about, self.silent)), [plan.id for plan in self.in_hand]]
        halted = sorted(row.name for row in self.topics if row.halted)
        return digest(repr([*listed, halted, self.standing is None, sorted(row.name for row in self.topics)]))


def look(asked: Console, *, counts: bool = False) -> Look:
    """What is known now; what cannot be asked leaves the rest as it is.

    Parameters:
        counts: whether it is counted how far plans are that are applied.
    """
    standing = asked.looking.latest()
    status: Mapping[str, Any] = {} if standing is None else standing.status
    silent: dict[str, int] = {} if standing is None else standing.silent
    stats = _from_desk(asked.desk.totals.counted, silent, standing, asked.clock())
    in_hand = _from_desk(lambda: asked.desk.plans.applying(counts=counts), silent, standing, asked.clock())
    letters = None if stats is None else _by_handler(stats)
    return Look(
        standing,
        status,
        silent,
        [told(values) for values in _others_than(silent, status.get("problem_values", ()))],
        in_hand or [],
        stats,
        rows.topics(asked.desk.routes, status, letters),
        _others(asked.desk.routes.handlers, letters),
    )


def live_look(asked: Console) -> Look:
    """The same for live parts: of all pages that are open one asks, and the others have what it has found."""
    standing = asked.looking.latest()
    found: Look = asked.shared.found(lambda: look(asked), lambda found: found.standing is standing)
    return found


def place(page: str, *named: str) -> str:
    """The id of a number's place in a page: names are others' words.

    Parameters:
        page: in a letter: "o" is the overview, "t" a topic, "h" a handler.
    """
    return f"{page}-{digest(repr(named))}"


def snapshot(
    here: Console,
    found: Look,
    page: str,
    act: str,
    status: Mapping[str, Any],
    parts: Mapping[str, Any],
    hours: Sequence[int] | None = None,
) -> Snapshot:
    """What of a page changes, with the pictures of the last hour and day.

    Parameters:
        status: of what the pictures are.
        hours: dead letters by the hour, where they are the desk's.
    """
    made, pictures = here.macros("overview-live.html"), {}
    if (hour := strips.hour(status, here.clock())) is not None:
        pictures[f"{page}-hour"] = made.picture(hour, "last minute", True)
    if (day := strips.day(status, hours, here.clock())) is not None:
        pictures[f"{page}-day"] = made.picture(day, "sum", False)
    whole = {where: str(html).strip() for where, html in {**parts, **pictures}.items()}
    return Snapshot(act, False, whole, None if found.standing is None else found.standing.read)


def digest(text: str) -> str:
    """A short word for a text that others have written."""
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


def _others_than(silent: Iterable[str], problems: Iterable[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    said = {about(sentence) for sentence in silent}
    return [values for values in problems if about(values["sentence"]) not in said]


def _by_handler(stats: Counted) -> dict[str, dict[str, int]]:
    found: dict[str, dict[str, int]] = {}
    for each in stats.handled:
        statuses = found.setdefault(each.handler, {})
        for status, count in each.statuses.items():
            statuses[status] = statuses.get(status, 0) + count
    return found


def _others(known: Mapping[str, Any], letters: Mapping[str, Mapping[str, int]] | None) -> dict[str, int]:
    """Open letters of handlers that are not of this app, and of other programs."""
    there = {name: each.get("open", 0) for name, each in (letters or {}).items() if name not in known}
    return {name: count for name, count in sorted(there.items()) if count}
