"""How what a redrive has sent ends, where it is no letter: by the fate of the record by which it was sent.

The origin's fate tells less: of what runs again though it is done, it was done before.
"""

from collections.abc import Mapping, Sequence
from typing import Final

from bridge.deadletters.actions.sending import target_of
from bridge.deadletters.fates import Fates
from bridge.deadletters.letters.letter import Identity
from bridge.deadletters.outcomes.deducing import StillParked
from bridge.deadletters.outcomes.recorded import Recorded
from bridge.deadletters.plan.plan import ItemState, Plan
from bridge.deadletters.redrive.redriving import delivery_of
from bridge.deadletters.store import clock, plans, redriven
from bridge.deadletters.store.database import Database
from bridge.deadletters.store.redriven import Redriven
from bridge.ledger import Fate
from bridge.records.origin import Origin
from bridge.settings import Settings
from bridge.topics.catalog import Catalog
from bridge.topics.extents import Extent, extents

#: Deliveries that are asked for at once.
PAGE: Final = 5_000
#: Seconds for which the recorder is waited for, to have taken in the dead letters that Kafka has.
RECORDED_WITHIN: Final = 3.0
#: What a fate says of how a delivery ended.
_ENDS: Final = {Fate.DONE: ItemState.DONE, Fate.DISCARDED: ItemState.DISCARDED}
_GONE: Final = "Kafka dropped it from the replay topic before a bridge had read it: it did not run"
_MADE_AGAIN: Final = "its replay topic was made again since it was sent: whether it ran is not known"
_MADE_AGAIN_LEFT: Final = (
    "its plan was left while it was being sent, and its replay topic was made again since: "
    "whether it was sent is not known"
)
_HAS_RUN: Final = "it had its run, and is neither dead nor parked"
_CUT: Final = (
    "the log of its replay topic ends before it (truncated or recreated), and the ledger knows nothing of it: "
    "whether it ran is not known"
)
_FORGOTTEN: Final = "what became of it is not known: neither Redis nor Kafka says whether it ran"


def end_of(own: Fate | None, origin: Fate, *, died: bool, again: bool) -> ItemState | None:
    """How a delivery ended; `None`: it is under way, or not known (pure).

    Parameters:
        own: the fate of the record by which it was sent; `None`: of that nothing can be known any more.
        died: whether it has a letter from after that.
        again: whether it runs though its origin was done.
    """
    if died or own is Fate.DEAD:
        return ItemState.DEAD
    return (own and _ENDS.get(own)) or (None if again else _ENDS.get(origin))


class Ending:
    """Looks how what redrives have sent ends.

    Raises, from `look`: DeskUnavailable, LedgerUnavailable, KafkaUnavailable where nothing more is known.
    """

    def __init__(self, settings: Settings, database: Database, fates: Fates) -> None:
        self._settings, self._database, self._fates = settings, database, fates

    def look(self, plan_id: int | None, *, deduces: bool) -> int:
        """Take in what has ended since; return how many deliveries are still under way.

        Parameters:
            plan_id: of this plan alone.
            deduces: whether Kafka is asked for what the ledger does not tell; that costs more.
        """
        with self._database.reading() as connection:
            found = [plans.one(connection, id_) for id_ in redriven.under_way(connection) if plan_id in (None, id_)]
        return sum(self._of_plan(plan, deduces) for plan in found if plan is not None)

    def enter(self, plan: Plan) -> None:
        """Note into which replay topic a redrive sends from now on; what it sent into one that is no more has ended.

        Raises:
            DeskUnavailable, LedgerUnavailable, KafkaUnavailable: nothing is to be sent yet.
        """
        topic = target_of(self._settings, self._settings.group, str(plan.asked["topic"]), ours=True)
        into = self._topic_id(topic)
        if into != plan.options.into:
            self._of_plan(plan, False)
            with self._database.writing() as connection:
                if plan.options.into:
                    # Who claimed them has died: they may have been sent into the topic that is no more.
                    redriven.lost(connection, plan.id, _MADE_AGAIN_LEFT, clock.now(connection))
                plans.sends_into(connection, plan, into)

    def _of_plan(self, plan: Plan, deduces: bool) -> int:
        left = after = 0
        parked = StillParked(self._settings, self._fates)
        while True:
            with self._database.reading() as connection:
                page = redriven.page(connection, plan.id, after, PAGE)
            if not page:
                return left
            after = page[-1].position
            silent = self._told(plan, page)
            left += len(silent) - (self._deduced(plan, silent, parked) if deduces and silent else 0)

    def _told(self, plan: Plan, page: Sequence[Redriven]) -> dict[Redriven, Fate]:
        """Take in what the ledger and the desk tell; return the others, with their records' own fates."""
        own = self._own(plan, page)
        deliveries = [delivery_of(plan, self._settings.group, each.place) for each in page]
        origins = self._fates.of(deliveries)
        died = self._died(page, deliveries)
        ended: dict[ItemState, list[int]] = {}
        silent: dict[Redriven, Fate] = {}
        lost: list[int] = []
        for each, mine, origin, dead in zip(page, own, origins, died, strict=True):
            state = end_of(mine, origin, died=dead, again=plan.options.again)
            if state is None and mine is None:
                lost.append(each.position)
            elif state is None:
                silent[each] = mine or Fate.OPEN
            else:
                ended.setdefault(state, []).append(each.position)
        ends = {state: dict.fromkeys(some, "") for state, some in ended.items()}
        self._end(plan, {**ends, ItemState.UNKNOWN: dict.fromkeys(lost, _MADE_AGAIN)})
        return silent

    def _deduced(self, plan: Plan, silent: Mapping[Redriven, Fate], still_parked: StillParked) -> int:
        """Take in what Kafka tells of the others; return how many ended so."""
        spots = {each.spot.topic for each in silent}
        there = {each.place: each for each in extents(self._settings, spots)}
        gone = self._gone(plan, [each for each, own in silent.items() if own is Fate.OPEN], there)
        ran = [each for each, own in silent.items() if own is Fate.PARKED]
        forgotten = [each for each, own in silent.items() if own is Fate.OPEN and _is_passed(each, there)]
        cut = self._cut([each for each, own in silent.items() if own is Fate.OPEN], there)
        ends: dict[ItemState, dict[int, str]] = {ItemState.UNKNOWN: dict.fromkeys(gone, _GONE)}
        behind = {each.position for each in cut}
        if ran or forgotten or cut:
            topic = str(plan.asked["topic"])
            parked = {identity for identity, _ in still_parked.of(self._settings.group, topic)}
            # In this order: what leaves a retry topic meanwhile has its dead letter before, if it has one.
            if Recorded(self._settings, self._database).all_of(self._settings.group, topic, RECORDED_WITHIN):
                left = [each for each in (*ran, *forgotten, *cut) if each.place not in parked]
                # It may have died and been recorded since the ledger was asked.
                died = self._died(left, [delivery_of(plan, self._settings.group, each.place) for each in left])
                over = [each for each, dead in zip(left, died, strict=True) if not dead]
                # What runs though its origin was done: of any other the origin says that it is done.
                done = [each for each in over if plan.options.again and silent[each] is Fate.PARKED]
                unknown = self._long_silent(
                    [each for each in over if not (plan.options.again and silent[each] is Fate.PARKED)]
                )
                ends[ItemState.DEAD] = {each.position: "" for each, dead in zip(left, died, strict=True) if dead}
                ends[ItemState.DONE] = {each.position: _HAS_RUN for each in done}
                ends[ItemState.UNKNOWN] |= {
                    position: _CUT if position in behind else _FORGOTTEN for position in unknown
                }
        self._end(plan, ends)
        return sum(map(len, ends.values()))

    def _gone(self, plan: Plan, some: Sequence[Redriven], there: Mapping[tuple[str, int], Extent]) -> list[int]:
        """Return the positions of what Kafka dropped before a bridge handed it off, with the ledger as the proof."""
        dropped = [each for each in some if _is_dropped(each, there)]
        since = self._fates.since(self._settings.group)
        if not dropped or self._fates.ledger(self._settings.group) is None:
            return []
        if not there and self._topic_id(dropped[0].spot.topic):
            # Of two answers one knows the topic.
            return []
        # Once more, after Kafka was asked: it may have been handed off before it was dropped.
        own = self._own(plan, dropped)
        return [
            each.position
            for each, fate in zip(dropped, own, strict=True)
            if fate is Fate.OPEN and since <= each.at / 1000
        ]

    def _cut(self, some: Sequence[Redriven], there: Mapping[tuple[str, int], Extent]) -> list[Redriven]:
        """Return those behind the end of their log, where two answers of Kafka say so: one may be a late one."""
        found = [each for each in some if _is_behind_the_end(each, there)]
        if not found:
            return []
        again = {each.place: each for each in extents(self._settings, {each.spot.topic for each in found})}
        return [each for each in found if _is_behind_the_end(each, again)]

    def _long_silent(self, some: Sequence[Redriven]) -> list[int]:
        """Of these, what was sent so long ago that nothing more is waited for."""
        with self._database.reading() as connection:
            now = clock.now(connection)
        patience = 1_000 * self._settings.file.kafka_stuck_after
        return [each.position for each in some if now - each.at > patience]

    def _own(self, plan: Plan, page: Sequence[Redriven]) -> Sequence[Fate | None]:
        """Of each the fate of its record; `None`: its topic was made again, and another's record lies there.

        A redrive has one replay topic.
        """
        topic = page[0].spot.topic
        now = self._topic_id(topic)
        if now and plan.options.into and now != plan.options.into:
            return [None] * len(page)
        spots = [(each.spot.partition, each.spot.offset) for each in page]
        return self._fates.own(self._settings.group, topic, now, spots)

    def _topic_id(self, topic: str) -> str:
        catalog = Catalog(self._settings, [topic])
        catalog.prepare()
        return catalog.topic_ids.get(topic, "")

    def _died(self, page: Sequence[Redriven], deliveries: Sequence[Origin]) -> list[bool]:
        digests = [Identity(each.group, *each[:5]).digest for each in deliveries]
        with self._database.reading() as connection:
            numbers = redriven.numbers(connection, digests)
        return [numbers.get(digest, -1) >= each.number for digest, each in zip(digests, page, strict=True)]

    def _end(self, plan: Plan, ends: Mapping[ItemState, Mapping[int, str]]) -> None:
        if not any(ends.values()):
            return
        with self._database.writing() as connection:
            at = clock.now(connection)
            for state, whys in ends.items():
                redriven.end(connection, plan.id, whys, state, at)


def _is_dropped(each: Redriven, there: Mapping[tuple[str, int], Extent]) -> bool:
    """Whether Kafka has it no more, and nobody has committed it; a log that ends before it does not prove that."""
    extent = there.get((each.spot.topic, each.spot.partition))
    return extent is None or extent.first > each.spot.offset >= (extent.committed or 0)


def _is_behind_the_end(each: Redriven, there: Mapping[tuple[str, int], Extent]) -> bool:
    extent = there.get((each.spot.topic, each.spot.partition))
    return extent is not None and extent.end <= each.spot.offset and not _is_passed(each, there)


def _is_passed(each: Redriven, there: Mapping[tuple[str, int], Extent]) -> bool:
    extent = there.get((each.spot.topic, each.spot.partition))
    return extent is not None and each.spot.offset < (extent.committed or 0)
