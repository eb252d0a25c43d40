"""What is to be known of a plan before it is approved: its letters by handler and reason, and what is against it."""

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Final

from bridge.deadletters.actions.sending import target_of
from bridge.deadletters.fates import Fates
from bridge.deadletters.letters.filters import Filter
from bridge.deadletters.plan.plan import Counts, What
from bridge.deadletters.store import contents, items, weighing
from bridge.deadletters.store.database import Database
from bridge.deadletters.store.weighing import Heap
from bridge.errors import KafkaUnavailable, LedgerUnavailable
from bridge.kafka import admin_client
from bridge.ledger import Fate
from bridge.settings import Settings
from bridge.topics.extents import extents
from bridge.topics.making import configs
from bridge.topics.readers import readers

#: Letters of which the ledger is asked at once.
AT_ONCE: Final = 5_000


class Counting:
    """Counts what a plan that was just frozen is about.

    Parameters:
        handlers: that the app or a worker knows.
    """

    def __init__(self, settings: Settings, database: Database, handlers: Collection[str]) -> None:
        self._settings, self._database, self._handlers = settings, database, handlers

    def counts(self, plan_id: int, what: What, asked: Filter) -> Counts:
        """All of it; what Kafka or Redis does not tell is a warning."""
        with self._database.reading() as connection:
            heaps = weighing.heaps(connection, plan_id)
            replaying = weighing.replaying(connection, asked)
            ended = weighing.ended(connection, asked.ids) if what is not What.ARCHIVE or not asked.statuses else []
        found = Counts(
            letters=sum(heap.letters for heap in heaps),
            handlers=_handlers(heaps),
            replaying=replaying,
            foreign=sum(heap.letters for heap in heaps if not heap.is_ours),
            replayed=_replayed(heaps),
            warnings=tuple(f"letter {id_} is {status}, and stays so" for id_, status in ended),
        )
        if what is not What.REPLAY:
            return found
        return self._of_replay(plan_id, found, heaps)

    def _of_replay(self, plan_id: int, found: Counts, heaps: Sequence[Heap]) -> Counts:
        warnings = [*found.warnings]
        unknown = Counter[str]()
        for heap in heaps:
            if heap.is_ours and heap.handler not in self._handlers:
                unknown[heap.handler] += heap.letters
        with self._database.reading() as connection:
            of_nowhere = weighing.of_nowhere(connection, plan_id)
        foreign = found.foreign - sum(of_nowhere.values())
        done = too_large = too_old = 0
        try:
            done = self._done(plan_id)
        except (KafkaUnavailable, LedgerUnavailable) as error:
            warnings.append(f"What is done already is not known: {error}")
        try:
            too_large, too_old = self._too_large(plan_id, heaps), self._too_old(plan_id)
            warnings += self._readers(of_nowhere, heaps)
        except KafkaUnavailable as error:
            warnings.append(f"Kafka was not asked what it takes, and what it still has: {error}")
        changed: dict[str, object] = {"done": done, "too_large": too_large, "too_old": too_old, "foreign": foreign}
        changed |= {"unknown_handlers": dict(unknown)}
        return Counts.from_data({**found.to_data(), **changed, "warnings": [*warnings, *_loops(found)]})

    def _done(self, plan_id: int) -> int:
        """How many the ledger has as done."""
        count = after = 0
        with Fates.opened(self._settings) as fates:
            while True:
                with self._database.reading() as connection:
                    page = items.page(connection, plan_id, after, AT_ONCE)
                    own = [item.letter_id for item in page if item.letter_id and item.place is None]
                    letters = contents.standings(connection, own).values()
                if not page:
                    return count
                after = page[-1].position
                count += fates.of([letter.delivery for letter in letters if letter.is_ours and not letter.again]).count(
                    Fate.DONE
                )

    def _too_large(self, plan_id: int, heaps: Sequence[Heap]) -> int:
        """How many have a value that alone is more than their topic takes."""
        targets = {(heap.topic, target_of(self._settings, heap.group, heap.topic, ours=heap.is_ours)) for heap in heaps}
        taken = configs(admin_client(self._settings.kafka), {target for _, target in targets})
        count = 0
        for source, target in targets:
            most = taken.get(target, {}).get("max.message.bytes", "")
            if most.isdecimal() and any(heap.largest > int(most) for heap in heaps if heap.topic == source):
                with self._database.reading() as connection:
                    count += weighing.larger(connection, plan_id, source, int(most))
        return count

    def _too_old(self, plan_id: int) -> int:
        """How many lie in Kafka alone, and there no more."""
        with self._database.reading() as connection:
            spots = weighing.away(connection, plan_id)
        there = {each.place: each for each in extents(self._settings, {spot.topic for spot in spots})} if spots else {}
        kept = [
            spot
            for spot in spots
            if (extent := there.get((spot.topic, spot.partition))) and extent.first <= spot.offset < extent.end
        ]
        return len(spots) - len(kept)

    def _readers(self, of_nowhere: Mapping[str, int], heaps: Sequence[Heap]) -> Iterator[str]:
        for topic, count in sorted(of_nowhere.items()):
            yield (
                f"{count:,} letters of {topic!r} do not say of which record they are, and stay: --to-topic copies them "
                "to a topic that you name."
            )
        theirs = {heap.topic for heap in heaps if not heap.is_ours} - of_nowhere.keys()
        found = readers(self._settings, theirs)
        for topic in sorted(theirs):
            groups = found.get(topic, [])
            who = f"every group that reads it gets them again: {', '.join(groups)}" if groups else "no group reads it"
            yield f"Letters of other programs go back to their topic {topic!r}, and {who}."


def _handlers(heaps: Sequence[Heap]) -> dict[str, dict[str, int]]:
    found: dict[str, dict[str, int]] = {}
    for heap in heaps:
        reasons = found.setdefault(heap.handler, {})
        reasons[heap.reason] = reasons.get(heap.reason, 0) + heap.letters
    return found


def _replayed(heaps: Sequence[Heap]) -> dict[str, int]:
    found = Counter[int]()
    for heap in heaps:
        if heap.failures > 1:
            found[heap.failures - 1] += heap.letters
    return {str(times): count for times, count in sorted(found.items())}


def _loops(found: Counts) -> Iterator[str]:
    if again := sum(found.replayed.values()):
        most = max(map(int, found.replayed))
        often = "once" if most == 1 else f"up to {most:,} times"
        yield f"{again:,} of them {'has' if again == 1 else 'have'} died again after a replay already, {often}."
