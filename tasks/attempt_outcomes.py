"""How the attempts of this process ended, told to the ledger every two seconds, for `bridge status`.

It only tells: no delivery waits for it.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from bridge.ledger import Ledger
from bridge.ledger.counts import Whose
from bridge.ledger.outcomes import RecentAttempts, note_outcomes
from bridge.ledger.unpublished import note_unpublished
from tasks.kept_back import KeptBack
from tasks.observing import harmless

#: Seconds for which it is kept back, so that much goes in one trip.
WITHIN: Final = 2.0


@dataclass(slots=True)
class _Untold:
    """What one process has not told yet: attempts, and dead letters that Kafka did not take, or took later."""

    attempts: dict[Whose, RecentAttempts] = field(default_factory=dict)
    refused: dict[str, dict[str, str]] = field(default_factory=dict)
    written: dict[str, set[str]] = field(default_factory=dict)


def _write(ledger: Ledger, untold: _Untold) -> None:
    note_outcomes(ledger, untold.attempts, time.time())
    if untold.refused or untold.written:
        note_unpublished(ledger, untold.refused, untold.written)


class AttemptOutcomes:
    """The outcomes of one process."""

    def __init__(self) -> None:
        self._kept = KeptBack[_Untold](WITHIN, _Untold, _write)
        self.flush = self._kept.flush

    @harmless
    def succeeded(self, ledger: Ledger | None, topic: str, handler: str) -> None:
        """An attempt has succeeded."""
        self._change(ledger, (topic, handler), lambda attempts: attempts.succeeded(time.time()))

    @harmless
    def failed(self, ledger: Ledger | None, topic: str, handler: str, number: int = 1, error: str = "") -> None:
        """Attempts have failed."""
        self._change(ledger, (topic, handler), lambda attempts: attempts.has_failed(time.time(), number, error))

    @harmless
    def process_lost(self, ledger: Ledger | None, topic: str, handler: str) -> None:
        """A process died with deliveries of a handler."""

        def count(attempts: RecentAttempts) -> None:
            attempts.lost += 1

        self._change(ledger, (topic, handler), count)

    @harmless
    def refused(self, ledger: Ledger | None, handler: str, identity: str, error: str) -> None:
        """Kafka did not take a dead letter."""
        if ledger is None:
            return

        def put(untold: _Untold) -> None:
            untold.written.get(handler, set()).discard(identity)
            untold.refused.setdefault(handler, {})[identity] = error

        self._kept.change(ledger, put)

    @harmless
    def written(self, ledger: Ledger | None, handler: str, identity: str) -> None:
        """Kafka has taken a dead letter that it had refused before."""
        if ledger is None:
            return

        def put(untold: _Untold) -> None:
            untold.refused.get(handler, {}).pop(identity, None)
            untold.written.setdefault(handler, set()).add(identity)

        self._kept.change(ledger, put)

    def _change(self, ledger: Ledger | None, whose: Whose, change: Callable[[RecentAttempts], None]) -> None:
        if ledger is not None:
            self._kept.change(ledger, lambda untold: change(untold.attempts.setdefault(whose, RecentAttempts())))


attempt_outcomes = AttemptOutcomes()
