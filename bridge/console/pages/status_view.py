"""The status of the group as pages show it: problems with links to their remedies, plans, topics, and live parts."""

import hashlib
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final, NamedTuple, TypeVar
from urllib.parse import quote, urlencode

from bridge.console.auth import permissions as may
from bridge.console.console import Console
from bridge.console.live_snapshot import LiveSnapshot
from bridge.console.pages import status_rows
from bridge.console.pages.page_charts import PageCharts
from bridge.console.status_cache import GroupStatus, get_problem_subject
from bridge.deadletters.accounts.user_account import Role
from bridge.deadletters.inspection.letter_statistics import LetterCounts
from bridge.deadletters.model.bulk_plan import BulkPlan
from bridge.errors import DeskUnavailable
from bridge.inspection.status_report import find_server
from bridge.problems.bridge_problem_rows import SERVER_UNAVAILABLE
from bridge.problems.problem_causes import ProblemCause, group_by_cause

#: For each kind of problem, the words and the address of the page with the remedy, and the role that may open it.
_PAGES: Final = {
    "halted": ("Resume {topic}…", "/topics/{topic}/resume", may.RESUME_TOPIC),
    "held": ("Resume {handler}…", "/topics/{topic}/resume", may.RESUME_TOPIC),
    "dying": ("Halt {topic}…", "/topics/{topic}/halt", may.HALT_TOPIC),
    "policy": ("Policy of {handler}…", "/handlers/{handler}/policy", may.VIEW),
}


class ProblemLink(NamedTuple):
    """A link to a page.

    Attributes:
        role: the lowest role that may open the page: no other is shown the link.
    """

    words: str
    address: str
    role: Role = may.VIEW

    def shorten(self, named: Collection[str]) -> str:
        """Return the words without a topic's or a handler's name that its line names already."""
        kind, _, name = self.words.partition(" ")
        return kind if kind in ("Topic", "Handler") and name in named else self.words


class ShownProblem(NamedTuple):
    """A problem that follows from another one, on a page."""

    what: str
    sentence: str
    links: tuple[ProblemLink, ...]


class ShownCause(NamedTuple):
    """A cause on a page, listed once with all that follows from it; its numbers are those of its own problems.

    Attributes:
        sentence: empty: the cause is several problems, which are all in `effects`.
        since: ms since the epoch; `None`: not known.
        links: the pages with a remedy, those of what follows behind its own.
        named: the topic and the handler that it names.
        topics, handlers: what it or its effects are about.
        about: the identity of all of them while their numbers change.
    """

    what: str
    sentence: str
    since: int | None
    many: int | None
    of: str
    lost: int | None
    do: str
    links: tuple[ProblemLink, ...]
    effects: tuple[ShownProblem, ...]
    named: frozenset[str]
    topics: frozenset[str]
    handlers: frozenset[str]
    about: tuple[Any, ...]


#: The links of a cause that a page shows; the others are with what follows from it.
MAX_LINKS: Final = 4


def show_cause(cause: ProblemCause) -> ShownCause:
    """Return a cause with its links."""
    head, several = cause.head, len(cause.peers) > 1
    effects = cause.members if several else cause.effects
    links = dict.fromkeys(link for values in cause.members for link in list_problem_links(values))
    return ShownCause(
        cause.what,
        "" if several else head["sentence"],
        None if cause.since is None else int(datetime.fromisoformat(cause.since).timestamp() * 1000),
        cause.many,
        head["of"],
        cause.lost,
        head["do"],
        tuple(links)[:MAX_LINKS],
        tuple(ShownProblem(each["what"], each["sentence"], tuple(list_problem_links(each))) for each in effects),
        frozenset(name for name in (head["topic"], head["handler"]) if name and name in cause.what),
        frozenset(filter(None, (each["topic"] for each in cause.members))),
        frozenset(name for each in cause.members for name in (each["handler"], *each["handlers"]) if name),
        tuple(tuple(each[name] for name in _IDENTITY) for each in cause.members),
    )


_IDENTITY: Final = ("kind", "topic", "handler", "group", "queue", "dependency")


def list_problem_links(values: Mapping[str, Any]) -> Iterator[ProblemLink]:
    """Yield the links of a problem in `bridge status --json`: first to its remedy."""
    kind, topic, handler = values["kind"], values["topic"], values["handler"]
    if page := _PAGES.get(kind):
        words, address, role = page
        quoted = {name: quote(values[name] or "", safe="") for name in ("topic", "handler")}
        yield ProblemLink(words.format(**values), address.format(**quoted), role)
    if kind in ("lost", "log") and topic:
        yield ProblemLink("Audit", f"/audit?{urlencode({'topic': topic})}")
    if kind == "unknown ends":
        yield ProblemLink("Letters without an outcome", "/letters?status=replaying")
    if kind == "approval":
        yield ProblemLink("Plans", "/plans")
    if kind == "grows" and values["group"] is not None:
        yield ProblemLink(f"Group {values['group']}", f"/groups/{values['group']}")
    elif kind == "grows":
        yield ProblemLink("Groups", f"/groups?{urlencode({'handler': handler})}" if handler else "/groups")
    if topic and kind != "topic":
        yield ProblemLink(f"Topic {topic}", f"/topics/{quote(topic, safe='')}")
    if handler and kind not in ("policy", "dead", "grows"):
        yield ProblemLink(f"Handler {handler}", f"/handlers/{quote(handler, safe='')}")
    if kind == "dead" and handler:
        yield ProblemLink("Open letters", f"/letters?{urlencode({'handler': handler, 'status': 'open'})}")


Found = TypeVar("Found")


@dataclass(frozen=True)
class StatusView:
    """The state of the group as pages show it.

    Attributes:
        silent: a sentence for each unavailable server, and since when.
        causes: the problems, each cause once, without those of `silent`.
        consequences: by the sentence of an unavailable server, what follows from that.
        running_plans: the running plans.
        topics: all topics, the worst first.
    """

    group_status: GroupStatus | None
    status: Mapping[str, Any]
    silent: Mapping[str, int]
    causes: Sequence[ShownCause]
    consequences: Mapping[str, Sequence[ShownProblem]]
    running_plans: Sequence[BulkPlan]
    stats: LetterCounts | None
    topics: Sequence[status_rows.TopicRow]
    others: Mapping[str, int]

    @property
    def heading(self) -> str:
        """Return the heading of the overview."""
        if self.group_status is None and not self.silent:
            return "Waiting for the status of the group"
        if not (count := len(self.causes) + len(self.silent)):
            return "Nothing needs a person"
        return f"{count} problem{' needs' if count == 1 else 's need'} a person"

    @property
    def hours(self) -> Sequence[int] | None:
        """Return the dead letters of each hour of the last day."""
        return None if self.stats is None else self.stats.hours

    @property
    def act(self) -> str:
        """Return the version of the listed rows: if it changes, the rows of an open page are outdated."""
        causes = [each.about for each in self.causes]
        listed = [causes, sorted(map(get_problem_subject, self.silent)), [plan.id for plan in self.running_plans]]
        halted = sorted(row.name for row in self.topics if row.halted)
        return digest_text(repr([*listed, halted, self.group_status is None, sorted(row.name for row in self.topics)]))


def build_status_view(asked: Console, *, counts: bool = False) -> StatusView:
    """Return the current state; an unavailable server leaves the rest of it as it is.

    Parameters:
        counts: whether to count the progress of running plans.
    """
    group_status = asked.status_cache.read()
    status: Mapping[str, Any] = {} if group_status is None else group_status.status
    silent: dict[str, int] = {} if group_status is None else group_status.silent
    stats = _ask_store(asked.desk.totals.counted, silent, group_status, asked.clock())
    running_plans = _ask_store(lambda: asked.desk.plans.applying(counts=counts), silent, group_status, asked.clock())
    letters = None if stats is None else _count_by_handler(stats)
    causes = group_by_cause(status.get("problem_values", ()), asked.desk.routes)
    return StatusView(
        group_status,
        status,
        silent,
        [show_cause(cause) for cause in causes if _find_silent(silent, cause) is None],
        {
            sentence: show_cause(cause).effects
            for cause in causes
            if cause.effects and (sentence := _find_silent(silent, cause)) is not None
        },
        running_plans or [],
        stats,
        status_rows.build_topic_rows(asked.desk.routes, status, letters),
        _count_foreign_letters(asked.desk.routes.handlers, letters),
    )


def get_live_view(asked: Console) -> StatusView:
    """Return the current state for live parts: all open pages share one reading."""
    group_status = asked.status_cache.read()
    found: StatusView = asked.live_view.find_recent(
        lambda: build_status_view(asked), lambda found: found.group_status is group_status
    )
    return found


def build_place_id(page: str, *named: str) -> str:
    """Return the id of a page element for a foreign name.

    Parameters:
        page: a letter: "o" for the overview, "t" for a topic, "h" for a handler.
    """
    return f"{page}-{digest_text(repr(named))}"


def build_snapshot(
    here: Console,
    found: StatusView,
    page: str,
    act: str,
    parts: Mapping[str, Any],
    shown: PageCharts,
) -> LiveSnapshot:
    """Return a snapshot of a page, with its charts."""
    made, chart_html, table = here.macros("chart-macros.html"), {}, shown.options.table
    if shown.minutes is not None:
        chart_html[f"{page}-hour"] = made.strips(shown.minutes, True, table)
    if shown.hours is not None:
        chart_html[f"{page}-day"] = made.strips(shown.hours, False, table)
    if shown.durations is not None:
        chart_html[f"{page}-took"] = made.durations(shown, table)
    whole = {where: str(html).strip() for where, html in {**parts, **chart_html}.items()}
    return LiveSnapshot(act, False, whole, None if found.group_status is None else found.group_status.read)


def digest_text(text: str) -> str:
    """Return a short digest of a foreign text."""
    return hashlib.sha256(text.encode("utf-8", "backslashreplace")).hexdigest()[:16]


def _ask_store(
    question: Callable[[], Found], silent: dict[str, int], group_status: GroupStatus | None, now: int
) -> Found | None:
    """Return the answer of the database, or the error as an entry of `silent`."""
    try:
        return question()
    except DeskUnavailable as error:
        if get_problem_subject(str(error)) not in map(get_problem_subject, silent):
            silent[str(error)] = now if group_status is None else group_status.since(str(error))
        return None


def _find_silent(silent: Iterable[str], cause: ProblemCause) -> str | None:
    """Return the sentence of the unavailable server that is the cause; `None` if it is none."""
    # A bridge may add to the problem's sentence since when the server is unavailable.
    subjects = {get_problem_subject(cause.head["sentence"])}
    if cause.head["id"] == SERVER_UNAVAILABLE.identifier:
        subjects.add(cause.head["what"])
    return next((each for each in silent if subjects & {get_problem_subject(each), find_server(each)}), None)


def _count_by_handler(stats: LetterCounts) -> dict[str, dict[str, int]]:
    found: dict[str, dict[str, int]] = {}
    for each in stats.handled:
        statuses = found.setdefault(each.handler, {})
        for status, count in each.statuses.items():
            statuses[status] = statuses.get(status, 0) + count
    return found


def _count_foreign_letters(known: Mapping[str, Any], letters: Mapping[str, Mapping[str, int]] | None) -> dict[str, int]:
    """Return the open letters of handlers outside this app and of other programs, most letters first."""
    there = {name: each.get("open", 0) for name, each in (letters or {}).items() if name not in known}
    most = sorted(there.items(), key=lambda item: (-item[1], item[0]))
    return {name: count for name, count in most if count}
