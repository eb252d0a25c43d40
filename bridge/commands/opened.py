"""The ledger as a command opens it, beside the bridges."""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from bridge.ledger import Ledger
from bridge.settings import Settings
from bridge.topics.catalog import Catalog


@contextmanager
def opened(settings: Settings, topics: Iterable[str]) -> Iterator[tuple[Ledger, Catalog]]:
    """The ledger of the settings' group, which must have one, and the catalog with the ids of `topics`.

    Raises:
        KafkaUnavailable: Kafka does not say which cluster it is.
    """
    assert settings.ledger_url is not None
    catalog = Catalog(settings, topics)
    catalog.prepare()
    days, named = settings.file.kafka_ledger_days, settings.ledger_named
    ledger = Ledger(settings.ledger_url, catalog.cluster, settings.group, days, named=named)
    try:
        yield ledger, catalog
    finally:
        ledger.close()
