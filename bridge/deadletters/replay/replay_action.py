"""The replay of letters: to the replay topic, for the handler that failed; letters of other programs to their source
topic.
"""

from collections.abc import Iterable, Mapping, Sequence
from functools import cache, partial
from typing import Final, NamedTuple

from bridge.deadletters.db import letter_payload, letter_rows, plan_item_rows
from bridge.deadletters.db.database import Connection, Database
from bridge.deadletters.db.letter_payload import LetterContent, LetterStanding
from bridge.deadletters.db.plan_item_rows import LogPosition, PlanItem, SentRecord
from bridge.deadletters.model.bulk_plan import BulkPlan, PlanItemState
from bridge.deadletters.model.stored_letter import LetterStatus
from bridge.deadletters.replay.kafka_lookup import LOST, ValueAway, fetch_payloads, find_traces
from bridge.deadletters.replay.ledger_fates import LedgerFates
from bridge.deadletters.replay.plan_action import (
    ActionEnd,
    ActionResult,
    ClaimedDelivery,
    Live,
    PlanConflicts,
    TakenDeliveries,
    explain_lateness,
    find_plan_makers,
    slice_by_size,
)
from bridge.deadletters.replay.replay_target import TargetPartitions, name_target_topic
from bridge.errors import NeverPublished
from bridge.formats.delivery_identity import Origin, work_of
from bridge.formats.foreign_dead_letter import SHARE_GROUP
from bridge.formats.record_headers import RecordHeaders
from bridge.formats.replay_record import replay_headers
from bridge.formats.retry_record import read_retry_key
from bridge.kafka.acknowledged_producer import AcknowledgedProducer, OutgoingRecord, RecordPosition
from bridge.kafka.clients import Record, headers_of
from bridge.ledger import Fate
from bridge.settings import Settings
from bridge.telemetry.otel_sdk import trace_replay

#: The header with the letter's position on a record to another program's topic, by which it is found again.
FROM: Final = "dead_letter"
#: Identity, group and number of a delivery; for letters of other programs, the letter's position.
Mark = tuple[str, str, int]


_GONE: Final = "the letter is gone"


class _Job(NamedTuple):
    """A delivery to send.

    Attributes:
        letter: the letter whose record is sent.
        delivery: the letter's, or another handler's of the same message.
        number: its new number.
    """

    item: PlanItem
    letter: LetterStanding
    delivery: Origin
    number: int

    @property
    def is_own(self) -> bool:
        """Return whether it is the letter's own delivery."""
        return self.item.place is None

    @property
    def again(self) -> str:
        """Return the redrive by which it runs though it was done; empty if it runs only if it is not done."""
        return self.letter.again if self.is_own else ""

    @property
    def mark(self) -> Mark:
        """Return the unique mark of its record."""
        if not self.letter.is_ours:
            return (_find_place(self.letter.spot), "", 0)
        return (work_of(self.delivery.identity, self.again), self.delivery.group, self.number)


class ReplayAction:
    """The action of a replay.

    Parameters:
        last_wave: the last wave of the plan.
        handlers: the handlers that the app or a worker knows.
    """

    def __init__(
        self,
        settings: Settings,
        database: Database,
        plan: BulkPlan,
        last_wave: int,
        ends: TargetPartitions,
        fates: LedgerFates,
        handlers: Iterable[str],
    ) -> None:
        self._settings, self._database, self._plan, self._ends, self._fates = settings, database, plan, ends, fates
        self._last_wave = last_wave
        self._handlers = frozenset(handlers)
        self._target = cache(partial(name_target_topic, settings))
        self._producer = AcknowledgedProducer(settings)
        #: The letters of the batch as they were claimed: no other process changes letters in flight.
        self._taken: dict[int, LetterStanding] = {}

    def take(self, connection: Connection, waiting: Sequence[PlanItem], at: int) -> TakenDeliveries:
        """Claim letters that are open and have not died since the plan was made; skip the others."""
        found = letter_payload.read_letter_standings(
            connection, [item.letter_id for item in waiting if item.letter_id], lock=True
        )
        by = find_plan_makers(connection, found.values())
        ahead = self._ahead(connection, waiting, found)
        skipped: dict[int, str] = {}
        claimed: list[ClaimedDelivery] = []
        for item in waiting:
            standing = found.get(item.letter_id or 0)
            why, spot = self._why_not(item, standing, by), None
            if standing is not None and not why:
                delivery = _find_delivery(item, standing)
                why = _explain_conflict(ahead, delivery) if item.place else ahead.of_own(delivery, standing.number)
            if standing is not None and not why:
                spot = self._ends.spot(self.topic(standing), standing.delivery.partition)
                why = "" if spot else f"there is no topic {self.topic(standing)}"
            if why:
                skipped[item.position] = why
            else:
                claimed.append(ClaimedDelivery(item, spot))
        self._taken = found
        own = [each.item.letter_id for each in claimed if each.item.letter_id and each.item.place is None]
        letter_rows.change_letter_status(connection, own, LetterStatus.OPEN, LetterStatus.REPLAYING, at, self._plan.id)
        return TakenDeliveries(claimed, skipped)

    def _ahead(
        self, connection: Connection, waiting: Sequence[PlanItem], found: Mapping[int, LetterStanding]
    ) -> PlanConflicts:
        ours = [(item, its) for item in waiting if (its := found.get(item.letter_id or 0)) is not None and its.is_ours]
        own, others = (
            [_find_delivery(*each) for each in ours if bool(each[0].place) is other] for other in (False, True)
        )
        return PlanConflicts.find_conflicts(connection, self._plan.id, own, others)

    def _why_not(self, item: PlanItem, letter: LetterStanding | None, by: Mapping[int, str]) -> str:
        if letter is None:
            return _GONE
        if letter.is_ours and _find_handler(item, letter) not in self._handlers:
            return f"no app or worker knows a handler {_find_handler(item, letter)}"
        if not letter.is_ours and letter.delivery.topic == letter.spot.topic:
            return "it does not name its source record: --to-topic copies it to a topic that you name"
        if item.place is not None:
            return ""
        if letter.status is not LetterStatus.OPEN:
            return explain_lateness(letter, by)
        return "" if letter.failures == item.failures else "it has died again since the plan was made"

    def topic(self, letter: LetterStanding) -> str:
        """Return the target topic of a letter."""
        return self._target(letter.delivery.group, letter.delivery.topic, ours=letter.is_ours)

    def once(self, item: PlanItem) -> bool:
        """Return whether an item has one attempt, because a wave waits for its outcome (model/plan_order.py)."""
        return item.wave < self._last_wave

    def look(self, claimed: Sequence[ClaimedDelivery]) -> ActionResult:
        """Find the deliveries whose record is in Kafka."""
        jobs = {job.mark: job for job in self._jobs(claimed)}
        read, lost = find_traces(self._settings, claimed)
        found: dict[int, SentRecord] = {}
        for record in read:
            if (job := jobs.get(_read_mark(record))) is not None:
                spot = LogPosition(record.topic() or "", record.partition() or 0, record.offset() or 0)
                found.setdefault(job.item.position, self._sent(job, spot))
        left = [job for job in jobs.values() if job.item.position in lost - found.keys()]
        # A delivery that is done may be sent: it does not run.
        told = self._fates.read_fates([job.delivery for job in left]) if left else []
        open_ = [job for job, fate in zip(left, told, strict=True) if job.again or fate is not Fate.DONE]
        return ActionResult(
            [*found.values()], {job.item.position: ActionEnd(PlanItemState.UNKNOWN, LOST) for job in open_}
        )

    def act(self, claimed: Sequence[ClaimedDelivery], live: Live) -> ActionResult:
        """Publish all records, and wait for all acknowledgements; uncertain ones have no result."""
        jobs = self._jobs(claimed)
        # A letter may be cleaned up just as another handler's delivery of it is claimed.
        gone = {each.item.position for each in claimed} - {job.item.position for job in jobs}
        ends = {position: ActionEnd(PlanItemState.SKIPPED, _GONE) for position in gone}
        ends |= {job.item.position: ActionEnd(PlanItemState.SKIPPED, why) for job, why in self._left_alone(jobs)}
        sent: list[SentRecord] = []
        why = ""
        wanted = [job for job in jobs if job.item.position not in ends]
        for some in slice_by_size(wanted, lambda job: job.letter.value_size):
            letters, away = self._letters(some, live)
            ends |= {position: ActionEnd(PlanItemState.REFUSED, why) for position, why in away.items()}
            live()
            answers = self._producer.place_all([*letters.values()])
            for job, answer in zip((job for job in some if job.item.position in letters), answers, strict=True):
                if isinstance(answer, RecordPosition):
                    sent.append(self._sent(job, LogPosition(*answer)))
                elif isinstance(answer, NeverPublished):
                    ends[job.item.position] = ActionEnd(PlanItemState.REFUSED, str(answer))
                else:
                    why = why or str(answer)
        return ActionResult(sent, ends, why)

    def settle(self, connection: Connection, claimed: Sequence[ClaimedDelivery], acted: ActionResult, at: int) -> None:
        """Open unsent letters again, and resolve letters of other programs, which are back in their source topic.

        A letter that may have been sent stays `replaying`, for a person to open (`UnknownOutcomes`).
        """
        ids = {each.item.position: each.item.letter_id for each in claimed if each.item.place is None}
        ends = ((ids.get(position), end) for position, end in acted.ends.items())
        back = [id_ for id_, end in ends if id_ and end.state is not PlanItemState.UNKNOWN]
        letter_rows.change_letter_status(connection, back, LetterStatus.REPLAYING, LetterStatus.OPEN, at)
        sent = [id_ for each in acted.sent if (id_ := ids.get(each.position))]
        theirs = [id_ for id_ in sent if not self._taken[id_].is_ours]
        if theirs:
            letter_rows.change_letter_status(connection, theirs, LetterStatus.REPLAYING, LetterStatus.RESOLVED, at)
            plan_item_rows.end_items_of_letters(
                connection, theirs, PlanItemState.DONE, at, "it is back in its topic; who reads it there decides"
            )

    def _jobs(self, claimed: Sequence[ClaimedDelivery]) -> list[_Job]:
        ids = [each.item.letter_id for each in claimed if each.item.letter_id]
        if not self._taken.keys() >= set(ids):
            with self._database.reading() as connection:
                self._taken = letter_payload.read_letter_standings(connection, ids)
        found = self._taken
        pairs = ((each.item, found.get(each.item.letter_id or 0)) for each in claimed)
        return [self._job(item, letter) for item, letter in pairs if letter is not None]

    def _job(self, item: PlanItem, letter: LetterStanding) -> _Job:
        # Another handler's delivery has a number that is independent of the letter's deaths.
        number = letter.number + 1 if item.place is None else self._plan.number
        return _Job(item, letter, _find_delivery(item, letter), number)

    def _left_alone(self, jobs: Sequence[_Job]) -> list[tuple[_Job, str]]:
        """Return the other handlers' deliveries that are not sent, with the reason: ended, in flight, or perhaps
        done.
        """
        others = [job for job in jobs if not job.is_own]
        fates = self._fates.read_fates([job.delivery for job in others]) if others else []
        return [(job, _explain_fate(fate)) for job, fate in zip(others, fates, strict=True) if fate is not Fate.DEAD]

    def _letters(self, jobs: Sequence[_Job], live: Live) -> tuple[dict[int, OutgoingRecord], dict[int, str]]:
        """Return the records to publish by position, and the reasons for those whose value is gone."""
        with self._database.reading() as connection:
            ids = [job.letter.id for job in jobs]
            found = {each.id: each for each in letter_payload.read_letter_contents(connection, self._plan.id, ids)}
        gone = {job.item.position: _GONE for job in jobs if job.letter.id not in found}
        jobs = [job for job in jobs if job.item.position not in gone]
        away = {job.letter.id: ValueAway(job.letter, found[job.letter.id]) for job in jobs if found[job.letter.id].away}
        values = fetch_payloads(self._settings, away.values(), live)
        made: dict[int, OutgoingRecord] = {}
        for job in jobs:
            content = found[job.letter.id]
            if content.away and content.id not in values:
                gone[job.item.position] = f"its value is no longer in Kafka, at {_find_place(job.letter.spot)}"
                continue
            value = values[content.id] if content.away else content.value
            if job.letter.program == SHARE_GROUP and content.key is None and value is None:
                gone[job.item.position] = f"it has neither key nor value: its record is {_find_source(job.delivery)}"
                continue
            made[job.item.position] = self._letter(job, content, value)
        return made, gone

    def _letter(self, job: _Job, content: LetterContent, value: bytes | None) -> OutgoingRecord:
        topic = self.topic(job.letter)
        spot = self._ends.spot(topic, job.delivery.partition)
        partition = -1 if spot is None else spot.partition
        headers = _build_headers(job, content, self.once(job.item), topic)
        return OutgoingRecord(
            topic, partition, content.key, value, headers, str(job.delivery.identity), "what is sent back"
        )

    def _sent(self, job: _Job, spot: LogPosition) -> SentRecord:
        self._ends.passed(spot)
        return SentRecord(job.item.position, job.number, spot)


def _build_headers(job: _Job, content: LetterContent, once: bool, topic: str) -> RecordHeaders:
    if not job.letter.is_ours:
        return [*content.headers, (FROM, _find_place(job.letter.spot).encode())]
    ran = {"runs": content.runs, "attempts": content.attempts} if job.is_own else {}
    common = {"timestamp": content.timestamp, "number": job.number - 1, "once": once, "again": job.again}
    common["trace"] = trace_replay(topic, job.delivery, content.headers, content.trace)
    return replay_headers(job.delivery, content.headers, **common, **ran)  # type: ignore[arg-type]


def _explain_conflict(ahead: PlanConflicts, delivery: Origin) -> str:
    letter = ahead.letter(delivery)
    return ahead.of_other(delivery) or ((letter and f"it has a letter by now, {letter.id}: replay that") or "")


def _explain_fate(fate: Fate) -> str:
    if fate is Fate.OPEN:
        # It was not read yet, or the ledger has forgotten it.
        return "it may be done: bridge redrive checks that, and sends it"
    return f"it is {fate.name.lower()}"


def _find_delivery(item: PlanItem, letter: LetterStanding) -> Origin:
    return letter.delivery._replace(handler=_find_handler(item, letter))


def _find_handler(item: PlanItem, letter: LetterStanding) -> str:
    return letter.delivery.handler if item.place is None else item.place.partition(":")[2]


def _read_mark(record: Record) -> Mark:
    """Return a record's mark, if it is a replay."""
    if (found := read_retry_key(record)) is not None:
        return found
    try:
        place = next((value for name, value in reversed(headers_of(record)) if name == FROM), None)
        return ((place or b"").decode("ascii"), "", 0)
    except Exception:
        # A record of another client, which Python's cannot read.
        return ("", "", 0)


def _find_place(spot: LogPosition) -> str:
    return f"{spot.topic}-{spot.partition}-{spot.offset}"


def _find_source(delivery: Origin) -> str:
    return f"{delivery.topic}-{delivery.partition}-{delivery.offset}"
