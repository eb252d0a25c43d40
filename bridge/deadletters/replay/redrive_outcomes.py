"""The outcomes of redriven deliveries that have no letter, from the fate of the record that the redrive sent."""

from collections.abc import Mapping, Sequence
from typing import Final

from bridge.deadletters.db import inflight_delivery_rows, plan_item_rows, plan_rows, sql
from bridge.deadletters.db.database import Database
from bridge.deadletters.db.inflight_delivery_rows import SentRedrive
from bridge.deadletters.model.bulk_plan import BulkPlan, PlanItemState
from bridge.deadletters.model.stored_letter import LetterIdentity
from bridge.deadletters.replay.kafka_lookup import read_topic_id
from bridge.deadletters.replay.ledger_fates import LedgerFates
from bridge.deadletters.replay.outcome_deduction import (
    DROPPED_UNREAD,
    FORGOTTEN,
    RECORDED_WITHIN,
    RecordingProgress,
    StillParked,
)
from bridge.deadletters.replay.redrive_action import find_redriven_delivery
from bridge.deadletters.replay.replay_target import name_target_topic
from bridge.formats.delivery_identity import Origin
from bridge.kafka.partition_offsets import Extent, read_extents
from bridge.ledger import Fate
from bridge.settings import Settings

#: Deliveries that are read at once.
PAGE: Final = 5_000
#: The state of an item by its fate.
_ENDS: Final = {Fate.DONE: PlanItemState.DONE, Fate.DISCARDED: PlanItemState.DISCARDED}
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


def decide_redrive_end(own: Fate | None, origin: Fate, *, died: bool, again: bool) -> PlanItemState | None:
    """Return how a delivery ended; `None` if it is in flight or unknown (pure).

    Parameters:
        own: the fate of the record that was sent; `None`: it cannot be known any more.
        died: whether it has a letter from after that.
        again: whether it runs though its origin was done.
    """
    if died or own is Fate.DEAD:
        return PlanItemState.DEAD
    return (own and _ENDS.get(own)) or (None if again else _ENDS.get(origin))


class RedriveOutcomes:
    """The outcomes of redriven deliveries.

    `look` raises DeskUnavailable, LedgerUnavailable or KafkaUnavailable if a server does not answer.
    """

    def __init__(self, settings: Settings, database: Database, fates: LedgerFates) -> None:
        self._settings, self._database, self._fates = settings, database, fates

    def note_outcomes(self, plan_id: int | None, *, deduces: bool) -> int:
        """Note new outcomes; return how many deliveries are still in flight.

        Parameters:
            plan_id: of this plan alone.
            deduces: whether outcomes that the ledger does not know are deduced from Kafka, which costs more.
        """
        with self._database.reading() as connection:
            found = [
                plan_rows.read_plan(connection, id_)
                for id_ in inflight_delivery_rows.find_redrives_under_way(connection)
                if plan_id in (None, id_)
            ]
        return sum(self._of_plan(plan, deduces) for plan in found if plan is not None)

    def enter(self, plan: BulkPlan) -> None:
        """Note the replay topic of a redrive; deliveries that were sent into an older one have ended.

        Raises:
            DeskUnavailable, LedgerUnavailable, KafkaUnavailable: nothing may be sent yet.
        """
        topic = name_target_topic(self._settings, self._settings.group, str(plan.asked["topic"]), ours=True)
        into = read_topic_id(self._settings, topic)
        if into != plan.options.into:
            self._of_plan(plan, False)
            with self._database.writing() as connection:
                if plan.options.into:
                    # Their process has died: they may have been sent into the deleted topic.
                    inflight_delivery_rows.note_lost_redrives(
                        connection, plan.id, _MADE_AGAIN_LEFT, sql.read_clock(connection)
                    )
                plan_rows.note_target_topic(connection, plan, into)

    def _of_plan(self, plan: BulkPlan, deduces: bool) -> int:
        left = after = 0
        parked = StillParked(self._settings, self._fates)
        while True:
            with self._database.reading() as connection:
                page = inflight_delivery_rows.read_sent_redrives(connection, plan.id, after, PAGE)
            if not page:
                return left
            after = page[-1].position
            silent = self._told(plan, page)
            left += len(silent) - (self._deduced(plan, silent, parked) if deduces and silent else 0)

    def _told(self, plan: BulkPlan, page: Sequence[SentRedrive]) -> dict[SentRedrive, Fate]:
        """Note outcomes from the ledger and the database; return the others, with their records' own fates."""
        own = self._own(plan, page)
        deliveries = [find_redriven_delivery(plan, self._settings.group, redrive.place) for redrive in page]
        origins = self._fates.read_fates(deliveries)
        died = self._died(page, deliveries)
        ended: dict[PlanItemState, list[int]] = {}
        silent: dict[SentRedrive, Fate] = {}
        lost: list[int] = []
        for each, mine, origin, dead in zip(page, own, origins, died, strict=True):
            state = decide_redrive_end(mine, origin, died=dead, again=plan.options.again)
            if state is None and mine is None:
                lost.append(each.position)
            elif state is None:
                silent[each] = mine or Fate.OPEN
            else:
                ended.setdefault(state, []).append(each.position)
        ends = {state: dict.fromkeys(some, "") for state, some in ended.items()}
        self._end(plan, {**ends, PlanItemState.UNKNOWN: dict.fromkeys(lost, _MADE_AGAIN)})
        return silent

    def _deduced(self, plan: BulkPlan, silent: Mapping[SentRedrive, Fate], still_parked: StillParked) -> int:
        """Note outcomes deduced from Kafka; return how many."""
        spots = {each.spot.topic for each in silent}
        there = {each.place: each for each in read_extents(self._settings, spots)}
        gone = self._gone(plan, [each for each, own in silent.items() if own is Fate.OPEN], there)
        ran = [each for each, own in silent.items() if own is Fate.PARKED]
        forgotten = [each for each, own in silent.items() if own is Fate.OPEN and _is_passed(each, there)]
        cut = self._cut([each for each, own in silent.items() if own is Fate.OPEN], there)
        ends: dict[PlanItemState, dict[int, str]] = {PlanItemState.UNKNOWN: dict.fromkeys(gone, DROPPED_UNREAD)}
        behind = {each.position for each in cut}
        if ran or forgotten or cut:
            topic = str(plan.asked["topic"])
            parked = {identity for identity, _ in still_parked.find_parked(self._settings.group, topic)}
            # In this order: a delivery that leaves a retry topic meanwhile has its dead letter written before.
            if RecordingProgress(self._settings, self._database).all_of(self._settings.group, topic, RECORDED_WITHIN):
                left = [each for each in (*ran, *forgotten, *cut) if each.place not in parked]
                # It may have died and been recorded since the ledger was asked.
                died = self._died(
                    left, [find_redriven_delivery(plan, self._settings.group, each.place) for each in left]
                )
                over = [each for each, dead in zip(left, died, strict=True) if not dead]
                # Only for a delivery that runs again: for others the origin's fate is done.
                done = [each for each in over if plan.options.again and silent[each] is Fate.PARKED]
                unknown = self._long_silent(
                    [each for each in over if not (plan.options.again and silent[each] is Fate.PARKED)]
                )
                ends[PlanItemState.DEAD] = {each.position: "" for each, dead in zip(left, died, strict=True) if dead}
                ends[PlanItemState.DONE] = {each.position: _HAS_RUN for each in done}
                ends[PlanItemState.UNKNOWN] |= {
                    position: _CUT if position in behind else FORGOTTEN for position in unknown
                }
        self._end(plan, ends)
        return sum(map(len, ends.values()))

    def _gone(self, plan: BulkPlan, some: Sequence[SentRedrive], there: Mapping[tuple[str, int], Extent]) -> list[int]:
        """Return the positions of records that Kafka dropped before a bridge handed them off, proven by the ledger."""
        dropped = [redrive for redrive in some if _is_dropped(redrive, there)]
        since = self._fates.since(self._settings.group)
        if not dropped or self._fates.ledger(self._settings.group) is None:
            return []
        if not there and read_topic_id(self._settings, dropped[0].spot.topic):
            # One of two answers knows the topic.
            return []
        # Once more, after Kafka was asked: it may have been handed off before it was dropped.
        own = self._own(plan, dropped)
        return [
            each.position
            for each, fate in zip(dropped, own, strict=True)
            if fate is Fate.OPEN and since <= each.at / 1000
        ]

    def _cut(self, some: Sequence[SentRedrive], there: Mapping[tuple[str, int], Extent]) -> list[SentRedrive]:
        """Return the deliveries behind the end of their log, confirmed by two answers of Kafka: one may be stale."""
        found = [redrive for redrive in some if _is_behind_the_end(redrive, there)]
        if not found:
            return []
        again = {each.place: each for each in read_extents(self._settings, {each.spot.topic for each in found})}
        return [each for each in found if _is_behind_the_end(each, again)]

    def _long_silent(self, some: Sequence[SentRedrive]) -> list[int]:
        """Return the positions of deliveries that were sent too long ago to wait further."""
        with self._database.reading() as connection:
            now = sql.read_clock(connection)
        patience = 1_000 * self._settings.file.kafka_stuck_after
        return [redrive.position for redrive in some if now - redrive.at > patience]

    def _own(self, plan: BulkPlan, page: Sequence[SentRedrive]) -> Sequence[Fate | None]:
        """Return the fate of each record; `None` if its topic was recreated, so that another record has its offset.

        A redrive has one replay topic.
        """
        topic = page[0].spot.topic
        now = read_topic_id(self._settings, topic)
        if now and plan.options.into and now != plan.options.into:
            return [None] * len(page)
        spots = [(redrive.spot.partition, redrive.spot.offset) for redrive in page]
        return self._fates.own(self._settings.group, topic, now, spots)

    def _died(self, page: Sequence[SentRedrive], deliveries: Sequence[Origin]) -> list[bool]:
        digests = [LetterIdentity.for_delivery(delivery).digest for delivery in deliveries]
        with self._database.reading() as connection:
            numbers = inflight_delivery_rows.read_death_numbers(connection, digests)
        return [numbers.get(digest, -1) >= each.number for digest, each in zip(digests, page, strict=True)]

    def _end(self, plan: BulkPlan, ends: Mapping[PlanItemState, Mapping[int, str]]) -> None:
        if not any(ends.values()):
            return
        with self._database.writing() as connection:
            at = sql.read_clock(connection)
            for state, whys in ends.items():
                plan_item_rows.end_items(connection, plan.id, whys, state, at, [PlanItemState.SENT])


def _is_dropped(each: SentRedrive, there: Mapping[tuple[str, int], Extent]) -> bool:
    """Return whether Kafka has dropped a record that nobody committed; a log that ends before it is no proof."""
    extent = there.get((each.spot.topic, each.spot.partition))
    return extent is None or extent.first > each.spot.offset >= (extent.committed or 0)


def _is_behind_the_end(each: SentRedrive, there: Mapping[tuple[str, int], Extent]) -> bool:
    extent = there.get((each.spot.topic, each.spot.partition))
    return extent is not None and extent.end <= each.spot.offset and not _is_passed(each, there)


def _is_passed(each: SentRedrive, there: Mapping[tuple[str, int], Extent]) -> bool:
    extent = there.get((each.spot.topic, each.spot.partition))
    return extent is not None and each.spot.offset < (extent.committed or 0)
