"""Where the ledger is silent of what was sent back, Kafka is asked: was its record read, is it parked, did it die."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from bridge.deadletters.actions.sending import target_of
from bridge.deadletters.fates import Fates
from bridge.deadletters.outcomes.recorded import Recorded
from bridge.deadletters.outcomes.verdict import Known, Verdict, after_a_look, at_first
from bridge.deadletters.store import clock, items
from bridge.deadletters.store.contents import Standing
from bridge.deadletters.store.database import Database
from bridge.deadletters.store.items import Where
from bridge.handoff.parked import ROUNDS, Search
from bridge.records.origin import Origin
from bridge.settings import Settings
from bridge.topics.catalog import Catalog
from bridge.topics.extents import extents

#: Seconds for which the recorder is waited for, to have taken in the dead letters that Kafka has.
RECORDED_WITHIN: Final = 3.0


class Sent(NamedTuple):
    """A delivery that was sent.

    Attributes:
        where: its record lies.
        again: whether it runs though it was done.
    """

    delivery: Origin
    where: Where
    again: bool = False


class Deducing:
    """One look at the letters of which the ledger says nothing."""

    def __init__(self, settings: Settings, database: Database, fates: Fates) -> None:
        self._settings, self._database, self._fates = settings, database, fates
        self._parked = StillParked(settings, fates)
        self._recorded = Recorded(settings, database)

    def verdicts(self, letters: Sequence[Standing]) -> dict[int, Verdict]:
        """How these letters have ended, by id; of those that are under way nothing.

        Raises:
            DeskUnavailable, LedgerUnavailable, KafkaUnavailable: nothing is known.
        """
        with self._database.reading() as connection:
            sent = items.where(connection, [letter.id for letter in letters])
        ours = [letter for letter in letters if letter.is_ours and letter.id in sent]
        return self.of({letter.id: Sent(letter.delivery, sent[letter.id], bool(letter.again)) for letter in ours})

    def of(self, sent: Mapping[int, Sent]) -> dict[int, Verdict]:
        """How deliveries have ended, by any number; of those that are under way nothing.

        Raises:
            DeskUnavailable, LedgerUnavailable, KafkaUnavailable: nothing is known.
        """
        with self._database.reading() as connection:
            now = clock.now(connection)
        found: dict[int, Verdict] = {}
        for (group, source), some in _by_source(sent).items():
            known = self._known(group, source, some, now)
            verdicts = {number: at_first(each) for number, each in known.items()}
            looked = {number: some[number].delivery for number, verdict in verdicts.items() if verdict is Verdict.LOOK}
            if looked:
                verdicts |= self._after_a_look(group, source, looked, known)
            found |= verdicts
        return {number: verdict for number, verdict in found.items() if verdict is not Verdict.WAIT}

    def _known(self, group: str, source: str, sent: Mapping[int, Sent], now: int) -> dict[int, Known]:
        topic = target_of(self._settings, group, source, ours=True)
        # Asked anew for each page, after it was read, and before the fates: an older answer does not know what was sent
        # since, and what is handed off meanwhile must be seen as that.
        there = {extent.partition: extent for extent in extents(self._settings.of_group(group), [topic])}
        topic_id = self._topic_id(topic)
        spots = [(each.where.spot.partition, each.where.spot.offset) for each in sent.values()]
        own = self._fates.own(group, topic, topic_id, spots)
        origins = self._fates.of([each.delivery for each in sent.values()])
        chosen, since = self._settings.topic(source), self._fates.since(group)
        has_ledger = self._fates.ledger(group) is not None
        known: dict[int, Known] = {}
        for (number, (_, where, again)), mine, origin in zip(sent.items(), own, origins, strict=True):
            extent, offset = there.get(where.spot.partition), where.spot.offset
            known[number] = Known(
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
        self, group: str, source: str, deliveries: Mapping[int, Origin], known: Mapping[int, Known]
    ) -> dict[int, Verdict]:
        # In this order: what leaves a retry topic meanwhile has its dead letter before, if it has one.
        parked = self._parked.of(group, source)
        recorded = self._recorded.all_of(group, source, RECORDED_WITHIN)
        return {
            number: after_a_look(known[number], parked=_which(delivery) in parked, recorded=recorded)
            for number, delivery in deliveries.items()
        }

    def _topic_id(self, topic: str) -> str:
        catalog = Catalog(self._settings, [topic])
        catalog.prepare()
        return catalog.topic_ids.get(topic, "")


class StillParked:
    """The deliveries that wait in the retry and replay topics of sources.

    What was found is kept for the next question, and what has come since is read each time: an answer covers all that
    was parked before it was asked for. A delivery that has run meanwhile may still be in it.
    """

    def __init__(self, settings: Settings, fates: Fates) -> None:
        self._settings, self._fates = settings, fates
        self._searches: dict[tuple[str, str], Search] = {}
        self._found: dict[tuple[str, str], set[tuple[str, str]]] = defaultdict(set)

    def of(self, group: str, source: str) -> frozenset[tuple[str, str]]:
        """Return identity and log of each delivery of a source that is parked and is to run.

        Raises:
            LedgerUnavailable, KafkaUnavailable: nothing is known.
        """
        ledger = self._fates.ledger(group)
        if ledger is None:
            return frozenset()
        settings = self._settings.of_group(group)
        catalog = Catalog(settings, [source])
        catalog.prepare()
        made = Search(settings, ledger, catalog, source)
        search = self._searches.setdefault((group, source), made)
        if search.tiers.keys() != made.tiers.keys():
            # A retry topic was created or deleted since.
            search = self._searches[group, source] = made
        found = self._found[group, source]
        for _ in range(ROUNDS):
            more = {_which(lies.origin) for lies in search.look()}
            found |= more
            if not more:
                break
        return frozenset(found)


def _by_source(sent: Mapping[int, Sent]) -> dict[tuple[str, str], dict[int, Sent]]:
    found: dict[tuple[str, str], dict[int, Sent]] = defaultdict(dict)
    for number, each in sent.items():
        found[each.delivery.group, each.delivery.topic][number] = each
    return found


def _which(delivery: Origin) -> tuple[str, str]:
    """A delivery, and the log that it is of."""
    return delivery.identity, delivery.topic_id
