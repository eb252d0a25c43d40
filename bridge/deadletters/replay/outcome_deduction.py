"""The outcome of a delivery that the ledger does not know, deduced from Kafka: its record was read, is parked, or died
again. The verdicts are pure.
"""

import time
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Final, NamedTuple

from bridge.deadletters.db import plan_item_rows, position_rows, sql
from bridge.deadletters.db.database import Database
from bridge.deadletters.db.letter_payload import LetterStanding
from bridge.deadletters.db.plan_item_rows import SentPosition
from bridge.deadletters.replay.kafka_lookup import read_topic_id
from bridge.deadletters.replay.ledger_fates import LedgerFates
from bridge.deadletters.replay.replay_target import name_target_topic
from bridge.formats.delivery_identity import Origin
from bridge.kafka.partition_offsets import read_extents
from bridge.kafka.topic_catalog import TopicCatalog
from bridge.kafka.topic_names import TopicNames
from bridge.ledger.fate_rules import Fate
from bridge.ledger.unsettled_retry_records import ROUNDS, ParkedSearch
from bridge.settings import Settings

#: The reasons for an outcome.
DROPPED_UNREAD: Final = "Kafka dropped it from the replay topic before a bridge had read it: it did not run"
FORGOTTEN: Final = "what became of it is not known: neither Redis nor Kafka says whether it ran"
#: The fates of a record that no bridge has handled yet.
_UNTOUCHED = (Fate.OPEN, Fate.GAP)


class OutcomeVerdict(Enum):
    """The verdict on a replaying letter."""

    WAIT = "wait"
    """It is in flight, or it died again, which the recorder will record."""
    DONE = "done"
    DISCARDED = "discarded"
    LOOK = "look"
    """The ledger has forgotten it, or does not respond for long: search Kafka."""
    UNKNOWN = "unknown"
    GONE = "gone"
    """Kafka dropped its record before a bridge read it, and the ledger proves that it was not handed off."""


@dataclass(frozen=True, slots=True)
class KnownOutcome:
    """The known facts about a replayed delivery.

    Attributes:
        origin: its fate.
        own: the fate of the record that replayed it.
        passed: whether the group has committed that record.
        there: whether Kafka still has it.
        dropped: whether Kafka has dropped it: the log begins behind it, or the topic is gone. A log that ends before it
            is no proof.
        remembers: whether the ledger has forgotten nothing since it was sent.
        settles: whether committed deliveries are settled (commit="completion"), else in the broker.
        again: whether it runs though its origin was done, so that the origin's fate says nothing.
        since: seconds since it was sent, or since the ledger's data begin, if that is later.
        patience: seconds after which the outcome is called unknown.
    """

    origin: Fate
    own: Fate
    passed: bool
    there: bool
    settles: bool
    since: float
    patience: float
    again: bool = False
    dropped: bool = False
    remembers: bool = True


def judge_by_ledger(known: KnownOutcome) -> OutcomeVerdict:
    """Return the verdict from the ledger and the topic's offsets."""
    told = known.own if known.again else known.origin
    if told is Fate.DONE:
        return OutcomeVerdict.DONE
    if told is Fate.DISCARDED:
        return OutcomeVerdict.DISCARDED
    if known.own in _UNTOUCHED:
        if known.passed:
            # The ledger has forgotten its hand-off.
            return OutcomeVerdict.LOOK
        if known.dropped and known.remembers:
            return OutcomeVerdict.GONE
        if known.there:
            return OutcomeVerdict.WAIT
        return OutcomeVerdict.LOOK if known.since > known.patience else OutcomeVerdict.WAIT
    if known.own is Fate.HANDED:
        # Bridges watch handed deliveries: they open stuck ones again.
        return OutcomeVerdict.WAIT
    if known.again and known.own is Fate.PARKED:
        return OutcomeVerdict.LOOK
    # It ran: it is parked, or died again, which the recorder will record.
    return OutcomeVerdict.LOOK if known.since > known.patience else OutcomeVerdict.WAIT


def judge_by_kafka(known: KnownOutcome, *, parked: bool, recorded: bool) -> OutcomeVerdict:
    """Return the verdict from Kafka on a delivery that has left the topic to which it was sent.

    Parameters:
        parked: whether it is parked in a retry topic, and is to run.
        recorded: whether all dead letters that Kafka had then are recorded, so that this delivery has none.
    """
    if parked or not recorded:
        return OutcomeVerdict.WAIT
    if known.again and known.own is Fate.PARKED:
        # It ran after that, and did not die.
        return OutcomeVerdict.DONE
    if known.own in _UNTOUCHED and known.passed and known.settles and known.origin is not Fate.DEAD:
        # It was settled, and is neither dead nor parked.
        return OutcomeVerdict.DONE
    return OutcomeVerdict.UNKNOWN if known.since > known.patience else OutcomeVerdict.WAIT


#: Seconds between two polls.
LOOK_EVERY: Final = 0.2


class RecordingProgress:
    """The recorded positions of the dead letters of sources."""

    def __init__(self, settings: Settings, database: Database) -> None:
        self._settings, self._database = settings, database

    def all_of(self, group: str, source: str, within: float) -> bool:
        """Return whether all dead letters of a source that Kafka has now are recorded within this time."""
        settings = self._settings.of_group(group)
        topic = TopicNames.from_settings(settings).dead_letters(source)
        ends = {each.partition: each.end for each in read_extents(settings, [topic])}
        if not any(ends.values()):
            return True
        topic_id = read_topic_id(settings, topic)
        give_up = time.monotonic() + within
        while not (found := self._is_past(group, topic, topic_id, ends)):
            if time.monotonic() > give_up:
                break
            time.sleep(LOOK_EVERY)
        return found

    def _is_past(self, group: str, topic: str, topic_id: str, ends: Mapping[int, int]) -> bool:
        with self._database.reading() as connection:
            known = position_rows.read_positions(connection, [group, ""], [topic])
        reached = {log.partition: at.next for log, at in known.items() if log.topic_id == topic_id}
        return all(reached.get(partition, 0) >= end for partition, end in ends.items())


#: Seconds to wait for the recorder to record the dead letters that Kafka has.
RECORDED_WITHIN: Final = 3.0


class SentDelivery(NamedTuple):
    """A delivery that was sent.

    Attributes:
        where: the position of its record.
        again: whether it runs though it was done.
    """

    delivery: Origin
    where: SentPosition
    again: bool = False


class OutcomeDeduction:
    """One deduction for letters whose fates the ledger does not know."""

    def __init__(self, settings: Settings, database: Database, fates: LedgerFates) -> None:
        self._settings, self._database, self._fates = settings, database, fates
        self._parked = StillParked(settings, fates)
        self._recorded = RecordingProgress(settings, database)

    def verdicts(self, letters: Sequence[LetterStanding]) -> dict[int, OutcomeVerdict]:
        """Return the verdicts on letters by id, without those in flight."""
        with self._database.reading() as connection:
            sent = plan_item_rows.read_sent_positions(connection, [letter.id for letter in letters])
        ours = [letter for letter in letters if letter.is_ours and letter.id in sent]
        return self.deduce_outcomes(
            {letter.id: SentDelivery(letter.delivery, sent[letter.id], bool(letter.again)) for letter in ours}
        )

    def deduce_outcomes(self, sent: Mapping[int, SentDelivery]) -> dict[int, OutcomeVerdict]:
        """Return the verdicts on deliveries by any number, without those in flight."""
        with self._database.reading() as connection:
            now = sql.read_clock(connection)
        found: dict[int, OutcomeVerdict] = {}
        for (group, source), some in _group_by_source(sent).items():
            known = self._known(group, source, some, now)
            verdicts = {number: judge_by_ledger(each) for number, each in known.items()}
            looked = {
                number: some[number].delivery for number, verdict in verdicts.items() if verdict is OutcomeVerdict.LOOK
            }
            if looked:
                verdicts |= self._after_a_look(group, source, looked, known)
            found |= verdicts
        return {number: verdict for number, verdict in found.items() if verdict is not OutcomeVerdict.WAIT}

    def _known(self, group: str, source: str, sent: Mapping[int, SentDelivery], now: int) -> dict[int, KnownOutcome]:
        topic = name_target_topic(self._settings, group, source, ours=True)
        # Read for each page, after the page and before the fates: an older answer lacks later sends, and a hand-off in
        # between must appear in the fates.
        there = {extent.partition: extent for extent in read_extents(self._settings.of_group(group), [topic])}
        topic_id = read_topic_id(self._settings, topic)
        spots = [(each.where.spot.partition, each.where.spot.offset) for each in sent.values()]
        own = self._fates.own(group, topic, topic_id, spots)
        origins = self._fates.read_fates([each.delivery for each in sent.values()])
        chosen, since = self._settings.topic(source), self._fates.since(group)
        has_ledger = self._fates.ledger(group) is not None
        known: dict[int, KnownOutcome] = {}
        for (number, (_, where, again)), mine, origin in zip(sent.items(), own, origins, strict=True):
            extent, offset = there.get(where.spot.partition), where.spot.offset
            known[number] = KnownOutcome(
                origin=origin,
                own=mine,
                passed=extent is not None and offset < (extent.committed or 0),
                there=extent is not None and extent.first <= offset < extent.end,
                settles=chosen.commit == "completion",
                since=now / 1000 - max(where.at / 1000, since),
                patience=self._settings.file.kafka_stuck_after,
                again=again,
                dropped=offset < extent.first if extent is not None else not topic_id,
                remembers=has_ledger and since <= where.at / 1000,
            )
        return known

    def _after_a_look(
        self, group: str, source: str, deliveries: Mapping[int, Origin], known: Mapping[int, KnownOutcome]
    ) -> dict[int, OutcomeVerdict]:
        # In this order: a delivery that leaves a retry topic meanwhile has its dead letter written before.
        parked = self._parked.find_parked(group, source)
        recorded = self._recorded.all_of(group, source, RECORDED_WITHIN)
        return {
            number: judge_by_kafka(known[number], parked=identify_delivery(delivery) in parked, recorded=recorded)
            for number, delivery in deliveries.items()
        }


class StillParked:
    """The deliveries parked in the retry and replay topics of sources.

    Results are cached, and new records are read for each call, so an answer covers all deliveries parked before the
    call, also in a sequence that goes on meanwhile. It may include a delivery that has run meanwhile.
    """

    def __init__(self, settings: Settings, fates: LedgerFates) -> None:
        self._settings, self._fates = settings, fates
        self._searches: dict[tuple[str, str], ParkedSearch] = {}
        self._found: dict[tuple[str, str], set[tuple[str, str]]] = defaultdict(set)

    def find_parked(self, group: str, source: str) -> frozenset[tuple[str, str]]:
        """Return identity and log of each parked delivery of a source that is to run."""
        ledger = self._fates.ledger(group)
        if ledger is None:
            return frozenset()
        settings = self._settings.of_group(group)
        catalog = TopicCatalog(settings, [source])
        catalog.prepare()
        made = ParkedSearch(settings, ledger, catalog, source)
        search = self._searches.setdefault((group, source), made)
        if search.tiers.keys() != made.tiers.keys():
            # A retry topic was created or deleted since.
            search = self._searches[group, source] = made
        found = self._found[group, source]
        # A delivery that ran before its fate was read may have left a later record: each round misses one step at most.
        # The first may have met no record, as it begins at the first unsettled one.
        for turn in range(max(ROUNDS, len(settings.topic(source).sequence))):
            found |= {identify_delivery(lies.origin) for lies in search.read_new_records()}
            if turn and not search.moved:
                break
        return frozenset(found)


def _group_by_source(sent: Mapping[int, SentDelivery]) -> dict[tuple[str, str], dict[int, SentDelivery]]:
    found: dict[tuple[str, str], dict[int, SentDelivery]] = defaultdict(dict)
    for number, each in sent.items():
        found[each.delivery.group, each.delivery.topic][number] = each
    return found


def identify_delivery(delivery: Origin) -> tuple[str, str]:
    """Return the identity of a delivery, and its log."""
    return delivery.identity, delivery.topic_id
