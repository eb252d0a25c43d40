"""A changed retry policy of a handler, tried on its dead letters: the simulation is pure.

The handler's Celery task supplies its policy. The simulation assumes that each attempt fails with the error of the last
one. If a letter of the group was replayed with success, a retry after that time counts as a success.
"""

from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from difflib import get_close_matches
from itertools import accumulate, islice
from typing import Any, Final, NamedTuple, Protocol

from celery import Celery

from bridge.deadletters.db import letter_rows
from bridge.deadletters.db.database import Database
from bridge.deadletters.db.letter_rows import FailingLetter
from bridge.deadletters.db.value_search import find_among
from bridge.deadletters.model.letter_filter import ALL_LETTERS, LetterFilter
from bridge.errors import BridgeError, KafkaUnavailable, LedgerUnavailable, PolicyRefused, UnknownHandler
from bridge.formats.group_decision import find_changed_policies, read_option_values
from bridge.formats.text_forms import format_count
from bridge.handler_routes import Routes
from bridge.jobs.group_facts import format_span
from bridge.kafka.retry_placement import TierWaits, usable_tiers
from bridge.ledger import Ledger
from bridge.ledger.decision_store import DecisionMirror, look_up_decisions
from bridge.settings import Settings

#: Seconds to wait for Redis.
ANSWER_WITHIN: Final = 2.0


#: Reasons of deaths that no policy decides on.
NOT_JUDGED: Final = ("undecodable", "poison", "unknown_handler")
#: The ends of a delivery by a policy.
AT_ONCE, RETRIED, HALTED, ENDLESS, ASKED, DONE = (
    *("dead at once", "dead after retries", "the topic halted"),
    *("retried without an end", "as each failure says itself", "given up as done"),
)
_ENDS: Final = {"halt": HALTED, "endless": ENDLESS, "asked": ASKED, "done": DONE}


class PolicyCourse(Protocol):
    """The course of a policy for an error that occurs at every attempt (`tasks.policy.policy_override`)."""

    @property
    def waits(self) -> Sequence[float]:
        """Return seconds until each retry."""

    @property
    def end(self) -> str:
        """Return the reason of its dead letter, "halt", "endless", "asked" or "done"."""

    @property
    def known(self) -> bool:
        """Return whether the error's class is imported here."""


@dataclass(slots=True)
class SimulationResult:
    """The result of a simulation.

    Attributes:
        letters: letters that a policy decides on.
        not_judged: letters that no policy decides on, by reason.
        before: the actual ends of `letters`.
        after: their ends by the policy, if no later attempt succeeds.
        attempts_before, attempts_after: the actual and the simulated runs of the handler.
        evidence: letters whose fault is known to have been gone later.
        saved: those of these that a retry would have reached after that.
        attempts_saved: the simulated runs, if the saved letters ended there.
        retrying: letters by the seconds from the first failure to the last retry.
        unknown: letters by exception class that is not imported here, so that only its name was judged.
    """

    letters: int = 0
    not_judged: Counter[str] = field(default_factory=Counter)
    before: Counter[str] = field(default_factory=Counter)
    after: Counter[str] = field(default_factory=Counter)
    attempts_before: int = 0
    attempts_after: int = 0
    evidence: int = 0
    saved: int = 0
    attempts_saved: int = 0
    retrying: Counter[float] = field(default_factory=Counter)
    unknown: Counter[str] = field(default_factory=Counter)

    @property
    def ends(self) -> list[str]:
        """Return the ends of letters, the actual ones first."""
        return [*dict.fromkeys((*self.before, *self.after))]

    def retrying_for(self, part: float) -> float | None:
        """Return the seconds after which this share of the retried letters have no retry left; `None` if none is
        retried.
        """
        wanted = part * self.retrying.total()
        counts = accumulate(count for _, count in sorted(self.retrying.items()))
        return next(
            (seconds for seconds, sum_ in zip(sorted(self.retrying), counts, strict=True) if sum_ >= wanted), None
        )

    def to_data(self) -> dict[str, Any]:
        """Return the simulation as JSON-compatible data."""
        return {
            "letters": self.letters,
            "not_judged": dict(self.not_judged),
            "before": {"ends": dict(self.before), "attempts": self.attempts_before},
            "after": {
                "ends": dict(self.after),
                "attempts": self.attempts_after,
                "retrying_seconds": {name: self.retrying_for(part) for name, part in (("half", 0.5), ("all", 1.0))},
            },
            "evidence": {"fault_gone": self.evidence, "saved": self.saved, "attempts": self.attempts_saved},
            "unknown_classes": dict(self.unknown),
        }


def simulate_policy(
    letters: Iterable[FailingLetter], course: Callable[[str], PolicyCourse], resolved: Mapping[int, Sequence[int]]
) -> SimulationResult:
    """Simulate a policy on letters.

    Parameters:
        course: returns the policy's course for an exception class.
        resolved: by group, the times of successful replays (ms since the epoch), ascending.
    """
    found, courses = SimulationResult(), dict[str, _TimedCourse]()
    for letter in letters:
        if letter.reason in NOT_JUDGED:
            found.not_judged[letter.reason] += 1
            continue
        if letter.error_class not in courses:
            courses[letter.error_class] = _TimedCourse(course(letter.error_class))
        _judge_letter(found, letter, courses[letter.error_class], resolved.get(letter.group, ()))
    return found


class _TimedCourse:
    """A course with the seconds from the first failure to each retry."""

    def __init__(self, course: PolicyCourse) -> None:
        self.known = course.known
        self.retries = list(accumulate(course.waits))
        self.end = _ENDS.get(course.end) or (RETRIED if self.retries else AT_ONCE)


def _judge_letter(
    found: SimulationResult, letter: FailingLetter, course: _TimedCourse, resolved: Sequence[int]
) -> None:
    attempts = 1 + len(course.retries)
    found.letters += 1
    found.before[RETRIED if letter.runs > 1 else AT_ONCE] += 1
    found.attempts_before += letter.runs
    found.after[course.end] += 1
    found.attempts_after += attempts
    if not course.known:
        found.unknown[letter.error_class] += 1
    if course.retries:
        found.retrying[course.retries[-1]] += 1
    later = bisect_left(resolved, letter.failed_at)
    if later < len(resolved):
        found.evidence += 1
        reached = bisect_left(course.retries, (resolved[later] - letter.first_failed_at) / 1000)
        if reached < len(course.retries):
            found.saved += 1
            attempts = 2 + reached
    found.attempts_saved += attempts


def group_resolution_times(resolved: Iterable[tuple[int, int]]) -> dict[int, list[int]]:
    """Return ascending times by group, from pairs of a group and a time."""
    found: dict[int, list[int]] = defaultdict(list)
    for group, at in resolved:
        found[group].append(at)
    return {group: sorted(times) for group, times in found.items()}


class PolicyTrial(NamedTuple):
    """A tried policy and its simulated results.

    Attributes:
        policy: the tried policy, by option.
        changed: the options that were given.
        in_force: the changes of `bridge policy set` to the code's policy.
        unknown: why these are unknown; empty if they are known.
    """

    policy: dict[str, Any]
    changed: dict[str, Any]
    in_force: Mapping[str, Any]
    unknown: str
    result: SimulationResult

    def to_data(self) -> dict[str, Any]:
        """Return the trial as JSON-compatible data."""
        said = {"policy": self.policy, "changed": self.changed, "in_force": dict(self.in_force)}
        return said | {"in_force_unknown": self.unknown or None, **self.result.to_data()}


def describe_trial(trial: PolicyTrial) -> Iterator[str]:
    """Yield the sentences below the figures: the time of the last retry, evidence of success, and unknowns (pure)."""
    result, retry_when = trial.result, trial.policy.get("retry_when")
    half, longest = result.retrying_for(0.5), result.retrying_for(1.0)
    if half is not None and longest is not None:
        for_half = f" for half of them, {format_span(longest)} at most" if longest > half else ""
        yield f"The last retry comes {format_span(half)} after the first failure{for_half}."
    if result.evidence:
        yield (
            f"Of {result.evidence:,} the fault was gone later: a letter of their group was replayed with success. "
            + (
                f"A retry comes after that for {result.saved:,}: they would hardly be here, and it were "
                f"{format_count(result.attempts_saved, 'attempt')}."
                if result.saved
                else "No retry comes after that success: these letters would have died under this policy, too."
            )
        )
    elif result.letters:
        yield "Whether a later attempt had succeeded is not known: no letter of theirs was replayed with success."
    for reason, count in result.not_judged.items():
        yield f"{format_count(count, 'letter')} died of what no policy decides on: {reason}."
    for kind, count in result.unknown.items():
        yield (
            f"{kind} is not imported here: {format_count(count, 'letter')} of it were judged by name, not by what it "
            "derives from."
        )
    if retry_when:
        yield f"retry_when ({retry_when}) was not asked: it would need the messages, and may decide otherwise."


@dataclass(frozen=True)
class PolicyTrials:
    """Trials of policies on letters."""

    app: Celery
    settings: Settings
    routes: Routes
    database: Database

    def run(
        self,
        handler: str,
        words: Sequence[str],
        filter_: LetterFilter = ALL_LETTERS,
        heard: Callable[[int], None] = lambda done: None,
        most: int | None = None,
    ) -> PolicyTrial:
        """Simulate a policy on a handler's letters.

        Parameters:
            words: `option=value` each, over the policy in force: the code's with the changes of `bridge policy set`,
                if these are known.
            filter_: the filter of its letters.
            heard: called now and then with the number of simulated letters.
            most: the most letters that are simulated; `None`: all.

        Raises:
            UnknownHandler: there is no such handler.
            PolicyRefused: an option or a value is invalid.
            DeskUnavailable: the database does not answer.
        """
        if handler not in self.routes.handlers:
            near = get_close_matches(handler, self.routes.handlers, 1)
            meant = f"is {near[0]!r} meant?" if near else f"there is {', '.join(self.routes.handlers) or 'none'}."
            raise UnknownHandler(f"no handler is called {handler!r}: {meant}")
        task: Any = self.app.tasks[handler]
        changing = task.changing
        in_force, unknown = self._in_force(handler, changing)
        try:
            changed = changing.read(words)
            policy = changing.policy({**in_force, **changed})
        except BridgeError as error:
            raise PolicyRefused(str(error)) from None
        real = self._waits(policy).real
        asked = replace(filter_, handlers=(handler,))
        among = find_among(self.database, asked)
        with self.database.reading() as connection:
            gone = group_resolution_times(letter_rows.stream_resolutions(connection, handler))
            letters = islice(letter_rows.stream_failures(connection, asked, among), most)
            found = simulate_policy(
                _count_heard(letters, heard), lambda error: changing.course(policy, error, real), gone
            )
        return PolicyTrial(changing.shown(policy), changed, in_force, unknown, found)

    def _in_force(self, handler: str, changing: Any) -> tuple[Mapping[str, Any], str]:
        """Return the changes of a handler's policy, and why they are unknown."""
        try:
            changed = read_policy_changes(self.settings, handler)
        except (LedgerUnavailable, KafkaUnavailable) as error:
            return {}, str(error)
        try:
            changing.policy(changed)
        except BridgeError:
            # As in a worker: a change that the code refuses is not in force.
            return {}, ""
        return changed, ""

    def _waits(self, policy: Any) -> TierWaits:
        file = self.settings.file
        return TierWaits(
            file.kafka_park_after, usable_tiers(policy.delays, file.kafka_park_after, file.kafka_retry_tiers)
        )


def read_policy_changes(settings: Settings, handler: str) -> Mapping[str, Any]:
    """Return people's changes of a handler's policy, by option; none without a Redis.

    Raises:
        LedgerUnavailable, KafkaUnavailable: they are unknown.
    """
    ledger = Ledger.once(settings, ANSWER_WITHIN)
    if ledger is None:
        return {}
    with closing(ledger):
        return read_option_values(
            find_changed_policies(look_up_decisions(settings, DecisionMirror(ledger))).get(handler)
        )


def _count_heard(letters: Iterator[FailingLetter], heard: Callable[[int], None]) -> Iterator[FailingLetter]:
    for done, letter in enumerate(letters):
        if done % 10_000 == 0:
            heard(done)
        yield letter
