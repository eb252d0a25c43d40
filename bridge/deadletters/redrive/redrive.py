"""A range of a source topic is sent again through the replay topic: planned; the group's offsets stay as they are."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from bridge.deadletters.letters.letter import Identity, Status
from bridge.deadletters.plan.lanes import course_of
from bridge.deadletters.plan.plan import Counts, Options, Plan, State, What
from bridge.deadletters.redrive.ranges import Found, Range, first_of_sequence, looking
from bridge.deadletters.redrive.standing import Stand, sent
from bridge.deadletters.store import items, plans, trail, weighing
from bridge.deadletters.store.cluster import check_cluster
from bridge.deadletters.store.database import Connection, Database
from bridge.deadletters.store.items import Item
from bridge.errors import RedriveRefused
from bridge.handlers import Routes
from bridge.kafka import Record, admin_client
from bridge.settings import Settings
from bridge.topics.cluster import all_topics

#: Is told how many records were looked at, of about how many.
Looked = Callable[[int, int], None]


def nobody(looked: int, of: int) -> None:
    """Hears of it, and does nothing."""


@dataclass(frozen=True, slots=True)
class Asked:
    """Which records, and for whom.

    Attributes:
        since, until: `earliest`, `latest`, an offset, or a time as ISO 8601; the range ends before `until`.
        partitions: of these alone; empty: of all.
        handlers: for these alone; empty: for all of the topic.
        key: of this key alone, byte for byte.
    """

    topic: str
    since: str
    until: str = "latest"
    partitions: tuple[int, ...] = ()
    handlers: tuple[str, ...] = ()
    key: bytes | None = field(default=None, repr=False)

    def to_data(self) -> dict[str, Any]:
        """As JSON."""
        key = None if self.key is None else self.key.decode("utf-8", "backslashreplace")
        limits = {"partitions": list(self.partitions), "handlers": list(self.handlers), "key": key}
        return {"topic": self.topic, "from": self.since, "to": self.until} | {
            name: value for name, value in limits.items() if value not in (None, [])
        }


@dataclass(frozen=True)
class Redrive:
    """Ranges of source topics, sent again. Every method raises DeskUnavailable where the database does not answer."""

    settings: Settings
    routes: Routes
    database: Database

    def plan(
        self,
        asked: Asked,
        options: Options,
        by: str,
        why: str = "",
        looked: Looked = nobody,
        most: int | None = None,
    ) -> Plan:
        """A plan that sends again what of a range needs it; nothing is sent yet.

        What is done or discarded, or may be, is left out unless `options.again`; what is on its way, always.

        Parameters:
            most: deliveries that are looked at, one for each offset and handler; `None`: any number.

        Raises:
            RedriveRefused: the topic, a handler or a partition is none, or there is no ledger that knows what is done.
            NoMoment: an end of the range is none.
            DeskOfAnotherKafka: this database is not for this Kafka.
            KafkaUnavailable, LedgerUnavailable: one of them did not answer; the plan that was begun is never applied.
        """
        handlers = self._handlers(asked)
        check_cluster(self.database, all_topics(admin_client(self.settings.kafka)).id)
        with looking(self.settings, asked.topic) as look:
            chosen = look.range(asked.since, asked.until, asked.partitions)
            if most is not None and chosen.size * len(handlers) > most:
                raise RedriveRefused(
                    f"This range has {chosen.size:,} offsets for {len(handlers)} handlers, of {most:,} deliveries that "
                    "are looked at here: name less of it, or take the command bridge redrive. Nothing is sent."
                )
            logs = {str(partition): log for partition, log in chosen.logs.items()}
            plan_id = self._begun(asked, options, logs, by, why)
            counting = _Counting(looked, chosen.size)
            found = look.deliveries(counting.records(chosen, self.settings, asked.key), handlers)
            count = self._freeze(plan_id, found, chosen, options, counting)
        with self.database.writing() as connection:
            plans.counted(connection, plan_id, Counts(letters=count, stands=counting.stands))
            plans.move(connection, plan_id, [State.MAKING], State.PLANNED)
            made = plans.one(connection, plan_id)
        assert made is not None
        return made

    def _handlers(self, asked: Asked) -> list[str]:
        names = [handler.name for handler in self.routes.of(asked.topic)]
        if not names:
            raise RedriveRefused(f"No handler of this app names topic {asked.topic!r}.")
        if strange := [name for name in asked.handlers if name not in names]:
            raise RedriveRefused(f"{strange[0]} is no handler of {asked.topic!r}: {', '.join(names)}.")
        return [name for name in names if not asked.handlers or name in asked.handlers]

    def _begun(self, asked: Asked, options: Options, logs: dict[str, str], by: str, why: str) -> int:
        whole = Options(options.rate, options.canary, again=options.again, logs=logs)
        with self.database.writing() as connection:
            plan_id, at = plans.add(connection, What.REDRIVE, by, why, asked.to_data(), whole)
            plans.move(connection, plan_id, [State.PLANNED], State.MAKING)
            words = f"plan {plan_id}: to redrive {asked.topic} from {asked.since} to {asked.until}"
            trail.write(connection, at, by, "redrive", words + (f": {why}" if why else ""), plan_id=plan_id)
        return plan_id

    def _freeze(
        self, plan_id: int, found: Iterable[list[Found]], chosen: Range, options: Options, counting: "_Counting"
    ) -> int:
        """Take what is sent into the plan, as it is found; how many deliveries that are."""
        wanted, count = sent(again=options.again), 0
        sequence = self.settings.topic(chosen.topic).sequence
        for some in found:
            counting.count(some)
            taken = [each for record in _by_record(some) for each in first_of_sequence(record, sequence, wanted)]
            with self.database.writing() as connection:
                made = self._items(connection, taken, chosen, options, count)
                items.add(connection, plan_id, made, canary=options.canary)
            count += len(made)
        return count

    def _items(
        self, connection: Connection, taken: Sequence[Found], chosen: Range, options: Options, count: int
    ) -> list[Item]:
        """Deliveries as a plan has them: what is dead is its letter, where that is recorded and open."""
        digests = {self._digest(each, chosen): each for each in taken if options.again or each.stand is Stand.DEAD}
        letters = {digests[digest]: letter for digest, letter in weighing.by_digest(connection, digests).items()}
        made: list[Item] = []
        for each in taken:
            place = f"{chosen.topic}-{each.partition}-{each.offset}:{each.handler}"
            course = course_of(self.settings, self.settings.group, chosen.topic, each.handler)
            lane = course and course.lane(each.partition, each.key)
            letter = letters.get(each)
            if letter is None:
                made.append(Item(count + len(made) + 1, None, place, 0, lane))
            elif letter.status is Status.OPEN and (letter.again or each.stand is not Stand.DONE):
                made.append(Item(count + len(made) + 1, letter.id, None, letter.failures))
            elif letter.status is not Status.REPLAYING and options.again:
                # A person has put it away; so it is asked for as what is done.
                made.append(Item(count + len(made) + 1, None, place, 0, lane))
        return made

    def _digest(self, found: Found, chosen: Range) -> bytes:
        log = chosen.logs[found.partition]
        group = self.settings.group
        return Identity(group, chosen.topic, log, found.partition, found.offset, found.handler).digest


class _Counting:
    """Counts what is looked at, while it is."""

    def __init__(self, looked: Looked, of: int) -> None:
        self._looked, self._of, self._seen = looked, of, 0
        self._stands: Counter[tuple[str, Stand]] = Counter()

    def records(self, chosen: Range, settings: Settings, key: bytes | None) -> Iterator[Record]:
        """The records of a range that have a key, or all."""
        for record in chosen.records(settings):
            self._seen += 1
            if self._seen % 1_000 == 0:
                self._looked(self._seen, self._of)
            if key is None or record.key() == key:
                yield record

    def count(self, found: Iterable[Found]) -> None:
        """Count how they stand."""
        self._stands.update((each.handler, each.stand) for each in found)

    @property
    def stands(self) -> dict[str, dict[str, int]]:
        """By handler, how many stand how."""
        told: dict[str, dict[str, int]] = {}
        for (handler, stand), count in sorted(self._stands.items()):
            told.setdefault(handler, {})[str(stand)] = count
        return told


def _by_record(found: Sequence[Found]) -> Iterator[list[Found]]:
    """Deliveries, each record's together, as they come."""
    some: list[Found] = []
    for each in found:
        if some and (each.partition, each.offset) != (some[0].partition, some[0].offset):
            yield some
            some = []
        some.append(each)
    if some:
        yield some
