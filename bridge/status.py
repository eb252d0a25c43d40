"""`bridge status`: how the group stands, read from Kafka and Redis; no bridge need be reachable."""

from typing import Any

from bridge.extent import extents
from bridge.ledger.members import Members
from bridge.opened import opened
from bridge.routes import Routes
from bridge.settings import Settings


def status(settings: Settings, routes: Routes) -> dict[str, Any]:
    """What the group consumes and how far, and what each bridge says of itself.

    Returns:
        `group`; `topics`: per topic and partition `committed`, `end`, `lag`; `bridges`: what each announces
        (`waiting`: what others of its order wait for), or `None` without a Redis for it; `halted`: per topic `why`
        and `since`, empty when nothing is.

    Raises:
        KafkaUnavailable, LedgerUnavailable: one of them does not answer.
    """
    topics: dict[str, dict[str, Any]] = {topic: {} for topic in routes.topics}
    for extent in extents(settings, routes.topics):
        topics[extent.topic][str(extent.partition)] = {
            "committed": extent.committed,
            "end": extent.end,
            "lag": extent.lag,
        }
    return {"group": settings.group, "topics": topics, "bridges": _bridges(settings, routes), "halted": {}}


def _bridges(settings: Settings, routes: Routes) -> dict[str, Any] | None:
    if settings.ledger_url is None:
        return None
    with opened(settings, routes.topics) as (ledger, _):
        return {name: dict(state) for name, state in Members(ledger).living().items()}
