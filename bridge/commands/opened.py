"""The ledger as a command opens it, beside the bridges."""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Final

from bridge.ledger import Ledger
from bridge.settings import Settings
from bridge.topics.catalog import Catalog

#: Seconds for which Redis is waited for.
ANSWER_WITHIN: Final = 5.0


@contextmanager
def opened(settings: Settings, topics: Iterable[str]) -> Iterator[tuple[Ledger, Catalog]]:
    """The ledger of the settings' group, which must have one, and the catalog with the ids of `topics`.

    Raises:
        KafkaUnavailable: Kafka does not say which cluster it is.
    """
    catalog = Catalog(settings, topics)
    catalog.prepare()
    ledger = Ledger.once(settings, ANSWER_WITHIN, catalog.cluster)
    assert ledger is not None
    try:
        yield ledger, catalog
    finally:
        ledger.close()
