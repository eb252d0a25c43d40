"""A changed policy of a handler, tried on its dead letters.

The handler's Celery task supplies its policy.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from difflib import get_close_matches
from typing import Any, Final, NamedTuple

from celery import Celery

from bridge.deadletters.db import letter_rows
from bridge.deadletters.db.database import Database
from bridge.deadletters.model.letter_filter import ALL_LETTERS, LetterFilter
from bridge.deadletters.model.policy_simulation import (
    FailingLetter,
    SimulationResult,
    group_resolution_times,
    simulate_policy,
)
from bridge.errors import BridgeError, KafkaUnavailable, LedgerUnavailable, PolicyRefused, UnknownHandler
from bridge.formats.group_decision import find_changed_policies, read_option_values
from bridge.handler_routes import Routes
from bridge.kafka.retry_tier_choice import TierWaits, usable_tiers
from bridge.ledger import Ledger
from bridge.ledger.decision_store import DecisionMirror, look_up_decisions
from bridge.settings import Settings

#: Seconds to wait for Redis.
ANSWER_WITHIN: Final = 2.0


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
        asked: LetterFilter = ALL_LETTERS,
        heard: Callable[[int], None] = lambda done: None,
    ) -> PolicyTrial:
        """Simulate a policy on a handler's letters.

        Parameters:
            words: `option=value` each, over the policy in force: the code's with the changes of `bridge policy set`,
                if these are known.
            asked: the filter of its letters.
            heard: called now and then with the number of simulated letters.

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
        with self.database.reading() as connection:
            gone = group_resolution_times(letter_rows.stream_resolutions(connection, handler))
            letters = letter_rows.stream_failures(connection, replace(asked, handlers=(handler,)))
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
