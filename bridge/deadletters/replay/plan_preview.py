"""The preview of a plan: the deliveries that are added for other handlers, and the figures that a person needs before
approving it, by handler and reason, with the warnings.
"""

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import replace
from typing import Final

from celery import Celery

from bridge.deadletters.db import letter_payload, plan_counts, plan_item_rows, plan_order_rows
from bridge.deadletters.db.database import Connection, Database
from bridge.deadletters.db.letter_payload import LetterStanding
from bridge.deadletters.db.plan_counts import LetterHeap
from bridge.deadletters.db.plan_item_rows import PlanItem
from bridge.deadletters.db.value_search import find_among
from bridge.deadletters.model.bulk_plan import PlanCounts, PlanKind
from bridge.deadletters.model.letter_filter import LetterFilter
from bridge.deadletters.model.plan_order import find_course
from bridge.deadletters.model.stored_letter import LetterIdentity, LetterStatus
from bridge.deadletters.replay.ledger_fates import LedgerFates
from bridge.deadletters.replay.replay_target import name_target_topic
from bridge.errors import FilterFault, KafkaUnavailable, LedgerUnavailable
from bridge.formats.text_forms import format_count, inflect_verb
from bridge.handler_routes import Routes
from bridge.kafka.clients import admin_client
from bridge.kafka.consumer_groups import find_reading_groups
from bridge.kafka.partition_offsets import read_extents
from bridge.kafka.topic_admin import read_topic_configs
from bridge.ledger import Fate, Ledger
from bridge.ledger.group_members import GroupMembers
from bridge.settings import Settings


def choose_letters(what: PlanKind, filter_: LetterFilter) -> LetterFilter:
    """Return the filter of those letters that a plan may take (pure).

    Raises:
        FilterFault: the filter selects other statuses alone.
    """
    if what is PlanKind.ARCHIVE and filter_.statuses:
        return filter_
    return filter_.only_discardable() if what is PlanKind.DISCARD else filter_.only_open()


def find_known_handlers(app: Celery, settings: Settings, routes: Routes) -> frozenset[str]:
    """Return the names of the handlers that this app or a living worker knows; without Redis those of the app."""
    names = set(routes.handlers)
    for name in routes.handlers:
        names |= set(getattr(app.tasks.get(name), "other_names", ()))
    if (ledger := Ledger.from_settings(settings)) is not None:
        with closing(ledger), suppress(LedgerUnavailable):
            for state in GroupMembers(ledger, "workers").living().values():
                names |= set(map(str, state.get("handlers", ())))
    return frozenset(names)


#: Letters of one batch whose other handlers are added.
OTHERS_AT_ONCE: Final = 1_000


def add_other_handlers(
    connection: Connection, plan_id: int, letters: int, settings: Settings, routes: Routes, canary: bool
) -> int:
    """Add the other handlers' deliveries to a plan, each next to its letter's; return the new number of items.

    A delivery with an open letter goes as that letter. Done ones and those in flight are left out when the plan is
    applied. In a `sequence` the later handlers follow by themselves.

    Parameters:
        letters: the number of the plan's letters so far.
    """
    last, after = letters, 0
    taken: set[int] = set()
    while page := [
        item
        for item in plan_item_rows.read_items(connection, plan_id, after, OTHERS_AT_ONCE)
        if item.position <= letters
    ]:
        after = page[-1].position
        found = letter_payload.read_letter_standings(connection, [item.letter_id for item in page if item.letter_id])
        taken |= found.keys()
        others = dict(_find_others(found, settings, routes))
        known = plan_counts.find_letters_by_digest(connection, others)
        more: list[PlanItem] = []
        for digest, (letter, handler) in others.items():
            if digest not in known:
                of = letter.delivery
                course = find_course(settings, of.group, of.topic, handler)
                lane = course and course.lane(of.partition, letter.key)
                place = of._replace(handler=handler).identity
                more.append(PlanItem(last + len(more) + 1, letter.id, place, letter.failures, lane))
                continue
            its = known[digest]
            if its.status is LetterStatus.OPEN and its.id not in taken:
                taken.add(its.id)
                more.append(PlanItem(last + len(more) + 1, its.id, None, its.failures))
        plan_item_rows.add_items(connection, plan_id, more, canary=False)
        last += len(more)
    plan_order_rows.renumber_items(connection, plan_id)
    if canary:
        plan_order_rows.cut_waves(connection, plan_id)
    return last


def _find_others(
    found: Mapping[int, LetterStanding], settings: Settings, routes: Routes
) -> Iterator[tuple[bytes, tuple[LetterStanding, str]]]:
    """Yield, by the digest of each other handler's delivery, the letter and the handler."""
    for letter in found.values():
        origin = letter.delivery
        if not letter.is_ours or settings.topic(origin.topic).sequence:
            continue
        for handler in [handler.name for handler in routes.of(origin.topic)]:
            if handler != origin.handler:
                yield LetterIdentity.for_delivery(origin._replace(handler=handler)).digest, (letter, handler)


#: Letters whose fates are read at once.
AT_ONCE: Final = 5_000


class PlanCounter:
    """The counter of a plan that was just frozen.

    Parameters:
        handlers: the handlers that the app or a worker knows.
    """

    def __init__(self, settings: Settings, database: Database, handlers: Collection[str]) -> None:
        self._settings, self._database, self._handlers = settings, database, handlers

    def counts(self, plan_id: int, what: PlanKind, filter_: LetterFilter) -> PlanCounts:
        """Return all counts; if Kafka or Redis does not answer, a warning."""
        replaying, warning = self._count_replaying(filter_)
        with self._database.reading() as connection:
            heaps = plan_counts.count_letter_heaps(connection, plan_id)
            ended = plan_counts.find_ended_letters(connection, filter_.ids)
        taken = choose_letters(what, filter_).statuses
        found = PlanCounts(
            letters=sum(heap.letters for heap in heaps),
            handlers=_count_handlers(heaps),
            replaying=replaying,
            foreign=sum(heap.letters for heap in heaps if not heap.is_ours),
            replayed=_count_replayed(heaps),
            warnings=(
                *(f"letter {id_} is {status}, and stays so" for id_, status in ended if status not in taken),
                *warning,
            ),
        )
        if what is not PlanKind.REPLAY:
            return found
        return self._of_replay(plan_id, found, heaps)

    def _count_replaying(self, filter_: LetterFilter) -> tuple[int, tuple[str, ...]]:
        """Return how many letters of a filter are replaying already, and a warning if they are too many to search."""
        if filter_.statuses and LetterStatus.REPLAYING not in filter_.statuses:
            return 0, ()
        try:
            among = find_among(self._database, replace(filter_, statuses=(LetterStatus.REPLAYING,)))
        except FilterFault as error:
            return 0, (f"Letters that are replaying already are not counted: {error}",)
        with self._database.reading() as connection:
            return plan_counts.count_replaying_letters(connection, filter_, among), ()

    def _of_replay(self, plan_id: int, found: PlanCounts, heaps: Sequence[LetterHeap]) -> PlanCounts:
        warnings = [*found.warnings]
        unknown = Counter[str]()
        for heap in heaps:
            if heap.is_ours and heap.handler not in self._handlers:
                unknown[heap.handler] += heap.letters
        with self._database.reading() as connection:
            of_nowhere = plan_counts.count_letters_of_nowhere(connection, plan_id)
        foreign = found.foreign - sum(of_nowhere.values())
        done = too_large = too_old = 0
        try:
            done = self._done(plan_id)
        except (KafkaUnavailable, LedgerUnavailable) as error:
            warnings.append(f"Deliveries that are done are not counted: {error}")
        try:
            too_large, too_old = self._too_large(plan_id, heaps), self._too_old(plan_id)
            warnings += self._readers(of_nowhere, heaps)
        except KafkaUnavailable as error:
            warnings.append(f"Sizes and dropped values were not checked in Kafka: {error}")
        changed: dict[str, object] = {"done": done, "too_large": too_large, "too_old": too_old, "foreign": foreign}
        changed |= {"unknown_handlers": dict(unknown)}
        return PlanCounts.from_data({**found.to_data(), **changed, "warnings": [*warnings, *_find_loops(found)]})

    def _done(self, plan_id: int) -> int:
        """Return how many letters are done, says the ledger."""
        count = after = 0
        with LedgerFates.opened(self._settings) as fates:
            while True:
                with self._database.reading() as connection:
                    page = plan_item_rows.read_items(connection, plan_id, after, AT_ONCE)
                    own = [item.letter_id for item in page if item.letter_id and item.place is None]
                    letters = letter_payload.read_letter_standings(connection, own).values()
                if not page:
                    return count
                after = page[-1].position
                count += fates.read_fates(
                    [letter.delivery for letter in letters if letter.is_ours and not letter.again]
                ).count(Fate.DONE)

    def _too_large(self, plan_id: int, heaps: Sequence[LetterHeap]) -> int:
        """Return how many letters have a value larger than their topic takes."""
        targets = {
            (heap.topic, name_target_topic(self._settings, heap.group, heap.topic, ours=heap.is_ours)) for heap in heaps
        }
        taken = read_topic_configs(admin_client(self._settings.kafka), {target for _, target in targets})
        count = 0
        for source, target in targets:
            most = taken.get(target, {}).get("max.message.bytes", "")
            if most.isdecimal() and any(heap.largest > int(most) for heap in heaps if heap.topic == source):
                with self._database.reading() as connection:
                    count += plan_counts.count_larger_letters(connection, plan_id, source, int(most))
        return count

    def _too_old(self, plan_id: int) -> int:
        """Return how many values Kafka alone had, and has dropped."""
        with self._database.reading() as connection:
            spots = plan_counts.find_values_away(connection, plan_id)
        there = (
            {each.place: each for each in read_extents(self._settings, {spot.topic for spot in spots})} if spots else {}
        )
        kept = [
            spot
            for spot in spots
            if (extent := there.get((spot.topic, spot.partition))) and extent.first <= spot.offset < extent.end
        ]
        return len(spots) - len(kept)

    def _readers(self, of_nowhere: Mapping[str, int], heaps: Sequence[LetterHeap]) -> Iterator[str]:
        for topic, count in sorted(of_nowhere.items()):
            yield (
                f"{format_count(count, 'letter')} of {topic!r} {inflect_verb(count, 'do')} not say of which "
                "record, and stay here: --to-topic copies them "
                "to a topic that you name."
            )
        theirs = {heap.topic for heap in heaps if not heap.is_ours} - of_nowhere.keys()
        found = find_reading_groups(self._settings, theirs)
        for topic in sorted(theirs):
            groups = found.get(topic, [])
            who = f"every group that reads it gets them again: {', '.join(groups)}" if groups else "no group reads it"
            yield f"Letters of other programs go back to their topic {topic!r}, and {who}."


def _count_handlers(heaps: Sequence[LetterHeap]) -> dict[str, dict[str, int]]:
    found: dict[str, dict[str, int]] = {}
    for heap in heaps:
        reasons = found.setdefault(heap.handler, {})
        reasons[heap.reason] = reasons.get(heap.reason, 0) + heap.letters
    return found


def _count_replayed(heaps: Sequence[LetterHeap]) -> dict[str, int]:
    found = Counter[int]()
    for heap in heaps:
        if heap.failures > 1:
            found[heap.failures - 1] += heap.letters
    return {str(times): count for times, count in sorted(found.items())}


def _find_loops(found: PlanCounts) -> Iterator[str]:
    if again := sum(found.replayed.values()):
        most = max(map(int, found.replayed))
        often = "once" if most == 1 else f"up to {most:,} times"
        yield f"{again:,} of them {'has' if again == 1 else 'have'} died again after a replay already, {often}."
