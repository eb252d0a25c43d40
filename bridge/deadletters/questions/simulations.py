"""A changed policy of a handler's, tried on its dead letters.

The policy is the handler's own, asked through its task on the Celery app.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from difflib import get_close_matches
from typing import Any, NamedTuple

from celery import Celery

from bridge.deadletters.letters.filters import EVERYTHING, Filter
from bridge.deadletters.letters.simulating import Failing, Simulated, resolved_by_group, simulate
from bridge.deadletters.store import failing
from bridge.deadletters.store.database import Database
from bridge.errors import BridgeError, PolicyRefused, UnknownHandler
from bridge.handlers import Routes
from bridge.settings import Settings
from bridge.topics.tiers import Waits, possible


class Simulation(NamedTuple):
    """What was tried, and what would have become of it.

    Attributes:
        policy: by option, as it would be.
        changed: the options that were given.
    """

    policy: dict[str, Any]
    changed: dict[str, Any]
    result: Simulated

    def to_data(self) -> dict[str, Any]:
        """As JSON."""
        return {"policy": self.policy, "changed": self.changed, **self.result.to_data()}


@dataclass(frozen=True)
class Simulations:
    """Policies tried on letters."""

    app: Celery
    settings: Settings
    routes: Routes
    database: Database

    def run(
        self,
        handler: str,
        words: Sequence[str],
        asked: Filter = EVERYTHING,
        heard: Callable[[int], None] = lambda done: None,
    ) -> Simulation:
        """Say what a policy would have made of a handler's letters.

        Parameters:
            words: `option=value` each, over what the handler's code says; none: as the code says.
            asked: which of its letters.
            heard: is told now and then how many letters were judged.

        Raises:
            UnknownHandler: no handler is called so.
            PolicyRefused: an option or a value is none.
            DeskUnavailable: the database does not answer.
        """
        if handler not in self.routes.handlers:
            near = get_close_matches(handler, self.routes.handlers, 1)
            meant = f"is {near[0]!r} meant?" if near else f"there is {', '.join(self.routes.handlers) or 'none'}."
            raise UnknownHandler(f"no handler is called {handler!r}: {meant}")
        task: Any = self.app.tasks[handler]
        changing = task.changing
        try:
            changed = changing.read(words)
            policy = changing.policy(changed)
        except BridgeError as error:
            raise PolicyRefused(str(error)) from None
        real = self._waits(policy).real
        with self.database.reading() as connection:
            gone = resolved_by_group(failing.resolved(connection, handler))
            letters = failing.failing(connection, replace(asked, handlers=(handler,)))
            found = simulate(_told(letters, heard), lambda error: changing.course(policy, error, real), gone)
        return Simulation(changing.shown(policy), changed, found)

    def _waits(self, policy: Any) -> Waits:
        file = self.settings.file
        return Waits(file.kafka_park_after, possible(policy.delays, file.kafka_park_after, file.kafka_retry_tiers))


def _told(letters: Iterator[Failing], heard: Callable[[int], None]) -> Iterator[Failing]:
    for done, letter in enumerate(letters):
        if done % 10_000 == 0:
            heard(done)
        yield letter
