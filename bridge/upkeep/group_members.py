"""Another application in the consumer group that has a Redis of its own: Kafka alone knows its members."""

from collections.abc import Collection, Sequence

from bridge.kafka import AdminClient
from bridge.ledger import Ledger
from bridge.ledger.members import living_sources
from bridge.settings import Settings
from bridge.topics.belonging import Belongings
from bridge.topics.names import TopicNames
from bridge.topics.readers import consumed_now
from bridge.upkeep.problem import Problem


def find_foreign_topics(
    admin: AdminClient, settings: Settings, ledger: Ledger, sources: Collection[str]
) -> tuple[str, ...] | None:
    """Return the topics that a member of the group consumes which no bridge or worker of this Redis handles.

    `None`: Kafka does not say it, or gives the partitions out anew just now.

    Parameters:
        sources: what this application handles.

    Raises:
        LedgerUnavailable: Redis did not say who lives.
    """
    consumed = consumed_now(admin, settings.group)
    if consumed is None:
        return None
    if not consumed or not sources:
        return ()
    known = {*sources, *living_sources(ledger)}
    return tuple(sorted(consumed - known - Belongings(TopicNames.of(settings), known).of(consumed).keys()))


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
