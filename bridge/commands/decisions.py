"""What was decided for a group, as a command reads it and adds to it; no bridge or worker need be reachable."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final

from bridge.ledger import Ledger
from bridge.ledger.control import Mirror
from bridge.ledger.deciding import Outcome, decide, known
from bridge.records.control import Decision
from bridge.settings import Settings

#: Seconds for an answer of Redis, which is asked twice.
ANSWER_WITHIN: Final = 2.0


class Decisions:
    """What stands for each key of a group.

    Attributes:
        unread: why Kafka could not be asked, which may have what Redis does not know; empty if it was.
        unknown: why more may have been decided than is known; empty where this is all.

    Raises:
        NotDecided: neither Kafka nor Redis can be asked.
    """

    def __init__(self, settings: Settings, mirror: Mirror | None) -> None:
        self._settings, self._mirror = settings, mirror
        self.standing: Mapping[str, Decision]
        self.standing, self.unread, self.unknown = known(settings, mirror)

    def decide(self, key: str, data: Mapping[str, Any] | None, by: str, why: str) -> Outcome:
        """Decide on a key, knowing what stood.

        Raises:
            NotDecided: neither Kafka nor Redis has it.
        """
        return decide(self._settings, self._mirror, key, data, by, why, self.standing.get(key))


@contextmanager
def decisions(settings: Settings) -> Iterator[Decisions]:
    """The decisions of the settings' group.

    Raises:
        NotDecided: neither Kafka nor Redis can be asked.
    """
    ledger = Ledger.of(settings, timeout=ANSWER_WITHIN)
    if ledger is None:
        yield Decisions(settings, None)
        return
    try:
        yield Decisions(settings, Mirror(ledger))
    finally:
        ledger.close()
