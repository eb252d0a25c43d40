"""The data of a person as they are found: records, deliveries and their fates, letters, and quotes in texts."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from typing import Final

from celery import Celery

from bridge.deadletters.db import erasure_rows
from bridge.deadletters.db.database import Database
from bridge.deadletters.db.erasure_rows import PersonLetter, SourceRecord
from bridge.deadletters.erasure.archive_erasure import ArchiveErasure, ArchiveSearch
from bridge.deadletters.erasure.person_records import SearchedTopic, find_first_unsettled, search_topics
from bridge.deadletters.model.erasure_subject import ErasureSubject
from bridge.deadletters.model.stored_letter import LetterStatus
from bridge.deadletters.replay.ledger_fates import LedgerFates
from bridge.dispatch.celery_broker import CeleryBroker
from bridge.dispatch.delivery_removal import DeliveryRemoval
from bridge.errors import KafkaUnavailable
from bridge.formats.delivery import Delivery
from bridge.formats.delivery_identity import Origin, Place
from bridge.formats.halt_scope import find_small_halts
from bridge.handler_routes import Routes
from bridge.kafka.managed_topic import TopicKind
from bridge.kafka.partition_offsets import Extent
from bridge.ledger import Account, Accounts, Fate, Ledger, LogHistory, attempt_statistics
from bridge.ledger.group_access import open_decisions, open_ledger
from bridge.settings import Settings

#: The fates of deliveries that have not ended.
UNENDED: Final = (Fate.OPEN, Fate.HANDED, Fate.PARKED, Fate.DEAD)
#: The topics whose records may be deleted once they are settled.
DRAINED: Final = (TopicKind.RETRY, TopicKind.REPLAY)


@dataclass(slots=True)
class PersonData:
    """The data that were found of a person.

    Attributes:
        topics: the topics of the group, searched.
        sources: the person's source records.
        fates: the deliveries of these that have not ended, by identity.
        limits: by partition of a retry or replay topic, the first offset that must stay, and why.
        letters: the dead letters in the database.
        notes: notes on these letters.
        texts: other texts of the database that quote the person.
        quoting: letters of others that quote the person.
        exports: how often letters were exported.
        archives: the archive files; `None`: there is no folder of archives.
        queued, taken: the deliveries in the broker's messages; `None`: the broker cannot list them.
        halts: the halts of the person's keys.
        reasons: how many reasons of halts and changed policies quote the person.
        errors: how many last errors of handlers in Redis quote the person.
    """

    topics: Sequence[SearchedTopic]
    sources: set[SourceRecord]
    fates: dict[Origin, Fate] = field(default_factory=dict)
    limits: dict[Place, tuple[int, str]] = field(default_factory=dict)
    letters: Sequence[PersonLetter] = ()
    notes: int = 0
    texts: int = 0
    quoting: Sequence[int] = ()
    exports: int = 0
    archives: ArchiveSearch | None = None
    queued: Sequence[Delivery] | None = None
    taken: Sequence[Delivery] = ()
    halts: Sequence[str] = ()
    reasons: int = 0
    errors: int = 0

    @property
    def groups(self) -> set[str]:
        """Return the consumer groups of the letters."""
        return {letter.delivery.group for letter in self.letters if letter.is_ours}

    @property
    def unended(self) -> list[str]:
        """Return the deliveries that have not ended, each with its state."""
        named = {origin.identity: fate.name.lower() for origin, fate in self.fates.items() if fate is not Fate.DEAD}
        named |= {
            letter.delivery.identity: f"dead letter {letter.id}, {letter.status}"
            for letter in self.letters
            if letter.status in (LetterStatus.OPEN, LetterStatus.REPLAYING) or letter.in_flight
        }
        recorded = {letter.delivery.identity for letter in self.letters}
        for origin, fate in self.fates.items():
            if fate is Fate.DEAD and origin.identity not in recorded:
                named[origin.identity] = "dead, and not in the database"
        return [f"{identity} ({state})" for identity, state in sorted(named.items())]


@dataclass(frozen=True)
class PersonSearch:
    """The search for a person in all places of one group.

    Every method raises DeskUnavailable, KafkaUnavailable, LedgerUnavailable or HandoffFailed if one does not answer.
    """

    app: Celery
    settings: Settings
    routes: Routes
    database: Database
    subject: ErasureSubject

    def find(self, heard: Callable[[str, int], None] = lambda topic, records: None) -> PersonData:
        """Return what there is of the person.

        Parameters:
            heard: called with each topic before it is searched, and about how many records it has.
        """
        with self.database.reading() as connection:
            others = erasure_rows.read_topics(connection)
        topics, sources = search_topics(self.settings, self.routes, self.subject, self.database.payloads, others, heard)
        found = PersonData(topics, sources)
        self._search_database(found)
        # Also of letters whose record Kafka has dropped.
        sources |= {letter.source for letter in found.letters}
        self._search_broker(found)
        sources |= {read_source(delivery) for delivery in (*(found.queued or ()), *found.taken)}
        self._search_database(found)
        self._read_fates(found)
        self._search_archives(found)
        self._search_decisions(found)
        found.errors = self.redact_errors(lambda error: error, found)
        return found

    def redact_errors(self, change: Callable[[str], str], found: PersonData) -> int:
        """Change the last errors of handlers in Redis that quote the person; return how many quote the person."""
        if self.settings.ledger_url is None:
            return 0
        quoting = 0

        def redact(error: str) -> str:
            nonlocal quoting
            quoting += self.subject.is_quoted(error)
            return change(error)

        topics = {searched.ours.name for searched in found.topics if searched.ours.kind is TopicKind.SOURCE}
        whose = [(topic, handler.name) for handler in self.routes for topic in handler.topics if topic in topics]
        with open_ledger(self.settings, []) as (ledger, _):
            attempt_statistics.redact_errors(ledger, whose, redact)
        return quoting

    def archives(self, sources: set[SourceRecord]) -> ArchiveErasure | None:
        """Return the archive files of the settings' folder; `None` if there is none."""
        folder = self.settings.file.kafka_deadletters_archive
        return None if folder is None else ArchiveErasure(folder, self.subject, self.database.payloads, sources)

    def removal(self, broker: CeleryBroker, sources: set[SourceRecord]) -> DeliveryRemoval:
        """Return the removal of the person's deliveries from the broker's messages."""
        return DeliveryRemoval(broker, lambda delivery: self._is_own(delivery, sources))

    def _is_own(self, delivery: Delivery, sources: set[SourceRecord]) -> bool:
        message = delivery.message
        if not self.subject.covers(message.topic):
            return False
        if read_source(delivery) in sources:
            return True
        readable = self.database.payloads.read(message.value, message.headers).value if self.subject.fields else None
        return self.subject.owns(message.key, readable)

    def _search_database(self, found: PersonData) -> None:
        with self.database.reading() as connection:
            found.letters = erasure_rows.find_person_letters(
                connection, self.subject, self.database.payloads, found.sources
            )
            ids = {letter.id for letter in found.letters}
            found.notes = erasure_rows.count_notes(connection, ids)
            found.texts = sum(1 for _ in erasure_rows.find_quoting_texts(connection, self.subject, ids))
            found.quoting = erasure_rows.find_quoting_letters(connection, self.subject, ids)
            found.exports = len(erasure_rows.read_exports(connection))

    def _search_broker(self, found: PersonData) -> None:
        with closing(CeleryBroker(self.app)) as broker:
            places = self.removal(broker, found.sources).find(self.routes.queues)
        if places is not None:
            found.queued, found.taken = places["queued"], places["taken"]

    def _search_archives(self, found: PersonData) -> None:
        if (archives := self.archives(found.sources)) is not None:
            found.archives = archives.search()

    def _read_fates(self, found: PersonData) -> None:
        if self.settings.ledger_url is None:
            return
        names = [searched.ours.name for searched in found.topics]
        with open_ledger(self.settings, names) as (ledger, catalog):
            found.fates = self._find_unended(ledger, catalog.topic_ids, found) | self._find_queued(ledger, found)
            found.limits = {
                place: find_first_unsettled(ledger, catalog.topic_ids, searched.extents[place])
                for searched in found.topics
                if searched.ours.kind in DRAINED
                for place in searched.found
            }

    def _find_unended(self, ledger: Ledger, ids: Mapping[str, str], found: PersonData) -> dict[Origin, Fate]:
        """Return the deliveries of the person's source records that have not ended."""
        sources = (searched for searched in found.topics if searched.ours.kind is TopicKind.SOURCE)
        extents = {place: extent for searched in sources for place, extent in searched.extents.items()}
        book, known = LogHistory(ledger), Accounts(ledger).list_accounts()
        logs = {place: book.log_id(place[0], ids.get(place[0], ""), place[1]) for place in extents}
        asked: dict[Account, list[int]] = {}
        for topic, partition, offset in sorted(found.sources):
            if (topic, partition) in logs:
                for account in self._list_accounts(topic, partition, logs[topic, partition], known):
                    asked.setdefault(account, []).append(offset)
        progress = Accounts(ledger).read_progress([*asked])
        answers = zip(asked.items(), ledger.fates_of([*asked.items()]), progress, strict=True)
        unended: dict[Origin, Fate] = {}
        for (account, offsets), fates, reached in answers:
            extent = extents[account.topic, account.partition]
            for offset, fate in zip(offsets, map(Fate, fates), strict=True):
                if fate in UNENDED and not (fate is Fate.OPEN and _is_past(extent, reached.joined, offset)):
                    unended[self._name(account, offset)] = fate
        return unended

    def _find_queued(self, ledger: Ledger, found: PersonData) -> dict[Origin, Fate]:
        """Return the deliveries in this group's messages that have not ended, also those that the ledger forgot."""
        every = map(read_origin, (*(found.queued or ()), *found.taken))
        origins = [origin for origin in every if origin.group == self.settings.group]
        fates = LedgerFates(lambda group: ledger).read_fates(origins)
        return {origin: fate for origin, fate in zip(origins, fates, strict=True) if fate in UNENDED}

    def _list_accounts(self, topic: str, partition: int, log: str, known: Sequence[Account]) -> list[Account]:
        now = [Account(handler.name, topic, log, partition) for handler in self.routes.of(topic)]
        return [*now, *(each for each in known if each[1:] == (topic, log, partition) and each not in now)]

    def _name(self, account: Account, offset: int) -> Origin:
        return Origin(account.topic, account.topic_id, account.partition, offset, account.handler, self.settings.group)

    def _search_decisions(self, found: PersonData) -> None:
        with open_decisions(self.settings) as decisions:
            if decisions.unread:
                raise KafkaUnavailable(f"Kafka does not tell which keys are halted: {decisions.unread}")
            standing = decisions.standing
        halts = find_small_halts(standing)
        found.halts = [f"{scope.topic}, {scope.handler}" for scope in halts if scope.key_bytes in self.subject.keys]
        found.reasons = sum(self.subject.is_quoted(decision.why) for decision in standing.values())


def _is_past(extent: Extent, joined: int | None, offset: int) -> bool:
    """Return whether a delivery without a fate is none that a bridge will hand off: its handler began later, or its
    fate has expired (pure).
    """
    if extent.committed is not None and offset < extent.committed:
        return True
    return joined is not None and offset < joined


def read_source(delivery: Delivery) -> SourceRecord:
    """Return the source record of a delivery."""
    return delivery.message.topic, delivery.message.partition, delivery.message.offset


def read_origin(delivery: Delivery) -> Origin:
    """Return the source record, handler and group of a delivery."""
    group = delivery.message.origin.partition(" ")[2].rpartition(" ")[0]
    return Origin(
        delivery.message.topic,
        delivery.topic_id,
        delivery.message.partition,
        delivery.message.offset,
        delivery.handler,
        group,
    )
