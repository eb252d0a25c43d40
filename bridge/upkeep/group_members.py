"""Another application in the consumer group that has a Redis of its own: Kafka alone knows its members."""

import logging
from collections.abc import Callable, Collection, Sequence

from bridge.errors import KafkaUnavailable, LedgerUnavailable
from bridge.kafka import AdminClient
from bridge.ledger import Ledger
from bridge.ledger.members import living_sources
from bridge.settings import Settings
from bridge.topics.belonging import Belongings
from bridge.topics.names import TopicNames
from bridge.topics.readers import consumed_now
from bridge.upkeep.problem import Problem

logger = logging.getLogger(__name__)


def find_foreign_topics(
    admin: AdminClient, settings: Settings, ledger: Ledger, sources: Collection[str]
) -> tuple[str, ...] | None:
    """Return the topics that a member of the group consumes which no bridge or worker of this Redis handles.

    `None`: Kafka gives the partitions out anew just now.

    Parameters:
        sources: what this application handles.

    Raises:
        KafkaUnavailable: Kafka did not say who is in the group.
        LedgerUnavailable: Redis did not say who lives.
    """
    consumed = consumed_now(admin, settings.group)
    if consumed is None:
        return None
    if not consumed or not sources:
        return ()
    known = {*sources, *living_sources(ledger)}
    return tuple(sorted(consumed - known - Belongings(TopicNames.of(settings), known).of(consumed).keys()))


def unknown_members(group: str, why: str = "") -> str:
    """Return the sentence of a group whose other members are not known, and why not."""
    why = why or "it gives its partitions out anew just now."
    return f"Whether another application uses the group {group!r} is not known: {why}"


def foreign_member(group: str, topics: Sequence[str]) -> Problem:
    """Return the sentence of a member of the group that consumes these topics, and that this Redis does not know."""
    return Problem(
        f"Another application uses the group {group!r}: a member that no bridge of this Redis is consumes "
        f"{len(topics)} topic{'' if len(topics) == 1 else 's'}, {', '.join(topics[:5])}{', …' if topics[5:] else ''}. "
        "Give each application its own BRIDGE_GROUP, and delete no topic.",
        "divided",
        f"Another application uses the group {group!r}",
        many=len(topics),
        of="topics",
        do="give each application its own BRIDGE_GROUP",
    )


class GroupWatch:
    """Looks for another application in the group, and logs when one comes and when it is gone.

    Parameters:
        find: `find_foreign_topics` of this application.

    Attributes:
        foreign: the topics of the other application, as last known.
    """

    def __init__(self, group: str, find: Callable[[], tuple[str, ...] | None]) -> None:
        self.foreign: tuple[str, ...] = ()
        self._group, self._find = group, find

    def look(self) -> bool:
        """Look once; return whether it is known who is in the group."""
        try:
            found = self._find()
        except (KafkaUnavailable, LedgerUnavailable) as error:
            logger.debug("%s", unknown_members(self._group, str(error)))
            return False
        if found is None:
            return False
        if found and found != self.foreign:
            logger.error("%s", foreign_member(self._group, found))
        elif self.foreign and not found:
            logger.info("no other application uses the group %r any more.", self._group)
        self.foreign = found
        return True
