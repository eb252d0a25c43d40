"""How the deliveries of one letter's record stand: for each handler its fate, or why that is not known."""

from collections.abc import Mapping, Sequence
from typing import Any

from celery import Celery

from bridge.commands.find import find
from bridge.errors import KafkaUnavailable, LedgerUnavailable
from bridge.handlers import Routes
from bridge.settings import Settings

#: What `bridge find` says of each delivery; or a sentence.
Elsewhere = Sequence[Mapping[str, Any]] | str


def elsewhere(
    app: Celery, settings: Settings, routes: Routes, origin: str, topic: str, partition: int, offset: int
) -> Elsewhere:
    """How the deliveries of a letter's record stand; why that is not known, where it is not.

    Parameters:
        origin: who wrote the letter.
        topic, partition, offset: of the source record.
    """
    if origin != "bridge":
        return f"it was not ours: {origin} wrote it"
    if settings.ledger_url is None:
        return "not known: fates are in the ledger, and the broker is no Redis (LEDGER_URL)"
    try:
        found = find(app, settings, routes, topic, partition, offset).data
    except (KafkaUnavailable, LedgerUnavailable) as error:
        return f"not known: {error}"
    deliveries: Elsewhere = found[0]["deliveries"] if found else "not known: Kafka does not have that record (any more)"
    return deliveries
