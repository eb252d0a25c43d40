"""The plan of a redrive: a range of a source topic is sent again through the replay topic.

The group's committed offsets stay as they are.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from bridge.deadletters.db import audit_rows, plan_counts, plan_item_rows, plan_rows
from bridge.deadletters.db.database import Connection, Database, require_same_cluster
from bridge.deadletters.db.plan_item_rows import PlanItem
from bridge.deadletters.model.bulk_plan import BulkPlan, PlanCounts, PlanKind, PlanOptions, PlanState
from bridge.deadletters.model.plan_order import find_course
from bridge.deadletters.model.stored_letter import LetterIdentity, LetterStatus
from bridge.deadletters.replay.plan_progress import require_plan
from bridge.deadletters.replay.redrive_range import (
    DeliveryStand,
    OffsetRange,
    RangeDelivery,
    find_sent_stands,
    keep_first_of_sequence,
    open_range_look,
)
from bridge.errors import RedriveRefused
from bridge.formats.text_forms import format_count
from bridge.handler_routes import Routes
from bridge.kafka.clients import Record, admin_client
from bridge.kafka.topic_admin import read_cluster
from bridge.settings import Settings

#: Called with the records that were read so far, and about how many there are.
LookListener = Callable[[int, int], None]


def ignore_look(looked: int, of: int) -> None:
    """Ignore the progress: a listener that does nothing."""


@dataclass(frozen=True, slots=True)
class RedriveRequest:
    """The range and the handlers of a redrive.

    Attributes:
        since, until: `earliest`, `latest`, an offset, or a time as ISO 8601; the range ends before `until`.
        partitions: only these; empty: all.
        handlers: only these; empty: all of the topic.
        key: only records with this key, byte for byte.
    """

    topic: str
    since: str
    until: str = "latest"
    partitions: tuple[int, ...] = ()
    handlers: tuple[str, ...] = ()
    key: bytes | None = field(default=None, repr=False)

    def to_data(self) -> dict[str, Any]:
        """Return the range as JSON-compatible data."""
        key = None if self.key is None else self.key.decode("utf-8", "backslashreplace")
        limits = {"partitions": list(self.partitions), "handlers": list(self.handlers), "key": key}
        return {"topic": self.topic, "from": self.since, "to": self.until} | {
            name: value for name, value in limits.items() if value not in (None, [])
        }


@dataclass(frozen=True)
class RedrivePlanner:
    """The redrives. Every method raises DeskUnavailable if the database does not answer."""

    settings: Settings
    routes: Routes
    database: Database

    def plan(
        self,
        asked: RedriveRequest,
        options: PlanOptions,
        by: str,
        why: str = "",
        looked: LookListener = ignore_look,
        most: int | None = None,
    ) -> BulkPlan:
        """Return a plan that sends the deliveries of a range again that need it; nothing is sent yet.

        Deliveries that are or may be done or discarded are left out unless `options.again`; those in flight always.

        Parameters:
            most: the most deliveries that are read, one for each offset and handler; `None`: unlimited.

        Raises:
            RedriveRefused: the topic, a handler or a partition does not exist, or there is no ledger.
            NoMoment: an end of the range is invalid.
            DeskOfAnotherKafka: this database is not for this Kafka.
            KafkaUnavailable, LedgerUnavailable: one of them did not answer; the plan that was begun is never applied.
        """
        handlers = self._handlers(asked)
        require_same_cluster(self.database, read_cluster(admin_client(self.settings.kafka)).id)
        with open_range_look(self.settings, asked.topic) as look:
            chosen = look.range(asked.since, asked.until, asked.partitions)
            if most is not None and chosen.size * len(handlers) > most:
                raise RedriveRefused(
                    f"This range has {format_count(chosen.size, 'offset')} for "
                    f"{format_count(len(handlers), 'handler')}, of {most:,} deliveries that "
                    "are looked at here: name less of it, or take the command bridge redrive. Nothing is sent."
                )
            logs = {str(partition): log for partition, log in chosen.logs.items()}
            plan_id = self._begun(asked, options, logs, by, why)
            counting = _LookCounter(looked, chosen.size)
            found = look.deliveries(counting.records(chosen, self.settings, asked.key), handlers)
            count = self._freeze(plan_id, found, chosen, options, counting)
        with self.database.writing() as connection:
            plan_rows.note_plan_counts(connection, plan_id, PlanCounts(letters=count, stands=counting.stands))
            plan_rows.change_plan_state(connection, plan_id, [PlanState.MAKING], PlanState.PLANNED)
            return require_plan(connection, plan_id)

    def _handlers(self, asked: RedriveRequest) -> list[str]:
        names = [handler.name for handler in self.routes.of(asked.topic)]
        if not names:
            raise RedriveRefused(f"No handler of this app names topic {asked.topic!r}.")
        if strange := [name for name in asked.handlers if name not in names]:
            raise RedriveRefused(f"{strange[0]} is no handler of {asked.topic!r}: {', '.join(names)}.")
        return [name for name in names if not asked.handlers or name in asked.handlers]

    def _begun(self, asked: RedriveRequest, options: PlanOptions, logs: dict[str, str], by: str, why: str) -> int:
        whole = PlanOptions(options.rate, options.canary, again=options.again, logs=logs)
        with self.database.writing() as connection:
            plan_id, at = plan_rows.add_plan(connection, PlanKind.REDRIVE, by, why, asked.to_data(), whole)
            plan_rows.change_plan_state(connection, plan_id, [PlanState.PLANNED], PlanState.MAKING)
            words = f"plan {plan_id}: to redrive {asked.topic} from {asked.since} to {asked.until}"
            audit_rows.write_entry(connection, at, by, "redrive", words + (f": {why}" if why else ""), plan_id=plan_id)
        return plan_id

    def _freeze(
        self,
        plan_id: int,
        found: Iterable[list[RangeDelivery]],
        chosen: OffsetRange,
        options: PlanOptions,
        counting: "_LookCounter",
    ) -> int:
        """Add the deliveries that are sent to the plan as they are found; return how many."""
        wanted, count = find_sent_stands(again=options.again), 0
        sequence = self.settings.topic(chosen.topic).sequence
        for some in found:
            counting.count(some)
            taken = [
                each for record in _group_by_record(some) for each in keep_first_of_sequence(record, sequence, wanted)
            ]
            with self.database.writing() as connection:
                made = self._items(connection, taken, chosen, options, count)
                plan_item_rows.add_items(connection, plan_id, made, canary=options.canary)
            count += len(made)
        return count

    def _items(
        self,
        connection: Connection,
        taken: Sequence[RangeDelivery],
        chosen: OffsetRange,
        options: PlanOptions,
        count: int,
    ) -> list[PlanItem]:
        """Return the items of deliveries: a dead one with an open letter is that letter's."""
        digests = {
            self._digest(delivery, chosen): delivery
            for delivery in taken
            if options.again or delivery.stand is DeliveryStand.DEAD
        }
        letters = {
            digests[digest]: letter
            for digest, letter in plan_counts.find_letters_by_digest(connection, digests).items()
        }
        made: list[PlanItem] = []
        for delivery in taken:
            place = f"{chosen.topic}-{delivery.partition}-{delivery.offset}:{delivery.handler}"
            course = find_course(self.settings, self.settings.group, chosen.topic, delivery.handler)
            lane = course and course.lane(delivery.partition, delivery.key)
            letter = letters.get(delivery)
            if letter is None:
                made.append(PlanItem(count + len(made) + 1, None, place, 0, lane))
            elif letter.status is LetterStatus.OPEN and (letter.again or delivery.stand is not DeliveryStand.DONE):
                made.append(PlanItem(count + len(made) + 1, letter.id, None, letter.failures))
            elif letter.status is not LetterStatus.REPLAYING and options.again:
                # A person has ended the letter: it is treated like a done delivery.
                made.append(PlanItem(count + len(made) + 1, None, place, 0, lane))
        return made

    def _digest(self, found: RangeDelivery, chosen: OffsetRange) -> bytes:
        log = chosen.logs[found.partition]
        group = self.settings.group
        return LetterIdentity(group, chosen.topic, log, found.partition, found.offset, found.handler).digest


class _LookCounter:
    """The counter of deliveries that are read."""

    def __init__(self, looked: LookListener, of: int) -> None:
        self._looked, self._of, self._seen = looked, of, 0
        self._stands: Counter[tuple[str, DeliveryStand]] = Counter()

    def records(self, chosen: OffsetRange, settings: Settings, key: bytes | None) -> Iterator[Record]:
        """Yield the records of a range, with a key if given."""
        for record in chosen.records(settings):
            self._seen += 1
            if self._seen % 1_000 == 0:
                self._looked(self._seen, self._of)
            if key is None or record.key() == key:
                yield record

    def count(self, found: Iterable[RangeDelivery]) -> None:
        """Count deliveries by their stand."""
        self._stands.update((delivery.handler, delivery.stand) for delivery in found)

    @property
    def stands(self) -> dict[str, dict[str, int]]:
        """Return the deliveries by handler and stand."""
        told: dict[str, dict[str, int]] = {}
        for (handler, stand), count in sorted(self._stands.items()):
            told.setdefault(handler, {})[str(stand)] = count
        return told


def _group_by_record(found: Sequence[RangeDelivery]) -> Iterator[list[RangeDelivery]]:
    """Yield the deliveries of each record together."""
    some: list[RangeDelivery] = []
    for delivery in found:
        if some and (delivery.partition, delivery.offset) != (some[0].partition, some[0].offset):
            yield some
            some = []
        some.append(delivery)
    if some:
        yield some
