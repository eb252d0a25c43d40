"""`bridge audit TOPIC`: the fate of every offset, counted; `TopicAudit.clean` lists what must be zero.

bridge/ledger/unaccounted_offsets.py decides what is unaccounted for.
"""

import time
from collections.abc import Collection, Mapping, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from celery import Celery

from bridge.dispatch.broker_search import BrokerSearch
from bridge.dispatch.carrier_message import CarrierMessage, DeliveryKey
from bridge.dispatch.celery_broker import CeleryBroker
from bridge.errors import HandoffFailed, UnknownTopic
from bridge.formats.delivery_identity import Place
from bridge.formats.text_forms import format_time
from bridge.handler_routes import Routes
from bridge.inspection.letter_tally import DeadDeliveries, DeathSummary, LetterTally
from bridge.jobs.open_transactions import OpenTransaction, find_open_transactions
from bridge.kafka.dead_letter_reader import read_dead_letters
from bridge.kafka.partition_offsets import Extent, ExtentReader, make_unreadable_data
from bridge.kafka.topic_catalog import TopicCatalog
from bridge.kafka.topic_names import TopicNames
from bridge.ledger import RETRY_RECORD, Account, Accounts, Fate, Ledger, LogHistory
from bridge.ledger.group_access import open_ledger
from bridge.ledger.handoff_times import find_handoff_times
from bridge.ledger.unaccounted_offsets import NAMED, AuditLine, count_audit_line, find_wiped_end
from bridge.ledger.unsettled_retry_records import ParkedOffsets, ParkedSearch, RetryTopicCount, count_handed_records
from bridge.settings import Settings


class CarrierSearch:
    """A search in the broker for the parked deliveries of a source topic.

    Parameters:
        catalog: prepared with the source topic.
        queues: the queues of its handlers.
    """

    def __init__(
        self,
        app: Celery,
        settings: Settings,
        ledger: Ledger,
        catalog: TopicCatalog,
        source: str,
        queues: Collection[str],
    ) -> None:
        self._app, self._settings, self._ledger = app, settings, ledger
        self._catalog, self._source, self._queues = catalog, source, queues

    def without(self, parked: ParkedOffsets, search: ParkedSearch) -> ParkedOffsets:
        """Return the parked offsets without those that a message carries and a worker will run.

        If the messages cannot be listed and a deleted topic has handed-off records, nothing is returned: until those
        have ended, it is not known which deliveries they carry.

        Raises:
            KafkaUnavailable, LedgerUnavailable: one of them does not answer.
        """
        wanted = {
            (account.partition, offset, account.handler): account
            for account, offsets in parked.items()
            for offset in offsets
        }
        if not wanted:
            return parked
        carriers = self._carriers(wanted)
        if carriers is None:
            return {} if self._handed_elsewhere(search) else parked
        for partition, offset, handler in self._to_run(carriers):
            parked[wanted[(partition, offset, handler)]].discard(offset)
        # A delivery that was taken meanwhile may have ended, or be parked again.
        return search.not_found(parked)

    def _carriers(self, wanted: Collection[DeliveryKey]) -> Mapping[DeliveryKey, CarrierMessage] | None:
        try:
            with closing(CeleryBroker(self._app)) as broker:
                return BrokerSearch(broker).carriers(self._queues, self._source, wanted)
        except HandoffFailed:
            return None

    def _to_run(self, carriers: Mapping[DeliveryKey, CarrierMessage]) -> list[DeliveryKey]:
        """Return the deliveries that a worker will run: it skips a parked one that came directly from its source."""
        found = {
            which: (Account(RETRY_RECORD, via.topic, via.topic_id, via.partition), via.offset)
            for which, carrier in carriers.items()
            if (via := carrier.via) is not None
        }
        fates = self._ledger.fates_many([(account, offset, offset) for account, offset in found.values()])
        return [which for which, fate in zip(found, fates, strict=True) if fate[0] == Fate.HANDED]

    def _handed_elsewhere(self, search: ParkedSearch) -> bool:
        """Return whether a record of a deleted or recreated topic is handed off."""
        # As if nothing were committed: the records of the present topics were searched already.
        there = [replace(extent, first=0, committed=None) for extent in search.read_tiers()]
        return bool(count_handed_records(self._ledger, self._is_ours, there, self._catalog.topic_ids))

    def _is_ours(self, topic: str) -> bool:
        return topic != self._source and self._catalog.source_of(topic) == self._source


@dataclass(frozen=True)
class LogChange:
    """A change of a partition's log: `made anew`, `went back` or `expired` (bridge.ledger.KafkaLogChange); time as ISO
    8601.
    """

    partition: int
    what: str
    first: int
    end: int
    lost: int
    at: str


#: The counts of each handler and partition.
COUNTED = ("done", "handed", "parked", "dead", "discarded", "open", "unaccounted", "forgotten", "expired", "evicted")


@dataclass
class TopicAudit:
    """The audit of one topic.

    Attributes:
        unreadable: the partitions that Kafka cannot read, with the reason: nothing is known of what is there.
    """

    topic: str
    lines: list[AuditLine]
    deaths: list[DeathSummary] = field(default_factory=list)
    log_changes: list[LogChange] = field(default_factory=list)
    tiers: list[RetryTopicCount] = field(default_factory=list)
    open_transactions: list[OpenTransaction] = field(default_factory=list)
    unreadable: Mapping[Place, str] = field(default_factory=dict)

    @property
    def totals(self) -> dict[str, int]:
        """Return the number of offsets by fate, over all handlers and partitions."""
        return {name: sum(getattr(line, name) for line in self.lines) for name in COUNTED}

    @property
    def clean(self) -> bool:
        """Return whether everything was read, and nothing is missing."""
        return not (self.unreadable or self.has_losses)

    @property
    def has_losses(self) -> bool:
        """Return whether something is missing, a record was deleted unread, or a dead delivery has no letter."""
        if any(change.lost for change in self.log_changes) or any(tier.unaccounted for tier in self.tiers):
            return True
        return any(line.missing or line.letters_missing for line in self.lines)

    def to_data(self) -> dict[str, Any]:
        """Return the audit as JSON-compatible data, with the totals at the top."""
        lines = [asdict(line) for line in self.lines]
        deaths = [asdict(deaths) for deaths in self.deaths]
        changes = [asdict(change) for change in self.log_changes]
        return {
            "topic": self.topic,
            **self.totals,
            "clean": self.clean,
            "deaths": deaths,
            "log_changes": changes,
            "open_transactions": [
                {"partition": transaction.partition, "offset": transaction.offset, "records": transaction.records}
                for transaction in self.open_transactions
            ],
            "unreadable": make_unreadable_data(self.unreadable),
            "tiers": [tier.to_data() for tier in self.tiers],
            "lines": lines,
        }


def audit_topic(app: Celery, settings: Settings, routes: Routes, topic: str) -> TopicAudit:
    """Count the fates of every offset that Kafka has of a topic; `TopicAudit.unreadable` is what was left out.

    Raises:
        UnknownTopic: no handler names it, and the ledger does not know it.
        KafkaUnavailable, LedgerUnavailable: one of them does not answer.
    """
    imported = [handler.name for handler in routes.of(topic)]
    lines, dead, accounts = [], [], []
    logs: dict[int, str] = {}
    reader = ExtentReader()
    with open_ledger(settings, [topic]) as (ledger, catalog):
        changes = _log_changes(ledger, topic)
        known = [each for each in Accounts(ledger).list_accounts() if each.topic == topic]
        if not imported and not known:
            raise UnknownTopic(
                f"no handler names topic {topic!r}, and none did before. Topics: {', '.join(routes.topics)}."
            )
        found = reader.read(settings, [topic])
        held_back = find_open_transactions(settings, [extent.place for extent in found])
        for extent in found:
            log = LogHistory(ledger).log_id(topic, catalog.topic_ids[topic], extent.partition)
            logs[extent.partition] = log
            gone = [
                each
                for each in known
                if (each.partition, each.topic_id) == (extent.partition, log) and each.handler not in imported
            ]
            now = [Account(name, topic, log, extent.partition) for name in imported]
            wiped = find_wiped_end(settings, ledger, extent, now)
            unread = 0
            for account in [*now, *gone]:
                made = count_audit_line(ledger, account, extent, account in now, wiped)
                _show_ages(ledger, account, made)
                lines.append(made)
                accounts.append(account)
                unread = max(unread, _unread(ledger, account, extent) if account in now else 0)
                runs = ledger.runs(account, {Fate.DEAD}, extent.first, extent.end - 1)
                earlier = _earlier_handlers(settings, topic, account.handler)
                dead.append(DeadDeliveries(account.handler, extent.partition, runs, earlier))
            # A bridge that has reported it may not have committed yet.
            if unread and (extent.partition, extent.committed) not in {(c.partition, c.first) for c in changes}:
                changes.insert(0, _taken(extent, unread))
        carried = CarrierSearch(app, settings, ledger, catalog, topic, routes.queues)
        by_account = dict(zip(accounts, lines, strict=True))
        search = ParkedSearch(settings, ledger, catalog, topic, reader.read)
        tiers = _look_for_parked(search, carried, by_account, reader)
    # After the fates: a dead letter is written before its delivery is marked, so now each must be there.
    read = read_dead_letters(settings, topic, read=reader.read)
    dead_letters = TopicNames.from_settings(settings).dead_letters(topic)
    whole = read.whole and not any(topic == dead_letters for topic, _ in reader.unreadable)
    tally = LetterTally(dead)
    for letter in read.letters:
        if letter.whose.is_of(logs.get(letter.whose.partition, "")):
            tally.add(letter)
    for line, deliveries in zip(lines, dead, strict=True):
        line.letters_missing = deliveries.first_without_letter(NAMED) if whole else []
    deaths = tally.summarize()
    return TopicAudit(
        topic,
        sorted(lines, key=lambda each: (each.handler, each.partition)),
        deaths,
        changes,
        tiers,
        held_back,
        reader.unreadable,
    )


def _look_for_parked(
    search: ParkedSearch, carried: CarrierSearch, lines: Mapping[Account, AuditLine], reader: ExtentReader
) -> list[RetryTopicCount]:
    """Count a parked delivery as unaccounted for if no retry topic, replay topic or message has it.

    None is while a partition of these topics cannot be read: it may be there.
    """
    nowhere = carried.without(search.missing(lines), search)
    if any(topic in search.tiers for topic, _ in reader.unreadable):
        nowhere = {}
    for account, offsets in nowhere.items():
        lines[account].unaccounted += len(offsets)
        lines[account].parked_nowhere = sorted(offsets)[:NAMED]
    search.count_unaccounted()
    return search.by_delay()


def _log_changes(ledger: Ledger, topic: str) -> list[LogChange]:
    return [
        LogChange(change.partition, change.what, change.first, change.end, change.lost, format_time(change.at))
        for change in LogHistory(ledger).read_changes()
        if change.topic == topic
    ]


def _unread(ledger: Ledger, account: Account, extent: Extent) -> int:
    """Return how many deliveries behind the committed offset retention deleted before a bridge reported it."""
    if extent.committed is None or extent.committed >= extent.first:
        return 0
    count = ledger.count(account, extent.committed, extent.first - 1)
    return count.fates[Fate.OPEN] + count.pageless


def _taken(extent: Extent, lost: int) -> LogChange:
    assert extent.committed is not None
    return LogChange(extent.partition, "expired", extent.committed, extent.first, lost, format_time(time.time()))


def _show_ages(ledger: Ledger, account: Account, made: AuditLine) -> None:
    """Set since when the oldest delivery of a line is in flight."""
    if made.oldest and (at := find_handoff_times(ledger, account, made.oldest)):
        made.oldest_since = format_time(min(at.values()))


def _earlier_handlers(settings: Settings, topic: str, handler: str) -> Sequence[str]:
    sequence = settings.topic(topic).sequence
    return sequence[: sequence.index(handler)] if handler in sequence else ()
