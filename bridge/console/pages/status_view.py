"""The status of the group as pages show it: problems, plans, topics, and live parts."""

import hashlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from bridge.console.console import Console
from bridge.console.live_snapshot import LiveSnapshot
from bridge.console.pages import charts, status_rows
from bridge.console.pages.problem_links import ShownProblem, show_problem
from bridge.console.status_cache import GroupStatus, get_problem_subject
from bridge.deadletters.inspection.letter_statistics import LetterCounts
from bridge.deadletters.model.bulk_plan import BulkPlan
from bridge.errors import DeskUnavailable

Found = TypeVar("Found")


@dataclass(frozen=True)
class StatusView:
    """What is known of the group now.

    Attributes:
        silent: what does not answer, a sentence each, and since when.
        in_hand: plans that are applied.
        topics: all of them, the worst first.
    """

    standing: GroupStatus | None
    status: Mapping[str, Any]
    silent: Mapping[str, int]
    problems: Sequence[ShownProblem]
    in_hand: Sequence[BulkPlan]
    stats: LetterCounts | None
    topics: Sequence[status_rows.TopicRow]
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
        listed = [problems, sorted(map(get_problem_subject, self.silent)), [plan.id for plan in self.in_hand]]
        halted = sorted(row.name for row in self.topics if row.halted)
        return digest_text(repr([*listed, halted, self.standing is None, sorted(row.name for row in self.topics)]))


def build_status_view(asked: Console, *, counts: bool = False) -> StatusView:
    """What is known now; what cannot be asked leaves the rest as it is.

    Parameters:
        counts: whether it is counted how far plans are that are applied.
    """
    standing = asked.looking.latest()
    status: Mapping[str, Any] = {} if standing is None else standing.status
    silent: dict[str, int] = {} if standing is None else standing.silent
    stats = _ask_store(asked.desk.totals.counted, silent, standing, asked.clock())
    in_hand = _ask_store(lambda: asked.desk.plans.applying(counts=counts), silent, standing, asked.clock())
    letters = None if stats is None else _count_by_handler(stats)
    return StatusView(
        standing,
        status,
        silent,
        [show_problem(values) for values in _drop_unavailable(silent, status.get("problem_values", ()))],
        in_hand or [],
        stats,
        status_rows.build_topic_rows(asked.desk.routes, status, letters),
        _count_foreign_letters(asked.desk.routes.handlers, letters),
    )


def get_live_view(asked: Console) -> StatusView:
    """The same for live parts: of all pages that are open one asks, and the others have what it has found."""
    standing = asked.looking.latest()
    found: StatusView = asked.shared.found(lambda: build_status_view(asked), lambda found: found.standing is standing)
    return found


def build_place_id(page: str, *named: str) -> str:
    """The id of a number's place in a page: names are others' words.

    Parameters:
        page: in a letter: "o" is the overview, "t" a topic, "h" a handler.
    """
    return f"{page}-{digest_text(repr(named))}"


def build_snapshot(
    here: Console,
    found: StatusView,
    page: str,
    act: str,
    status: Mapping[str, Any],
    parts: Mapping[str, Any],
    hours: Sequence[int] | None = None,
) -> LiveSnapshot:
    """What of a page changes, with the pictures of the last hour and day.

    Parameters:
        status: of what the pictures are.
        hours: dead letters by the hour, where they are the desk's.
    """
    made, pictures = here.macros("overview-live.html"), {}
    if (hour := charts.build_hour_chart(status, here.clock())) is not None:
        pictures[f"{page}-hour"] = made.picture(hour, "last minute", True)
    if (day := charts.build_day_chart(status, hours, here.clock())) is not None:
        pictures[f"{page}-day"] = made.picture(day, "sum", False)
    whole = {where: str(html).strip() for where, html in {**parts, **pictures}.items()}
    return LiveSnapshot(act, False, whole, None if found.standing is None else found.standing.read)


def digest_text(text: str) -> str:
    """A short word for a text that others have written."""
    return hashlib.sha256(text.encode("utf-8", "backslashreplace")).hexdigest()[:16]


def _ask_store(
    question: Callable[[], Found], silent: dict[str, int], standing: GroupStatus | None, now: int
) -> Found | None:
    """What the database answers; or why it does not, as one of what is silent."""
    try:
        return question()
    except DeskUnavailable as error:
        if get_problem_subject(str(error)) not in map(get_problem_subject, silent):
            silent[str(error)] = now if standing is None else standing.since(str(error))
        return None


def _drop_unavailable(silent: Iterable[str], problems: Iterable[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    said = {get_problem_subject(sentence) for sentence in silent}
    return [values for values in problems if get_problem_subject(values["sentence"]) not in said]


def _count_by_handler(stats: LetterCounts) -> dict[str, dict[str, int]]:
    found: dict[str, dict[str, int]] = {}
    for each in stats.handled:
        statuses = found.setdefault(each.handler, {})
        for status, count in each.statuses.items():
            statuses[status] = statuses.get(status, 0) + count
    return found


def _count_foreign_letters(known: Mapping[str, Any], letters: Mapping[str, Mapping[str, int]] | None) -> dict[str, int]:
    """Open letters of handlers that are not of this app, and of other programs."""
    there = {name: each.get("open", 0) for name, each in (letters or {}).items() if name not in known}
    return {name: count for name, count in sorted(there.items()) if count}
