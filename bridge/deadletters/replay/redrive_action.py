"""The action of a redrive: records of a source topic go to its replay topic, each for one handler.

The replay action sends deliveries that are dead letters.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from bridge.deadletters.db import plan_item_rows
from bridge.deadletters.db.database import Connection
from bridge.deadletters.db.plan_item_rows import LogPosition, PlanItem, SentRecord
from bridge.deadletters.model.bulk_plan import BulkPlan, PlanItemState
from bridge.deadletters.replay.kafka_lookup import LOST, find_traces
from bridge.deadletters.replay.ledger_fates import LedgerFates
from bridge.deadletters.replay.plan_action import (
    ActionEnd,
    ActionResult,
    ClaimedDelivery,
    Live,
    PlanConflicts,
    TakenDeliveries,
    slice_by_size,
)
from bridge.deadletters.replay.redrive_range import explain_left_out
from bridge.deadletters.replay.replay_action import ReplayAction
from bridge.deadletters.replay.replay_target import TargetPartitions, name_target_topic
from bridge.errors import NeverPublished
from bridge.formats.delivery_identity import Origin, work_of
from bridge.formats.replay_record import replay_headers
from bridge.formats.retry_record import read_retry_key
from bridge.kafka.acknowledged_producer import AcknowledgedProducer, OutgoingRecord, RecordPosition
from bridge.kafka.clients import Record, headers_of
from bridge.kafka.record_reader import RecordPicker
from bridge.ledger import Fate
from bridge.settings import Settings
from bridge.telemetry.otel_sdk import trace_replay


class ResentDelivery(NamedTuple):
    """A delivery that is sent again."""

    item: PlanItem
    delivery: Origin


class RedriveAction:
    """The action of a redrive.

    Parameters:
        letters: the action that sends dead letters.
        logs: the ids of the partitions' current logs.
    """

    def __init__(
        self,
        settings: Settings,
        plan: BulkPlan,
        ends: TargetPartitions,
        letters: ReplayAction,
        fates: LedgerFates,
        picking: RecordPicker,
        logs: Mapping[int, str],
    ) -> None:
        self._settings, self._plan, self._ends, self._of_letters = settings, plan, ends, letters
        self._topic = str(plan.asked["topic"])
        self._target = name_target_topic(settings, settings.group, self._topic, ours=True)
        self._fates, self._picking, self._logs = fates, picking, logs
        self._again = plan.name if plan.options.again else ""
        self._producer = AcknowledgedProducer(settings)

    def take(self, connection: Connection, waiting: Sequence[PlanItem], at: int) -> TakenDeliveries:
        """Claim letters as a replay does, and all else unless another plan has it, or its topic was recreated."""
        others = [self._redriven(item) for item in waiting if not item.letter_id]
        ahead = PlanConflicts.find_conflicts(connection, self._plan.id, others=[each.delivery for each in others])
        become = {each.item.position: item for each, item in self._as_letters(others, ahead)}
        plan_item_rows.note_own_letters(connection, self._plan.id, [*become.values()])
        letters = [item for item in waiting if item.letter_id] + [*become.values()]
        of_letters = self._of_letters.take(connection, letters, at)
        claimed, skipped = [*of_letters.claimed], dict(of_letters.skipped)
        for each in (each for each in others if each.item.position not in become):
            spot = self._ends.spot(self._target, each.delivery.partition)
            if each.delivery.topic_id != self._logs.get(each.delivery.partition):
                skipped[each.item.position] = "its topic was recreated: another record has its offset"
            elif spot is None:
                skipped[each.item.position] = f"there is no topic {self._target}"
            elif why := ahead.of_other(each.delivery):
                skipped[each.item.position] = why
            else:
                claimed.append(ClaimedDelivery(each.item, spot))
        return TakenDeliveries(claimed, skipped)

    def look(self, claimed: Sequence[ClaimedDelivery]) -> ActionResult:
        """Find the deliveries whose record is in Kafka, and those for which that is unknown."""
        of_letters, others = _split_letters(claimed)
        found = self._of_letters.look(of_letters) if of_letters else ActionResult()
        read, lost = find_traces(self._settings, others)
        sent = [*self._there(others, read)]
        lost -= {each.position for each in sent}
        left = [self._redriven(each.item) for each in others if each.item.position in lost]
        # Deliveries that are done are left out, as always.
        done = [] if self._again else self._done(left)
        unknown = {each.item.position: ActionEnd(PlanItemState.UNKNOWN, LOST) for each in left if each not in done}
        return ActionResult([*found.sent, *sent], {**found.ends, **unknown})

    def act(self, claimed: Sequence[ClaimedDelivery], live: Live) -> ActionResult:
        """Publish all records, and wait for all acknowledgements; uncertain ones have no result."""
        of_letters, others = _split_letters(claimed)
        found = self._of_letters.act(of_letters, live) if of_letters else ActionResult()
        sent, ends = [*found.sent], dict(found.ends)
        redriven = [self._redriven(claim.item) for claim in others]
        left = {each.item.position: ActionEnd(PlanItemState.SKIPPED, why) for each, why in self._left_out(redriven)}
        ends |= left
        wanted: dict[tuple[int, int], list[ResentDelivery]] = {}
        for each in (each for each in redriven if each.item.position not in left):
            wanted.setdefault((each.delivery.partition, each.delivery.offset), []).append(each)
        gone = set(wanted)
        for some in slice_by_size(self._pick(wanted, live), lambda pair: len(pair[0].value() or b"")):
            gone -= {(record.partition() or 0, record.offset() or 0) for record, _ in some}
            live()
            self._publish(some, sent, ends)
        refused = ActionEnd(PlanItemState.REFUSED, "Kafka has dropped its record")
        return ActionResult(sent, ends | {each.item.position: refused for place in gone for each in wanted[place]})

    def settle(self, connection: Connection, claimed: Sequence[ClaimedDelivery], acted: ActionResult, at: int) -> None:
        """Settle letters as a replay does; other deliveries have nothing to note."""
        self._of_letters.settle(connection, _split_letters(claimed)[0], acted, at)

    def _as_letters(
        self, others: Sequence[ResentDelivery], ahead: PlanConflicts
    ) -> Iterator[tuple[ResentDelivery, PlanItem]]:
        """Yield the deliveries that have an open letter recorded since the plan was made, each as that letter."""
        found = [(each, letter) for each in others if (letter := ahead.letter(each.delivery)) is not None]
        # A replay of the letter would not run a delivery again that is done.
        done = {*self._done([each for each, letter in found if self._again and not letter.again])}
        for each, letter in found:
            if each not in done:
                yield each, each.item._replace(letter_id=letter.id, place=None, failures=letter.failures)

    def _left_out(self, redriven: Sequence[ResentDelivery]) -> Iterator[tuple[ResentDelivery, str]]:
        """Yield the deliveries that are in flight or ended since the plan was made, with the reason."""
        for each, fate in self._with_fates(redriven):
            if why := explain_left_out(fate, again=self._plan.options.again):
                yield each, why

    def _redriven(self, item: PlanItem) -> ResentDelivery:
        return ResentDelivery(item, find_redriven_delivery(self._plan, self._settings.group, item.place or ""))

    def _done(self, redriven: Sequence[ResentDelivery]) -> list[ResentDelivery]:
        return [each for each, fate in self._with_fates(redriven) if fate is Fate.DONE]

    def _with_fates(self, redriven: Sequence[ResentDelivery]) -> Iterator[tuple[ResentDelivery, Fate]]:
        fates = self._fates.read_fates([each.delivery for each in redriven]) if redriven else []
        return zip(redriven, fates, strict=True)

    def _there(self, claimed: Sequence[ClaimedDelivery], read: Iterable[Record]) -> Iterator[SentRecord]:
        marks = {self._mark(self._redriven(each.item).delivery): each for each in claimed}
        for record in read:
            if (found := marks.pop(read_retry_key(record) or ("", "", 0), None)) is not None:
                spot = LogPosition(record.topic() or "", record.partition() or 0, record.offset() or 0)
                yield self._sent(found.item, spot)

    def _mark(self, delivery: Origin) -> tuple[str, str, int]:
        """Return the unique mark of its record (bridge.formats.retry_record.read_retry_key)."""
        return work_of(delivery.identity, self._again), delivery.group, self._plan.number

    def _pick(
        self, wanted: Mapping[tuple[int, int], list[ResentDelivery]], live: Live
    ) -> Iterator[tuple[Record, list[ResentDelivery]]]:
        """Yield the records with their deliveries."""
        offsets: dict[int, list[int]] = {}
        for partition, offset in sorted(wanted):
            offsets.setdefault(partition, []).append(offset)
        for record in self._picking.records(offsets, live) if offsets else ():
            yield record, wanted[record.partition() or 0, record.offset() or 0]

    def _publish(
        self, some: Sequence[tuple[Record, list[ResentDelivery]]], sent: list[SentRecord], ends: dict[int, ActionEnd]
    ) -> None:
        jobs = [(record, delivery) for record, deliveries in some for delivery in deliveries]
        answers = self._producer.place_all([self._letter(record, each) for record, each in jobs])
        for (_, each), answer in zip(jobs, answers, strict=True):
            if isinstance(answer, RecordPosition):
                sent.append(self._sent(each.item, LogPosition(*answer)))
            elif isinstance(answer, NeverPublished):
                ends[each.item.position] = ActionEnd(PlanItemState.REFUSED, str(answer))

    def _letter(self, record: Record, redriven: ResentDelivery) -> OutgoingRecord:
        """Return the record to write."""
        kind, timestamp = record.timestamp()
        delivery, theirs = redriven.delivery, headers_of(record)
        headers = replay_headers(
            delivery,
            theirs,
            timestamp=timestamp if kind else None,
            number=self._plan.number - 1,
            again=self._again,
            once=self._of_letters.once(redriven.item),
            trace=trace_replay(self._target, delivery, theirs, ""),
        )
        spot = self._ends.spot(self._target, delivery.partition)
        partition = -1 if spot is None else spot.partition
        return OutgoingRecord(
            self._target, partition, record.key(), record.value(), headers, delivery.identity, "its redrive"
        )

    def _sent(self, item: PlanItem, spot: LogPosition) -> SentRecord:
        self._ends.passed(spot)
        return SentRecord(item.position, self._plan.number, spot)


def find_redriven_delivery(plan: BulkPlan, group: str, place: str) -> Origin:
    """Return the delivery of a redrive at a place, `orders-3-1234:orders.handlers.charge` (pure)."""
    coordinates, _, handler = place.partition(":")
    _, partition, offset = coordinates.rsplit("-", 2)
    return Origin(
        plan.asked["topic"], plan.options.logs.get(partition, ""), int(partition), int(offset), handler, group
    )


def _split_letters(claimed: Sequence[ClaimedDelivery]) -> tuple[list[ClaimedDelivery], list[ClaimedDelivery]]:
    """Return the deliveries that are letters, and the others."""
    return [each for each in claimed if each.item.letter_id], [each for each in claimed if not each.item.letter_id]
