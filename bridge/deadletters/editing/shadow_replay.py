"""A shadow replay: letters run through the handlers of the code that is installed here, without effects, and their
outcomes are counted.
"""

import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, Final, NamedTuple

from celery import Celery

from bridge.deadletters.db import letter_payload, plan_item_rows
from bridge.deadletters.db.database import Database
from bridge.deadletters.editing.handler_check import EXAMPLES, MOST, ReasonCounts
from bridge.deadletters.editing.handler_sandbox import HandlerSandbox, SandboxRun
from bridge.deadletters.editing.shadow_surroundings import ShadowSurroundings
from bridge.deadletters.editing.system_call_filter import is_sealed_by_kernel
from bridge.deadletters.inspection.letter_lookup import LetterLookup
from bridge.deadletters.inspection.topic_letters import fetch_letter_value
from bridge.deadletters.model.failure_group import FailureGroup, compute_cause_fingerprint, find_failure_group
from bridge.deadletters.model.letter_filter import LetterFilter
from bridge.deadletters.model.letter_view import LetterView
from bridge.errors import FilterFault, KafkaUnavailable
from bridge.formats.text_forms import format_count
from bridge.settings import Settings

#: The most letters of a shadow, the seconds for all of them, and for one.
LETTERS: Final = 500
SECONDS: Final = 300.0
LETTER_SECONDS: Final = 5.0
#: The failure of a process that died: a worker's would have died too.
DEATH: Final = "process death"


@dataclass
class ShadowFailure:
    """Letters that would fail in one way.

    Attributes:
        group: the failure group that they would be of.
        cause: the fingerprint of the cause; empty: there is no exception.
        message: of one of them.
        same: how many have failed in the same group before.
        letters: ids of some.
    """

    group: FailureGroup
    cause: str
    message: str
    count: int = 0
    same: int = 0
    letters: list[int] = field(default_factory=list)

    def to_data(self) -> dict[str, Any]:
        """Return it as JSON-compatible data."""
        handler, error_class, where = self.group
        return {
            "handler": handler,
            "error_class": error_class,
            "where": where,
            "cause": self.cause,
            "message": self.message,
            "count": self.count,
            "same": self.same,
            "letters": self.letters,
        }


@dataclass
class ShadowResult:
    """The outcome that each of some letters would have.

    Attributes:
        matched: letters that the shadow was to judge; the newest of them were.
        passed: letters that their handler would handle.
        unknown: letters that could not be judged, by the reason.
        published, tasks: what the handlers of those that pass would send, by topic and by task.
        copied: SQLite files of which handlers had a copy.
        held: databases in which the changes of handlers were rolled back.
        reached: services that handlers have reached.
        versions: of the code, by handler.
        cut_after: the seconds after which the rest of the letters was left out; `None`: none was.
        is_sealed: whether the kernel refuses what C libraries do.
    """

    matched: str = "0"
    passed: int = 0
    unknown: ReasonCounts = field(default_factory=ReasonCounts)
    published: Counter[str] = field(default_factory=Counter)
    tasks: Counter[str] = field(default_factory=Counter)
    copied: list[str] = field(default_factory=list)
    held: list[str] = field(default_factory=list)
    reached: list[str] = field(default_factory=list)
    versions: dict[str, str] = field(default_factory=dict)
    seconds: float = 0.0
    cut_after: float | None = None
    is_sealed: bool = field(default_factory=is_sealed_by_kernel)
    _failures: dict[str, ShadowFailure] = field(default_factory=dict)

    @property
    def failures(self) -> list[ShadowFailure]:
        """Return the ways in which letters would fail, the most frequent first."""
        return sorted(self._failures.values(), key=lambda each: -each.count)

    @property
    def failed(self) -> int:
        """Return the number of letters that would fail."""
        return sum(each.count for each in self._failures.values())

    @property
    def letters(self) -> int:
        """Return the number of letters that the shadow has run."""
        return self.passed + self.failed + self.unknown.count

    @property
    def summary(self) -> str:
        """Return the result in a line, without anything that letters contain."""
        said = f"{self.passed:,} of {format_count(self.letters, 'letter')} would pass"
        ways = [f"{each.count:,} {each.group.error_class} at {each.group.place or '?'}" for each in self.failures[:5]]
        said += f", {self.failed:,} would fail ({'; '.join(ways)})" if self.failed else ", none would fail"
        return said + (f", {self.unknown.count:,} could not be judged" if self.unknown.count else "")

    def add_failure(self, letter: LetterView, group: FailureGroup, cause: str, message: str) -> None:
        """Count a letter that would fail."""
        key = cause or f"{group.digest.hex()} {message}"
        if key not in self._failures and len(self._failures) >= MOST:
            # Memory is bounded, whatever a handler raises.
            key, group, cause, message = "", FailureGroup(group.handler, "other failures", ""), "", ""
        found = self._failures.setdefault(key, ShadowFailure(group, cause, message))
        it = letter.listed
        found.count += 1
        found.same += (it.error_class, it.place) == group[1:]
        if len(found.letters) < EXAMPLES:
            found.letters.append(it.id)

    def to_data(self) -> dict[str, Any]:
        """Return the result as JSON-compatible data."""
        return {
            "matched": self.matched,
            "letters": self.letters,
            "passed": self.passed,
            "failed": self.failed,
            "unknown": self.unknown.count,
            "failures": [each.to_data() for each in self.failures],
            "unknown_reasons": self.unknown.to_data(),
            "published": dict(self.published),
            "tasks": dict(self.tasks),
            "copied": self.copied,
            "rolled_back": self.held,
            "reached": self.reached,
            "versions": self.versions,
            "seconds": round(self.seconds, 1),
            "sealed_by_kernel": self.is_sealed,
            "limits": list(self.list_limits()),
        }

    def list_limits(self) -> Iterator[str]:
        """Yield a sentence for each thing that the shadow could not make harmless, or does not see."""
        if self.cut_after is not None:
            yield f"It ended after {self.cut_after:g} s: the letters that were left out are not judged (--seconds)."
        if self.copied:
            yield (
                f"Handlers had a copy of each SQLite file ({', '.join(self.copied)}) as it was when the shadow began, "
                "and none of what the letters before have written."
            )
        if self.held:
            yield (
                f"In {', '.join(self.held)} nothing was committed. Sequences went on, rows were locked while a letter "
                "ran, deferred constraints were not checked, and dblink or an extension may have acted by itself."
            )
        if self.reached:
            yield f"Handlers reached {', '.join(self.reached)}: their requests were not taken back (--allow-host)."
        if not self.is_sealed:
            yield (
                "This system's kernel refuses nothing: Python alone did, so C libraries of the handlers could connect "
                "or write files."
            )


class ShadowOptions(NamedTuple):
    """The bounds of a shadow.

    Attributes:
        letters: the most letters that run, the newest.
        seconds: the longest time for all of them; the rest is left out.
        letter_seconds: the longest time for one.
        hosts: services that handlers may reach, `pay:443`.
        databases: of PostgreSQL, `db:5432`, whose changes are rolled back.
    """

    letters: int = LETTERS
    seconds: float = SECONDS
    letter_seconds: float = LETTER_SECONDS
    hosts: tuple[str, ...] = ()
    databases: tuple[str, ...] = ()


@dataclass(frozen=True)
class ShadowReplay:
    """The shadow replays of a dead-letter store."""

    app: Celery
    settings: Settings
    database: Database

    def run(self, filter_: LetterFilter, options: ShadowOptions, heard: Callable[[str], None]) -> ShadowResult:
        """Run the open letters of a filter, and return what would become of them.

        Parameters:
            heard: told the result so far.
        """
        lookup, wanted = LetterLookup(self.database), filter_.only_open()
        result = ShadowResult(str(lookup.count(wanted)))
        runner = _ShadowRunner(self.app, options, result)
        begun = time.monotonic()
        for line in islice(lookup.each(wanted), options.letters):
            if time.monotonic() - begun > options.seconds:
                result.cut_after = options.seconds
                break
            runner.run(self._fetch_value(lookup.one(line.id)))
            result.seconds = time.monotonic() - begun
            heard(result.summary)
        around = runner.surroundings
        result.copied, result.held, result.reached = (
            around.copies.copied,
            sorted(around.held.used),
            sorted(around.broker.used),
        )
        return result

    def find_plan_letters(self, plan_id: int) -> LetterFilter:
        """Return the filter of a plan's letters that are not sent yet, the first of them.

        Raises:
            FilterFault: it has none, or it sends edited values, which a shadow of letters does not have.
        """
        with self.database.reading() as connection:
            found = plan_item_rows.read_items(connection, plan_id, 0, LETTERS)
            is_edited = letter_payload.has_edits_after(connection, plan_id, 0)
        ids = [item.letter_id for item in found if item.letter_id and item.place is None]
        if is_edited:
            raise FilterFault(f"Plan {plan_id} sends edited values, and a shadow runs letters as they are.")
        if not ids:
            raise FilterFault(f"Plan {plan_id} has no letters, or there is no such plan: see bridge deadletters plans.")
        return LetterFilter(ids=tuple(ids))

    def _fetch_value(self, letter: LetterView) -> LetterView:
        """Return a letter with its value, read from Kafka if it is too large for the database."""
        try:
            return self.database.payloads.read_letter(fetch_letter_value(self.settings, letter))
        except KafkaUnavailable:
            return letter


class _ShadowRunner:
    """The runs of one shadow, which are counted in its result."""

    def __init__(self, app: Celery, options: ShadowOptions, result: ShadowResult) -> None:
        self._app, self._seconds, self._result = app, options.letter_seconds, result
        self.surroundings = ShadowSurroundings(options.hosts, options.databases)
        self._sandboxes: dict[str, HandlerSandbox] = {}

    def run(self, letter: LetterView) -> None:
        """Run a letter, and count what would become of it."""
        it, unknown = letter.listed, self._result.unknown
        task: Any = self._app.tasks.get(it.handler) if it.handler else None
        if not hasattr(task, "call_alone"):
            why = f"{it.handler} is no handler of this app: see -A, HANDLERS and `imports`"
            unknown.add(why if it.handler else "no handler of this group reads it", it.id)
        elif not letter.kept:
            unknown.add("its value is too large for the database, and Kafka does not give it", it.id)
        else:
            self._result.versions.setdefault(it.handler, task.version)
            if it.handler not in self._sandboxes:
                self._sandboxes[it.handler] = HandlerSandbox(task.call_alone, self._seconds, self.surroundings)
            self._count(letter, self._sandboxes[it.handler].run(letter.to_message()))

    def _count(self, letter: LetterView, run: SandboxRun) -> None:
        it, failure, result = letter.listed, run.failure, self._result
        if why := _find_why_unknown(run):
            result.unknown.add(why, it.id)
        elif run.died:
            result.add_failure(letter, FailureGroup(it.handler, DEATH, ""), "", run.ended_by)
        elif failure is None or failure.error_class == "bridge.errors.AlreadySettled":
            # Work that an earlier run committed is not done again: its delivery is done.
            result.passed += 1
            result.published.update(run.collected.get("published", {}))
            result.tasks.update(run.collected.get("tasks", {}))
        else:
            told = (failure.error_traceback, failure.error_message)
            group = find_failure_group(it.handler, failure.error_class, *told)
            result.add_failure(letter, group, compute_cause_fingerprint(group, *told), failure.error_message)


def _find_why_unknown(run: SandboxRun) -> str:
    """Return why a run says nothing about its letter (pure); empty: it does."""
    if run.refused and run.address:
        return (
            f"it opens a connection to {run.address}. If that is PostgreSQL and psycopg its driver, --allow-database "
            f"{run.address} lets it, and rolls all back; --allow-host {run.address} lets it, and what it sends there "
            "takes effect"
        )
    if run.refused:
        return f"it reaches outside, which a shadow refuses: {run.refused}"
    if run.ended_by and not run.died:
        return run.ended_by
    if run.failure is None:
        return ""
    if run.collected.get("connections", 0) > 1:
        return "it fails with several connections to a database, which do not see each other's work in a shadow"
    if run.lost_connection:
        return (
            f"it fails with an error of a connection or of its transaction ({run.failure.error_class}), which may come "
            "from a service, from a connection that was opened at import, or from the transaction that a shadow holds"
        )
    if run.failure.error_class == "MemoryError":
        return "it needs more memory than a shadow gives it"
    return ""
