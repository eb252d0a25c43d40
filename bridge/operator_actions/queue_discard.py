"""`bridge discard TOPIC`: discards the queued deliveries of a topic, so that no worker runs them."""

from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Final

from bridge.errors import UnknownHandler, UnknownTopic
from bridge.handler_routes import Routes
from bridge.kafka.partition_offsets import read_extents
from bridge.ledger import Account, Fate, Ledger, LogHistory
from bridge.ledger.group_access import open_ledger
from bridge.operator_actions.topic_halt import read_halts
from bridge.settings import Settings

QUEUED: Final = frozenset({Fate.HANDED})
#: Runs of offsets of one write to the ledger.
AT_ONCE: Final = 500


def order_risk(topic: str, order: str | None, *, halted: bool) -> str | None:
    """Return a sentence on the risk for the order of a topic that is not halted; `None` if there is none (pure).

    A running delivery counts as queued: once discarded, it no longer blocks the next of its key or partition.
    """
    if order is None or halted:
        return None
    return (
        f"topic {topic!r} is ordered by {order} and is not halted: if one of its deliveries runs now, the next of the "
        f"{order} begins beside it, and their order is lost."
    )


def find_order_risk(settings: Settings, topic: str) -> str | None:
    """Return the order risk of a topic now; only for an ordered topic are decisions read.

    Raises:
        NotDecided: neither Kafka nor Redis can be asked whether the topic is halted.
    """
    order = settings.topic(topic).order
    return order_risk(topic, order, halted=order is not None and topic in read_halts(settings))


def count_queued(settings: Settings, routes: Routes, topic: str, handlers: Sequence[str] = ()) -> dict[str, int]:
    """Return the number of queued or running deliveries of each handler: handed off and not settled.

    Parameters:
        handlers: only of these; empty: all handlers of the topic.

    Raises:
        UnknownTopic, UnknownHandler: there is no such topic, or no such handler of it.
        KafkaUnavailable, LedgerUnavailable: one of them does not answer.
    """
    counts = dict.fromkeys(_handlers(routes, topic, handlers), 0)
    for ledger, account, first, last in _accounts(settings, topic, list(counts)):
        counts[account.handler] += sum(map(len, ledger.runs(account, QUEUED, first, last)))
    return counts


def discard_queued(settings: Settings, routes: Routes, topic: str, handlers: Sequence[str] = ()) -> dict[str, int]:
    """Mark the queued deliveries as discarded, and return how many of each handler were marked.

    Their Celery messages stay where they are: a worker that takes one skips what is discarded. A delivery that is
    running goes on: it is done if it succeeds; if it fails it is not retried, and gets no dead letter. One that dies in
    that moment is dead. Deliveries that wait for a Kafka retry or came from one are left alone, and so is one that
    parks or dies meanwhile.

    Raises:
        UnknownTopic, UnknownHandler, KafkaUnavailable, LedgerUnavailable: as `count_queued`.
    """
    counts = dict.fromkeys(_handlers(routes, topic, handlers), 0)
    for ledger, account, first, last in _accounts(settings, topic, list(counts)):
        queued = ledger.runs(account, QUEUED, first, last)
        while some := list(islice(queued, AT_ONCE)):
            # A delivery that has parked or died meanwhile is left alone: its retry, or its dead letter, counts.
            counts[account.handler] += ledger.discard_unsettled(account, some)
    return counts


def _handlers(routes: Routes, topic: str, wanted: Sequence[str]) -> list[str]:
    known = [handler.name for handler in routes.of(topic)]
    if not known:
        raise UnknownTopic(f"no handler names topic {topic!r}. Topics: {', '.join(routes.topics)}.")
    if strange := [name for name in wanted if name not in known]:
        raise UnknownHandler(f"{strange[0]!r} is no handler of {topic!r}. Handlers: {', '.join(known)}.")
    return [*wanted] or known


def _accounts(settings: Settings, topic: str, names: Sequence[str]) -> Iterator[tuple[Ledger, Account, int, int]]:
    """Yield each handler's account of each partition, with the ledger and the first and last offset in Kafka."""
    extents = read_extents(settings, [topic])
    with open_ledger(settings, [topic]) as (ledger, catalog):
        for extent in extents:
            log = LogHistory(ledger).log_id(topic, catalog.topic_ids[topic], extent.partition)
            for name in names:
                yield ledger, Account(name, topic, log, extent.partition), extent.first, extent.end - 1
