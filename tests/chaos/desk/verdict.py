"""What must hold at the desk after a run: its rows, held against what Kafka and the handlers' book have (pure)."""

from collections import Counter, defaultdict
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Final, NamedTuple, TypeVar

from bridge.deadletters.model.bulk_plan import PlanItemState
from bridge.deadletters.model.stored_letter import LetterStatus
from tests.chaos.desk.topics import NEVER, TOPICS
from tests.chaos.verdict import LOSSES, Happened, Record, Repeat, cause

Place = tuple[str, int, int]


class Delivery(NamedTuple):
    """One record for one handler; `origin` is `topic-partition-offset`, `log` the id of the log that it is of.

    The book does not know the log. It is another one where the ledger went back over a restart of Kafka: what is read
    from there on is taken for other records.
    """

    origin: str
    handler: str
    log: str = ""

    @property
    def work(self) -> "Delivery":
        """As the book has it."""
        return self._replace(log="")


class Content(NamedTuple):
    """What must travel byte for byte."""

    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]


class Death(NamedTuple):
    """A record of a dead-letter topic; `replayed` is how often it had been sent back, `at` in seconds (Unix)."""

    delivery: Delivery
    number: int
    replayed: int
    failed_at: int
    at: float
    place: Place
    content: Content


class Sent(NamedTuple):
    """A record of a replay topic."""

    delivery: Delivery
    number: int
    replayed: int
    at: float
    place: Place
    content: Content


class Done(NamedTuple):
    """A run of a handler that did its work."""

    delivery: Delivery
    replayed: int
    at: float
    pid: int


class Row(NamedTuple):
    """A letter of the desk; `places` are those of its deaths, `size` the bytes of its value, which it may not have."""

    delivery: Delivery
    status: str
    number: int
    occurrences: int
    failures: int
    places: tuple[Place, ...]
    content: Content
    size: int


class Item(NamedTuple):
    """A delivery of a plan; `place` is where its record lies, or from where on."""

    plan: int
    delivery: Delivery
    state: str
    number: int | None
    place: Place | None


@dataclass(frozen=True)
class Left:
    """What a run left behind; `records` by their origin."""

    records: Mapping[str, Record]
    contents: Mapping[str, Content]
    deaths: Sequence[Death]
    sent: Sequence[Sent]
    done: Sequence[Done]
    rows: Sequence[Row]
    items: Sequence[Item]
    faults: Sequence[Happened]

    @property
    def lost_data_at(self) -> list[float]:
        """When Redis lost data."""
        return [fault.begun for fault in self.faults if fault.lane == "redis" and fault.kind in LOSSES]


@dataclass
class Verdict:
    """What was found.

    Attributes:
        wrong: what may not be.
        lost: by topic, deliveries that are neither done nor dead.
        twice: what was done, buried or sent more than once, by the cause that the documentation allows.
    """

    wrong: list[str] = field(default_factory=list)
    lost: dict[str, list[Delivery]] = field(default_factory=lambda: defaultdict(list))
    twice: Counter[str] = field(default_factory=Counter)


#: How an item of a plan ended that was sent.
ENDS: Final = (PlanItemState.DONE, PlanItemState.DEAD, PlanItemState.UNKNOWN, PlanItemState.DISCARDED)
K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


def judge(left: Left) -> Verdict:
    """Hold what Kafka and the book have against what the desk says."""
    found = Verdict()
    found.wrong += [*_recorded(left), *_travelled(left), *_sent_as_said(left), *_ended_as_said(left), *_stands(left)]
    _ends(found, left)
    _repeats(found, left)
    return found


def by(values: Iterable[V], key: Callable[[V], K]) -> dict[K, list[V]]:
    """Values by what they have in common, in their order."""
    found: dict[K, list[V]] = defaultdict(list)
    for value in values:
        found[key(value)].append(value)
    return dict(found)


def _recorded(left: Left) -> Iterator[str]:
    """Each letter is a row, with the right number of records and of deaths."""
    rows = {row.delivery: row for row in left.rows}
    deaths = by(left.deaths, lambda death: death.delivery)
    yield from (f"recorded, and not in Kafka: {row}" for row in left.rows if row.delivery not in deaths)
    yield from (f"two rows of {delivery}" for delivery, count in _counts(left.rows).items() if count > 1)
    logs = by({row.delivery for row in left.rows}, lambda delivery: delivery.work)
    yield from (f"of two logs: {some}" for some in logs.values() if len(some) > 1 and not left.lost_data_at)
    for delivery, some in deaths.items():
        row = rows.get(delivery)
        if row is None:
            yield f"not recorded: {some}"
            continue
        if row.occurrences != len(some):
            yield f"{len(some)} records in Kafka, and {row.occurrences} counted: {row}"
        if len(row.places) != row.failures or not {*row.places} <= {death.place for death in some}:
            yield f"its deaths do not lie where it says: {row} {some}"
        least, most = _failures(some)
        if not least <= row.failures <= most:
            yield f"died between {least} and {most} times: {row} {some}"


def _failures(deaths: Sequence[Death]) -> tuple[int, int]:
    """How often a delivery has died, by its records in their order.

    The same number is the same death, written again, if it failed at the same time; else a crash let it run again, and
    whether that is news depends on when. One that began anew (a lower number) had been forgotten by the ledger.
    """
    numbers = [death.number for death in deaths]
    anew = any(other < one for one, other in pairwise(numbers))
    return 1 if anew else len({*numbers}), len({(death.number, death.failed_at) for death in deaths})


def _travelled(left: Left) -> Iterator[str]:
    """What died, what is kept of it and what is sent back is what was produced, byte for byte."""
    travelled: list[Death | Sent | Row] = [*left.deaths, *left.sent, *left.rows]
    for each in travelled:
        produced = left.contents[each.delivery.origin]
        if isinstance(each, Row) and each.content.value is None and each.size == len(produced.value or b""):
            produced = produced._replace(value=None)
        if each.content != produced:
            yield f"not as it was produced: {str(each)[:400]}"


def _sent_as_said(left: Left) -> Iterator[str]:
    """Each record of a replay topic is one delivery of one plan, and there is one for each that a plan has sent.

    But for those by which a worker hands what was sent back, and is done, to the next handler of a sequence. What ended
    before its sender, which was killed, had noted that it was sent has no number.
    """
    ended = [item for item in left.items if item.state in ENDS]
    said = by([item for item in ended if item.number is not None], lambda item: (item.delivery, item.number or 0))
    unnoted = Counter(item.delivery for item in ended if item.number is None)
    handed_on = {_next(each) for each in left.sent} - said.keys()
    by_plans = [each for each in left.sent if (each.delivery, each.number) not in handed_on]
    sent = by(by_plans, lambda each: (each.delivery, each.number))
    for which in {*sent, *said}:
        there, claimed = sent.get(which, []), said.get(which, [])
        noted_not = min(max(0, len(there) - len(claimed)), unnoted[which[0]])
        unnoted[which[0]] -= noted_not
        if len(there) != len(claimed) + noted_not:
            yield f"sent {len(there)} times, and {len(claimed)} are said: {there} {claimed}"
        plans = Counter(item.plan for item in claimed)
        yield from (f"twice by plan {plan}: {which}" for plan, count in plans.items() if count > 1)
    yield from (f"said to have ended, and never sent: {delivery}" for delivery, count in unnoted.items() if count)
    for item in left.items:
        if item.state in (PlanItemState.CLAIMED, PlanItemState.SENT):
            yield f"its end is not known yet: {item}"


def _next(sent: Sent) -> tuple[Delivery, int] | None:
    """The next handler's delivery in a sequence, and the number that it has."""
    steps = TOPICS[topic_of(sent.delivery.origin)].sequence
    then = dict(pairwise(steps)).get(sent.delivery.handler)
    return None if then is None else (sent.delivery._replace(handler=then), sent.number + 1)


def topic_of(origin: str) -> str:
    """The topic, without its prefix, of `prefix.topic-partition-offset`."""
    return origin.rsplit("-", 2)[0].partition(".")[2]


def _ended_as_said(left: Left) -> Iterator[str]:
    """What was sent back ended as the plan says."""
    deaths = by(left.deaths, lambda death: death.delivery)
    done = {each.delivery for each in left.done}
    for item in left.items:
        if item.state not in ENDS or item.number is None:
            continue
        died = [death for death in deaths.get(item.delivery, ()) if death.number >= item.number]
        if item.state == PlanItemState.DONE and item.delivery.work not in done:
            yield f"said to be done, and is not: {item}"
        if item.state == PlanItemState.DEAD and not died:
            yield f"said to have died again, and has not: {item}"
        if item.state == PlanItemState.DISCARDED:
            yield f"nobody has discarded it: {item}"
        if item.state == PlanItemState.UNKNOWN and not left.lost_data_at:
            yield f"its end is not known, and Redis had lost nothing: {item}"


def _stands(left: Left) -> Iterator[str]:
    """After all was sent back as often as need be, what can be cured is resolved, and the rest is open."""
    done = {each.delivery for each in left.done}
    for row in left.rows:
        record = left.records[row.delivery.origin]
        curable = record.do not in NEVER
        if row.status != (LetterStatus.RESOLVED if curable else LetterStatus.OPEN):
            yield f"{'done' if row.delivery.work in done else 'not done'}, and {row.status}: {record} {row}"
        if curable and row.delivery.work not in done:
            yield f"sent back until it was done, and is not: {record} {row}"


def _ends(found: Verdict, left: Left) -> None:
    """Each record was done by each of its handlers, or died there."""
    dead = {death.delivery.work for death in left.deaths}
    ended = {each.delivery for each in left.done} | dead
    for origin, record in left.records.items():
        name = topic_of(origin)
        for handler in TOPICS[name].handlers:
            delivery = Delivery(origin, handler)
            if delivery not in ended:
                found.lost[name].append(delivery)
            if delivery in dead and TOPICS[name].sequence and record.do in NEVER:
                break


def _repeats(found: Verdict, left: Left) -> None:
    for delivery, some in by(left.done, lambda each: each.delivery).items():
        for one, other in pairwise(sorted(some, key=lambda each: each.at)):
            _excuse(found, left, "done", Repeat(one.at, other.at, (one.pid, other.pid)), f"{delivery}: {one} {other}")
    for _, dead in by(left.deaths, lambda death: (death.delivery, death.replayed)).items():
        for first, second in pairwise(sorted(dead, key=lambda death: death.at)):
            _excuse(found, left, "dead letter", Repeat(first.at, second.at), f"{first} {second}")


def _excuse(found: Verdict, left: Left, what: str, repeat: Repeat, words: str) -> None:
    if reason := cause(repeat, left.faults):
        found.twice[f"{what}: {reason}"] += 1
    else:
        found.wrong.append(f"{what} twice without a cause: {words}")


def _counts(rows: Iterable[Row]) -> Counter[Delivery]:
    return Counter(row.delivery for row in rows)
