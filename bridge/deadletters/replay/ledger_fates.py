"""The fates of deliveries in the ledgers of all groups of this Kafka."""

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from functools import cache
from typing import Final

from bridge.errors import LedgerUnavailable
from bridge.formats.delivery_identity import Origin
from bridge.kafka.clients import admin_client
from bridge.kafka.topic_admin import read_cluster
from bridge.ledger import Account, Fate, Ledger, LogHistory, Mark
from bridge.ledger.ledger_layout import RETRY_RECORD
from bridge.settings import Settings

#: A lookup by number, for a hundred thousand fates in a row.
_FATES: Final = {int(fate): fate for fate in Fate}


class LedgerFates:
    """The ledgers of this Kafka cluster, one for each group, opened when needed.

    Parameters:
        ledger_of: returns the ledger of a group; `None` without a Redis for it: then nothing is known.

    Every method raises LedgerUnavailable if Redis does not answer.
    """

    def __init__(self, ledger_of: Callable[[str], Ledger | None]) -> None:
        self._ledger_of = ledger_of

    @classmethod
    @contextmanager
    def opened(cls, settings: Settings) -> Iterator["LedgerFates"]:
        """Open the ledgers of the settings' Kafka and Redis, on first use.

        Every method then also raises KafkaUnavailable if Kafka does not return its cluster id.
        """
        cluster = cache(lambda: read_cluster(admin_client(settings.kafka)).id)
        known: dict[str, Ledger | None] = {}
        with ExitStack() as stack:

            def ledger_of(group: str) -> Ledger | None:
                if group not in known:
                    known[group] = Ledger.from_settings(settings.of_group(group), cluster())
                    if (made := known[group]) is not None:
                        stack.enter_context(closing(made))
                return known[group]

            yield cls(ledger_of)

    def ledger(self, group: str) -> Ledger | None:
        """Return the ledger of a group; `None` if there is no Redis for it."""
        return self._ledger_of(group)

    def since(self, group: str) -> float:
        """Return the time since which nothing was forgotten (Unix time)."""
        ledger = self._ledger_of(group)
        return 0.0 if ledger is None else ledger.since()

    def read_fates(self, deliveries: Sequence[Origin]) -> list[Fate]:
        """Return the fate of each delivery; open if no ledger knows it."""
        found: dict[Origin, Fate] = {}
        for group, wanted in _by_account(deliveries).items():
            if (ledger := self._ledger_of(group)) is None:
                continue
            answers = ledger.fates_of([(account, sorted(some)) for account, some in wanted.items()])
            for some, fates in zip(wanted.values(), answers, strict=True):
                found |= {some[offset]: _FATES[fate] for offset, fate in zip(sorted(some), fates, strict=True)}
        return [found.get(delivery, Fate.OPEN) for delivery in deliveries]

    def own(self, group: str, topic: str, topic_id: str, spots: Sequence[tuple[int, int]]) -> list[Fate]:
        """Return the fates of records of a replay or retry topic themselves.

        Parameters:
            topic_id: the topic's id; empty: the topic is gone, so the last log that a bridge knew.
            spots: partition and offset of each.
        """
        if (ledger := self._ledger_of(group)) is None:
            return [Fate.OPEN for _ in spots]
        book = LogHistory(ledger)
        offsets: dict[int, set[int]] = defaultdict(set)
        for partition, offset in spots:
            offsets[partition].add(offset)
        last = {} if topic_id else book.read_logs([(topic, at) for at in offsets])
        logs = {at: last[topic, at].id if (topic, at) in last else book.log_id(topic, topic_id, at) for at in offsets}
        accounts = {at: Account(RETRY_RECORD, topic, log, at) for at, log in logs.items()}
        asked = [(accounts[partition], sorted(some)) for partition, some in offsets.items()]
        known: dict[tuple[int, int], Fate] = {}
        for (account, some), fates in zip(asked, ledger.fates_of(asked), strict=True):
            known |= {(account.partition, at): _FATES[fate] for at, fate in zip(some, fates, strict=True)}
        return [known[spot] for spot in spots]

    def discard(self, deliveries: Sequence[Origin]) -> list[Fate]:
        """Note deliveries as discarded in the ledger; return the fate of each: a done one stays done.

        Raises:
            LedgerUnavailable: also if there is no Redis for it.
        """
        for group, wanted in _by_account(deliveries).items():
            if (ledger := self._ledger_of(group)) is None:
                raise LedgerUnavailable("There is no ledger to note it in: the broker is no Redis; set LEDGER_URL.")
            ledger.write([Mark(account, sorted(some), Fate.DISCARDED) for account, some in wanted.items()])
        return self.read_fates(deliveries)

    def end_dead(self, deliveries: Sequence[Origin], end: Fate) -> list[Origin]:
        """Write an end, discarded or done, to those of these deliveries that are dead, and return these."""
        ended: list[Origin] = []
        for group, wanted in _by_account(deliveries).items():
            if (ledger := self._ledger_of(group)) is not None:
                for account, some in wanted.items():
                    ended += [some[offset] for offset in sorted(ledger.end_dead(account, sorted(some), end))]
        return ended


def _by_account(deliveries: Sequence[Origin]) -> dict[str, dict[Account, dict[int, Origin]]]:
    """Return the deliveries by group, account and offset."""
    found: dict[str, dict[Account, dict[int, Origin]]] = defaultdict(lambda: defaultdict(dict))
    for delivery in deliveries:
        account = Account(delivery.handler, delivery.topic, delivery.topic_id, delivery.partition)
        found[delivery.group][account][delivery.offset] = delivery
    return found
