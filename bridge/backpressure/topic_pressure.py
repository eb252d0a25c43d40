"""The topics that pause because too many of their deliveries die or are parked."""

import logging
from collections.abc import Iterable, Mapping

from bridge.backpressure.queue_pressure import LimitWatch
from bridge.errors import LedgerUnavailable
from bridge.formats.delivery_identity import Place
from bridge.formats.pause_reasons import PauseReason
from bridge.ledger import Ledger
from bridge.ledger.group_members import make_member_name
from bridge.ledger.peer_backlog import PeerBacklog
from bridge.settings import FileSettings

logger = logging.getLogger(__name__)


class TopicPressure:
    """The topics with too many dead letters or parked records at the last poll.

    Parameters:
        ledger: where bridges exchange how much is parked; `None`: each counts its own partitions.
    """

    def __init__(self, topics: Iterable[str], file: FileSettings, ledger: Ledger | None) -> None:
        self._topics = tuple(topics)
        self.letters = LimitWatch(
            file.kafka_pause_dead_letters_a_minute,
            PauseReason.DEAD_LETTERS,
            "topic {name!r} has {much:,} dead letters within a minute",
        )
        self._parked = LimitWatch(
            file.kafka_pause_above_parked,
            PauseReason.PARKED_RECORDS,
            "topic {name!r} has {much:,} records in its retry topics",
        )
        member = make_member_name()
        self._others = PeerBacklog(ledger, member, "parked") if ledger is not None else None

    def update_counts(self, dying: Mapping[str, int], parked: Mapping[str, int]) -> None:
        """Take in the counts of Kafka and of other bridges; without Redis the parked counts stay as they were.

        Parameters:
            dying: dead letters within a minute, by topic, as far as known.
            parked: records in the retry topics of each source, in the partitions that this bridge has.
        """
        self.letters.update_counts(dying)
        if self._parked.wanted:
            self._parked.update_counts(self._add_up(parked))

    def pauses(self, places: Iterable[Place]) -> dict[Place, str]:
        """Return the partitions that must pause, never those of retry topics: reading them lowers the count."""
        labels = {**self._parked.paused, **self.letters.paused}
        if not labels:
            return {}
        return {place: labels[place[0]] for place in places if place[0] in labels}

    def _add_up(self, mine: Mapping[str, int]) -> dict[str, float | None]:
        counts = {topic: mine.get(topic, 0) for topic in self._topics}
        if self._others is None:
            return {**counts}
        try:
            theirs = self._others.exchange({topic: (count, 0) for topic, count in counts.items()})
        except LedgerUnavailable as error:
            logger.debug("parked: %s", error)
            return {}
        return {topic: count + theirs[topic][0] for topic, count in counts.items()}
