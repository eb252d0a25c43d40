"""Dead letters that hold and small halts under a seeded random schedule of faults: docs/contributors/chaos.md.

CHAOS_SEED and CHAOS_HOLD_MINUTES choose another schedule and a longer one; CHAOS_HOLD_RATE how many records a second.
"""

import os
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack
from itertools import pairwise
from pathlib import Path
from typing import Any, Final, NamedTuple

import pytest

from tests.chaos import evidence, faults
from tests.chaos.fault_runner import Run
from tests.chaos.faults import Done
from tests.chaos.load import Load
from tests.chaos.schedule import BRIDGE, GROUP, WORKER, Fault, Kind, Lane, schedule
from tests.chaos.topics import COMPLETION, Topic
from tests.chaos.verdict import Entry, Happened, Record, Repeat, cause
from tests.chaos.world import World, servers, watched
from tests.delivery_checks import end, json_in, json_of
from tests.processes import Process, eventually
from tests.servers import kafka as kafka_server
from tests.servers import redis as redis_server
from tests.servers.missing import need

SEED = int(os.environ.get("CHAOS_SEED") or 1)
SECONDS = 60 * float(os.environ.get("CHAOS_HOLD_MINUTES") or 0.75)
RATE = float(os.environ.get("CHAOS_HOLD_RATE") or 20)
#: Seconds after the last fault within which all must be settled: those behind a dead one of their batch look for it
#: every minute.
SETTLED_WITHIN = float(os.environ.get("CHAOS_SETTLED_WITHIN") or 300)

pytestmark = [pytest.mark.chaos, pytest.mark.timeout(SECONDS + SETTLED_WITHIN + 240)]

HOLD: Final[dict[str, Any]] = {**COMPLETION, "order": "key", "after_dead": "hold"}
TOPICS: Final[Mapping[str, Topic]] = {
    "keyed": Topic(("keyed",), HOLD),
    "fixed": Topic(("fixed",), HOLD),
    "line": Topic(("line",), {**HOLD, "order": "partition"}, partitions=4),
    "parked": Topic(("parked",), HOLD),
    "side": Topic(("side",), HOLD),
    "bulk": Topic(("bulk",), HOLD),
    "both": Topic(("one", "other"), COMPLETION),
}
#: What a record has its handler do (tests/handlers/holding.py) → how often. A dead one must be sent back so often.
DOINGS: Final = {"ok": 800, "fail 1": 60, "dead 1": 25, "dead 2": 5, "dead 99": 5}
NEVER: Final = "dead 99"

REDIS: Final = Lane(
    (
        Kind("killed", 2, (0.1, 2)),
        Kind("frozen", 1, (0.5, 4)),
        Kind("fails over", 1),
        Kind("goes back", 1, (1, 4)),
        Kind("wiped", 2),
    ),
    rest=(4, 9),
)
PEOPLE: Final = Lane((Kind("halt a handler", 1, (6, 12)), Kind("halt a key", 1, (6, 12))), rest=(1, 4))
DESK: Final = Lane((Kind("replay", 3), Kind("discard one", 1)), rest=(2, 5))
LANES: Final[Mapping[str, Lane]] = {
    "bridge 1": BRIDGE,
    "worker 1": WORKER,
    "worker 2": WORKER,
    "redis": REDIS,
    "group": GROUP,
    "people": PEOPLE,
    "desk": DESK,
}
MEMBERS: Final = tuple(name for name in LANES if name.startswith(("bridge", "worker")))


class HoldWorld(World):
    """The processes of the run.

    Attributes:
        discarded: by the coordinates and handler of a delivery, when it was told to be discarded.
    """

    discarded: dict[tuple[str, str], float]

    def letters(self, status: str) -> list[dict[str, Any]]:
        """The letters of a status, as `bridge deadletters list` has them."""
        words = ("deadletters", "list", "--status", status, "--limit", "0", "--json")
        process: Process = self.start("command", sys.executable, "-m", "bridge", *words)
        return list(json_in(process.text)) if process.ends(120) == 0 else []

    def discard(self, letters: Iterable[Mapping[str, Any]]) -> int:
        """Discard letters; return the exit code."""
        for letter in letters:
            origin = f"{letter['topic']}-{letter['partition']}-{letter['offset']}"
            self.discarded.setdefault((origin, letter["handler"]), time.time())
        ids = [str(letter["id"]) for letter in letters]
        words = ("deadletters", "discard", *ids, "--why", "chaos", "--yes")
        process: Process = self.start("command", sys.executable, "-m", "bridge", *words)
        return process.ends(120) or 0


def replay(world: HoldWorld, fault: Fault) -> Done:
    """Send back what is open, as far as it gets."""
    words = ("deadletters", "replay", "--status", "open", "--yes")
    process: Process = world.start("command", sys.executable, "-m", "bridge", *words)
    return Done(words=f"ended with {process.ends(60)}")


def discard_one(world: HoldWorld, fault: Fault) -> Done | None:
    """Discard one that is open."""
    if not (found := world.letters("open")):
        return None
    return Done(words=f"ended with {world.discard([found[int(fault.draw * len(found))]])}")


ACTS: Final[Mapping[tuple[str, str], faults.ActIn[HoldWorld]]] = {
    **faults.ACTS,
    ("desk", "replay"): replay,
    ("desk", "discard one"): discard_one,
}


def act(world: HoldWorld, fault: Fault) -> Done | None:
    """Do a fault, to its end."""
    return ACTS[fault.lane.split()[0], fault.kind](world, fault)


class Lines(NamedTuple):
    """What handlers wrote, by handler and coordinates."""

    begun: Mapping[tuple[str, str], list[Entry]]
    done: Mapping[tuple[str, str], list[Entry]]


def read_book(entries: Iterable[Entry]) -> Lines:
    begun: dict[tuple[str, str], list[Entry]] = defaultdict(list)
    done: dict[tuple[str, str], list[Entry]] = defaultdict(list)
    for entry in sorted(entries, key=lambda each: each.at):
        (done if entry.outcome == "done" else begun)[entry.handler, entry.coordinates].append(entry)
    return Lines(begun, done)


def lost(world: HoldWorld, name: str, records: Iterable[Record], lines: Lines) -> Iterator[str]:
    """Deliveries that are neither done nor discarded."""
    for record in records:
        coordinates = f"{world.topic(name)}-{record.partition}-{record.offset}"
        for handler in TOPICS[name].handlers:
            if (handler, coordinates) not in lines.done and (coordinates, handler) not in world.discarded:
                yield f"{record.uid} ({record.do}, {coordinates}) is neither done nor discarded by {handler}"


def disorder(world: HoldWorld, name: str, records: Iterable[Record], lines: Lines) -> Iterator[str]:
    """What a handler began before all that is before it in its lane was done, or was told to be discarded."""
    topic, lanes = TOPICS[name], defaultdict(list)
    for record in records:
        if topic.ordered == "partition" or record.key is not None:
            lanes[record.partition, record.key if topic.ordered == "key" else None].append(record)
    for lane in lanes.values():
        for handler in topic.handlers:
            latest, before = 0.0, ""
            for record in sorted(lane, key=lambda each: each.offset):
                coordinates = f"{world.topic(name)}-{record.partition}-{record.offset}"
                begun, done = (some.get((handler, coordinates), []) for some in lines)
                # Those behind a dead one in one call of a bulk handler have run, and run again.
                runs = done[-1:] if name == "bulk" else begun[:1]
                if runs and runs[0].at < latest:
                    yield f"{handler}: {record.uid} ({record.do}) ran {latest - runs[0].at:.3f} s before {before} ended"
                ends = [done[0].at] if done else []
                ends += [at for which, at in world.discarded.items() if which == (coordinates, handler)]
                if ends and min(ends) > latest:
                    latest, before = min(ends), f"{record.uid} ({record.do}, {coordinates})"


#: Seconds after which every worker knows of a halt, on a machine at its limit.
KNOWN_WITHIN: Final = 5.0


def run_while_halted(world: HoldWorld, name: str, records: Iterable[Record], lines: Lines) -> Iterator[str]:
    """What was begun of a handler or key while it was halted."""
    for record in records:
        coordinates = f"{world.topic(name)}-{record.partition}-{record.offset}"
        for halt in world.halts:
            if halt.key in (None, record.key):
                for entry in lines.begun.get((halt.handler, coordinates), []):
                    if halt.begun + KNOWN_WITHIN < entry.at < halt.ended:
                        yield f"{entry} ran {entry.at - halt.begun:.1f} s after it was halted: {halt}"


def twice(lines: Lines, happened: list[Happened]) -> tuple[Counter[str], list[str]]:
    """What was done twice, by cause, and what has none."""
    found: Counter[str] = Counter()
    unexplained = []
    for (handler, coordinates), entries in lines.done.items():
        for first, second in pairwise(entries):
            reason = cause(Repeat(first.at, second.at, (first.pid, second.pid)), happened)
            if reason is None and handler == "bulk":
                reason = "behind a dead one in one call of a bulk handler"
            if reason is None:
                unexplained.append(f"{handler} {coordinates}: {first} {second}")
            else:
                found[reason] += 1
    return found, unexplained


def unsettled(world: HoldWorld) -> dict[str, str]:
    found = {name: f"committed {world.committed(name)} of {end(world, name)}" for name in TOPICS}
    return {name: words for name, words in found.items() if len({*words.split()[1::2]}) > 1}


def settle(world: HoldWorld) -> dict[str, str]:
    """Send back and discard what is open until all is settled; return what is left when the time is over."""
    deadline = time.monotonic() + SETTLED_WITHIN
    nevers = {record.uid for name in TOPICS for record in records_of(world, name) if record.do == NEVER}
    uids = {
        f"{world.topic(name)}-{record.partition}-{record.offset}": record.uid
        for name in TOPICS
        for record in records_of(world, name)
    }
    while (left := unsettled(world)) and time.monotonic() < deadline:
        found = world.letters("open")
        never = [each for each in found if uids.get(f"{each['topic']}-{each['partition']}-{each['offset']}") in nevers]
        if never:
            world.discard(never)
        if len(found) > len(never):
            words = ("deadletters", "replay", "--status", "open", "--yes")
            world.start("command", sys.executable, "-m", "bridge", *words).ends(60)
        time.sleep(1)
    return left


def records_of(world: HoldWorld, name: str) -> list[Record]:
    return [evidence.record(raw) for raw in world.records(name)]


def test_whatever_befalls_what_is_held_it_goes_out_in_its_order_and_each_has_its_one_end(
    tmp_path: Path, topic_prefix: str, capsys: pytest.CaptureFixture[str]
) -> None:
    need(kafka_server.missing())
    need(redis_server.missing())
    # What it survived is shown of a run that went well, too.
    with capsys.disabled():
        carry_out(tmp_path, topic_prefix)


def carry_out(tmp_path: Path, topic_prefix: str) -> None:
    """The schedule, and what must hold after it."""
    planned = schedule(SEED, SECONDS, LANES)
    print(f"\nCHAOS_SEED={SEED} CHAOS_HOLD_MINUTES={SECONDS / 60:g}: {len(planned)} faults")
    print(*planned, sep="\n", flush=True)
    with ExitStack() as block:
        kafka, pair, network = servers(block)
        made = block.enter_context(
            HoldWorld(kafka, pair, network, topic_prefix, tmp_path, topics=TOPICS, handlers="tests.handlers.holding")
        )
        made.discarded = {}
        made.environ["DEADLETTERS_DATABASE_URL"] = f"sqlite:///{tmp_path}/letters.db"
        made.make_sources()
        watched(block, made)
        for name in MEMBERS:
            made.start_member(name)
        made.start("recorder", sys.executable, "-m", "bridge", "deadletters", "record")
        load = Load(made.kafka, topic_prefix, RATE, SEED, TOPICS, DOINGS)
        load.start()
        eventually(lambda: made.book.stat().st_size > 2_000, 60, "handlers run")
        run = Run(made, planned, act, SECONDS)
        run.to_the_end()
        load.stop()
        over = time.monotonic()
        for name in MEMBERS:
            made.alive(name)
        assert run.failed == [], "faults that could not be done, or ended"
        status = json_of(made, "status")
        wrong = [f"is halted, and was resumed: {each}" for each in (*status["halted"], *status["halted_handlers"])]
        left = settle(made)
        print(f"settled {time.monotonic() - over:.1f} s after the last fault", flush=True)
        lines = read_book(evidence.book(made.book))
        for name in TOPICS:
            records = records_of(made, name)
            wrong += [*lost(made, name, records, lines), *run_while_halted(made, name, records, lines)]
            if TOPICS[name].ordered:
                wrong += [*disorder(made, name, records, lines)]
        repeats, unexplained = twice(lines, run.happened)
        wrong += unexplained
        dead = sum(len(made.dead_letters(name)) for name in TOPICS)
        print(f"\nseed {SEED}: {len(run.happened)} faults survived, {load.sent} records, {dead} dead letters,")
        print(f"{len(made.discarded)} discarded, {len(made.halts)} halts, done twice {repeats.total()}:")
        print(*(f"  {count:4}  {why}" for why, count in repeats.most_common()), sep="\n")
        print(f"faults that could not be done: {len(run.skipped)}", flush=True)
        if made.exits or left or wrong:
            print("what was done:", *run.log, "what is wrong:", left, *wrong[:50], sep="\n", flush=True)
        assert made.exits == [], "what ended of itself"
        assert left == {}, f"not settled {SETTLED_WITHIN} s after the last fault"
        assert wrong == []
