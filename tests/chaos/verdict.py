"""What must hold after a run, from what Kafka has and what the handlers wrote down: no ledger is asked (pure)."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise, permutations
from typing import Final, NamedTuple

from tests.chaos.load import DIES
from tests.chaos.schedule import DEAD_AFTER
from tests.chaos.topics import Topic


class Entry(NamedTuple):
    """A line of the handlers' book; `at` in seconds (Unix)."""

    handler: str
    uid: str
    coordinates: str
    outcome: str
    at: float
    pid: int


class Record(NamedTuple):
    """A record that Kafka has: what the load said of it in its headers, and where it lies."""

    uid: str
    do: str
    who: str
    key: bytes | None
    partition: int
    offset: int

    def dies_in(self, handler: str) -> str | None:
        """Why a handler's delivery of it must end as a dead letter; None where it must be done."""
        return DIES.get(self.do) if self.do == "undecodable" or self.who in ("", handler) else None


class Letter(NamedTuple):
    """A dead letter; `at` in seconds (Unix), when it was written."""

    handler: str
    uid: str
    origin: str
    reason: str
    at: float


class Happened(NamedTuple):
    """A fault as it was done, from when to when, and the processes that it killed or froze."""

    lane: str
    kind: str
    begun: float
    ended: float
    pids: frozenset[int]


@dataclass
class Verdict:
    """What was found of one topic, or of several.

    Attributes:
        lost: deliveries that are neither done nor dead.
        forgotten: how many of those a wiped Redis took, where the documentation allows it.
        buried: deliveries that died as poison, of records that kill nobody.
        wrong: deliveries that had another end than theirs.
        twice: deliveries that were done more than once, and how many there are for each cause that the documentation
            allows. `unexplained` has those for which there is none.
        disorder: what was begun before what is before it was done.
    """

    deliveries: int = 0
    lost: list[str] = field(default_factory=list)
    forgotten: int = 0
    buried: list[str] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)
    twice: Counter[str] = field(default_factory=Counter)
    unexplained: list[str] = field(default_factory=list)
    disorder: list[str] = field(default_factory=list)

    def add(self, other: "Verdict") -> None:
        """Add what was found of another topic."""
        self.deliveries += other.deliveries
        self.forgotten += other.forgotten
        self.twice += other.twice
        for name in ("lost", "buried", "wrong", "unexplained", "disorder"):
            getattr(self, name).extend(getattr(other, name))


class Ends(NamedTuple):
    """How each delivery of a topic ended, by handler and uid."""

    begun: Mapping[tuple[str, str], Sequence[Entry]]
    done: Mapping[tuple[str, str], Sequence[Entry]]
    letters: Mapping[tuple[str, str], Sequence[Letter]]


def judge(
    topic: Topic, records: Iterable[Record], book: Iterable[Entry], letters: Iterable[Letter], faults: list[Happened]
) -> Verdict:
    """Compare what Kafka has of a topic with what its handlers did and what its dead-letter topic has."""
    records = list(records)
    ends = _ends(topic, book, letters)
    found = Verdict(deliveries=len({record.uid for record in records}) * len(topic.handlers))
    for record in records:
        dead_before = False
        for handler in topic.handlers:
            name = f"{record.uid} ({record.do}, {record.partition}-{record.offset}): {handler}"
            if not (dead_before and topic.sequence):
                _end(found, name, record.dies_in(handler), ends, (handler, record.uid))
            dead_before = dead_before or (handler, record.uid) in ends.letters
    killers = {record.uid for record in records if record.do.startswith("kill")}
    _repeats(found, topic, ends, killers, faults)
    if topic.ordered:
        found.disorder += _disorder(topic, records, ends)
    return found


def _ends(topic: Topic, book: Iterable[Entry], letters: Iterable[Letter]) -> Ends:
    begun: dict[tuple[str, str], list[Entry]] = defaultdict(list)
    done: dict[tuple[str, str], list[Entry]] = defaultdict(list)
    dead: dict[tuple[str, str], list[Letter]] = defaultdict(list)
    for entry in book:
        if entry.handler in topic.handlers:
            (done if entry.outcome == "done" else begun)[entry.handler, entry.uid].append(entry)
    for letter in letters:
        dead[letter.handler, letter.uid].append(letter)
    return Ends(dict(begun), dict(done), dict(dead))


def _end(found: Verdict, name: str, dies: str | None, ends: Ends, which: tuple[str, str]) -> None:
    done, letters = ends.done.get(which), ends.letters.get(which)
    if not done and not letters:
        found.lost.append(name)
    elif letters and dies != "poison" and {letter.reason for letter in letters} == {"poison"}:
        found.buried.append(f"{name}{' and done' if done else ''}")
    elif (dies is None and letters) or (dies and {letter.reason for letter in letters or ()} != {dies}):
        found.wrong.append(f"{name} should be {dies or 'done'}: {letters}")


class Repeat(NamedTuple):
    """What was done at one time by a process, and at another by another; 0 where that is not known.

    `sends`: it is marked once Kafka has what it sends.
    """

    first: float
    second: float
    pids: tuple[int, int] = (0, 0)
    whole: bool = True
    sends: bool = False


def _repeats(found: Verdict, topic: Topic, ends: Ends, killers: set[str], faults: list[Happened]) -> None:
    for which, entries in ends.done.items():
        for runs in _runs_of_one(topic, entries, ends.begun.get(which, ())):
            for first, second in pairwise(sorted(runs, key=lambda each: each.at)):
                repeat = Repeat(first.at, second.at, (first.pid, second.pid), topic.whole, topic.sends)
                neighbour = UNSENT if topic.sends else UNMARKED_BESIDE if topic.shares else None
                killed = neighbour if neighbour and _was_killed(first, ends, killers, beside=topic.shares) else None
                if reason := cause(repeat, faults) or killed:
                    found.twice[reason] += 1
                else:
                    found.unexplained.append(f"{which}: {first} {second}")
    for which, letters in ends.letters.items():
        for origin in {letter.origin for letter in letters}:
            for one, other in pairwise(sorted(letter.at for letter in letters if letter.origin == origin)):
                repeats = _repeats_of_letter(one, other, ends.begun.get(which, ()), topic)
                if reason := next(filter(None, (cause(each, faults) for each in repeats)), None):
                    found.twice[f"dead letter: {reason}"] += 1
                else:
                    found.unexplained.append(f"dead letters of {which}: {one:.3f} {other:.3f}")


def _runs_of_one(topic: Topic, done: Sequence[Entry], begun: Sequence[Entry]) -> Iterator[Sequence[Entry]]:
    """The runs of which one should be: of a record, and of all records with one unique name."""
    # A record that the load wrote twice is two.
    for coordinates in {entry.coordinates for entry in done}:
        yield [entry for entry in done if entry.coordinates == coordinates]
    if topic.unique:
        # The old version knows no names.
        knows = {entry.pid for entry in begun if entry.outcome == "named"}
        first = {entry.coordinates: entry for entry in reversed(done)}
        yield [entry for entry in first.values() if entry.pid in knows]


def _repeats_of_letter(one: float, other: float, runs: Sequence[Entry], topic: Topic) -> Iterator[Repeat]:
    """What a second dead letter may be: each two processes that have run its delivery may have written the two."""
    yield Repeat(one, other, whole=topic.whole)
    for first, second in permutations({run.pid for run in runs if run.at < other}, 2):
        yield Repeat(one, other, (first, second), topic.whole)


#: docs/how-to/publish-messages.md: a neighbour of its batch killed the process before Kafka had what it sends.
UNSENT: Final = "killed by a neighbour before it was sent"


#: docs/concepts/guarantees.md: what a process ran side by side, or in one bulk call, runs again if it is killed.
UNMARKED_BESIDE: Final = "killed by a neighbour that ran in its process"


def _was_killed(entry: Entry, ends: Ends, killers: set[str], *, beside: bool) -> bool:
    """Whether the process of an entry was killed by one of these records so soon after it.

    Parameters:
        beside: whether that record may have begun before it.
    """
    runs = (each for (_, uid), found in ends.begun.items() if uid in killers for each in found)
    since = -UNMARKED if beside else 0
    return any(each.pid == entry.pid and since <= each.at - entry.at < UNMARKED for each in runs)


#: Seconds before its end in which what a process did may not be marked, with what a machine at its limit adds.
UNMARKED: Final = 1.0
#: Seconds after its end at which a process can have done something, by a clock that is wrong (tests/chaos/faults.py).
SKEWED: Final = 11.0
#: What took data from Redis, and how many seconds before it that data may have come.
LOSSES: Final = {"goes back": 6.0, "fails over": 3.0, "wiped": 120.0}
#: Seconds after such a fault within which what is there twice is done for the first time: taken within one, and run.
DONE_WITHIN: Final = 2.0
#: The lanes of faults in which Kafka does not answer.
KAFKA: Final = ("kafka", "link kafka")
#: Seconds within which a running bridge knows that a log is another one, on a machine at its limit.
UNNOTICED: Final = 10.0


def cause(repeat: Repeat, faults: Sequence[Happened]) -> str | None:
    """Why something was done again, as far as docs/concepts/ledger.md allows it; None where it does not."""
    rules = (_redis_lost_data, _killed, _frozen, _cut_off, _another_log)
    return next((words for rule in rules for fault in faults if (words := rule(repeat, fault, faults))), None)


def _redis_lost_data(repeat: Repeat, fault: Happened, faults: Sequence[Happened]) -> str | None:
    if fault.lane != "redis" or fault.kind not in LOSSES:
        return None
    between = (
        fault.begun - LOSSES[fault.kind] < repeat.first < fault.ended + DONE_WITHIN and repeat.second > fault.begun
    )
    return f"redis {fault.kind}" if between else None


def _killed(repeat: Repeat, fault: Happened, faults: Sequence[Happened]) -> str | None:
    if "killed" not in fault.kind or repeat.pids[0] not in fault.pids:
        return None
    if fault.begun - UNMARKED < repeat.first < fault.ended + SKEWED:
        return f"worker {fault.kind}"
    away = [other for other in faults if _redis_away(other) and other.begun < fault.begun]
    unmarked = any(other.begun - UNMARKED < repeat.first < other.ended + 1 for other in away)
    if unmarked:
        return f"worker {fault.kind}, and the ledger had not answered"
    silent = [other for other in faults if repeat.sends and other.lane in KAFKA and other.begun < fault.begun]
    unsent = any(other.begun - UNMARKED < repeat.first < other.ended + 1 for other in silent)
    return f"worker {fault.kind}, and Kafka had not answered" if unsent else None


def _frozen(repeat: Repeat, fault: Happened, faults: Sequence[Happened]) -> str | None:
    if "frozen" not in fault.kind or not fault.pids & {*repeat.pids}:
        return None
    during = fault.begun - UNMARKED < repeat.first < fault.ended + 1 or fault.begun < repeat.second < fault.ended + 5
    return f"worker {fault.kind}" if during else None


def _cut_off(repeat: Repeat, fault: Happened, faults: Sequence[Happened]) -> str | None:
    if not _redis_away(fault) or fault.ended - fault.begun < DEAD_AFTER - 0.5:
        return None
    during = fault.begun - 2 < repeat.first < fault.ended + 2 and repeat.second > fault.begun
    return "no sign of life for dead_after, Redis was away" if during else None


def _another_log(repeat: Repeat, fault: Happened, faults: Sequence[Happened]) -> str | None:
    if repeat.whole or fault.kind not in ("topic made again", "log goes back"):
        return None
    return fault.kind if repeat.first < fault.ended + UNNOTICED and repeat.second > fault.begun else None


def _redis_away(fault: Happened) -> bool:
    return fault.lane in ("redis", "link redis")


def _disorder(topic: Topic, records: Iterable[Record], ends: Ends) -> Iterator[str]:
    """What a handler began before it had done what is before it in its lane."""
    for handler in topic.handlers:
        lanes: dict[tuple[int, bytes | None], list[Record]] = defaultdict(list)
        for record in records:
            if topic.ordered == "partition" or record.key is not None:
                lanes[record.partition, record.key if topic.ordered == "key" else None].append(record)
        for lane in lanes.values():
            ordered = sorted(lane, key=lambda record: record.offset)
            yield from _out_of_order(handler, ordered, ends)


def _out_of_order(handler: str, ordered: Iterable[Record], ends: Ends) -> Iterator[str]:
    latest, before = 0.0, ""
    for record in ordered:
        which = (handler, record.uid)
        begun, done = ends.begun.get(which), ends.done.get(which)
        if begun and (first := min(entry.at for entry in begun)) < latest:
            yield f"{handler}: {record.uid} was begun {latest - first:.3f} s before {before} was done"
        if done and (at := min(entry.at for entry in done)) > latest:
            latest, before = at, record.uid
