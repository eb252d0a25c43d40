"""Any interleaving of hand-off, settle, crash, redelivery, rebalance and wipe loses no message and breaks no
order.

Bridges and workers here are small: they make the moves of the real ones in the real order (publish, mark,
then commit or acknowledge), on the real lanes and offsets and a ledger in memory that keeps the real one's
contract.
"""

from dataclasses import dataclass, field

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from bridge.ledger.duplicate_check import is_to_skip
from bridge.ledger.fate_rules import Fate
from bridge.ledger.ledger_layout import Account
from bridge.ledger.ledger_scripts import Mark, Push
from bridge.partitions.ordering import DeliveryQueue, Order, SkippedDeliveries, make_delivery_queue
from bridge.partitions.safe_offset import OffsetTracker
from tests.hypothesis_profiles import examples
from tests.memory_ledger import MemoryLedger

ENDED = (Fate.DONE, Fate.DEAD, Fate.DISCARDED)
DISASTERS = (
    "the bridge dies",
    "rebalance",
    "rebalance",
    "a worker dies",
    "a worker is taken for dead",
)
LEDGER_DISASTERS = (
    "the file is written",
    "the file is written",
    "Redis dies",
    "Redis dies",
    "Redis is wiped",
    "a page expires",
    "a page expires",
    "Redis falls silent",
    "Redis falls silent",
    "Redis answers",
)


@dataclass
class World:
    """Kafka, Redis, and what really happened."""

    order: Order
    tracks: list[tuple[str, ...]]
    batch: int
    log: dict[int, bytes | None] = field(default_factory=dict)
    end: int = 0
    committed: int = 0
    epoch: str | None = None
    """The ledger that the commit rests on."""
    topic_id: str = "id"
    silent: bool = False
    """The ledger does not answer."""
    retry_topic: list[tuple[str, int]] = field(default_factory=list)
    holds_dead: bool = False
    """A dead letter holds what is behind it in its order until a replay of it is done."""
    letters: list[tuple[str, int]] = field(default_factory=list)
    """The dead letters, while they hold."""
    ledger: MemoryLedger = field(default_factory=MemoryLedger)
    ended: dict[tuple[str, int], Fate] = field(default_factory=dict)
    done: set[tuple[str, int]] = field(default_factory=set)
    """Done, and the ledger has lost nothing since."""

    @property
    def handlers(self) -> list[str]:
        return [handler for track in self.tracks for handler in track]

    @property
    def queue(self) -> list[bytes]:
        return self.ledger.queues["celery"]

    def lane(self, offset: int) -> object:
        if self.order == "partition":
            return "all"
        key = self.log[offset]
        return offset if self.order == "none" or key is None else key

    def before(self, offset: int) -> list[int]:
        return [o for o in self.log if o < offset and self.lane(o) == self.lane(offset)]

    def account(self, handler: str) -> Account:
        return Account(handler, "orders", self.topic_id, 0)


class Bridge:
    """The loop of a bridge that owns the partition, or did."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.begun = False
        self.begin()

    def move(self, what: str, most: int, owner: bool) -> None:
        """One move of the loop; while the ledger is silent there is none."""
        if self.world.silent:
            return
        if not self.begun:
            self.begin()
        if what == "poll":
            self.poll(most)
        elif what == "hand":
            self.hand_off()
        elif what == "learn":
            self.learn()
        else:
            self.commit(owner)

    def begin(self) -> None:
        """Where to begin is known once the ledger has said what it has."""
        world, ledger = self.world, self.world.ledger
        self.begun = not world.silent
        if world.silent:
            return
        self.state = ledger.state()
        first = world.committed
        accounts = [world.account(handler) for handler in world.handlers]
        if world.epoch == self.state.epoch:
            # A ledger that has seen less than was committed went back.
            first = min(
                first, max((k.reached for k in ledger.read_progress(accounts) if k.reached is not None), default=first)
            )
        for each in accounts:
            joined = ledger.join(each, world.committed)
            lost = next(ledger.runs(each, {Fate.OPEN}, joined, world.committed - 1), None)
            first = min(first, lost.start if lost else first)
        ledger.raise_reached(dict.fromkeys(accounts, first))
        self.position = first
        ordered, holds = world.order != "none", world.holds_dead
        self.offsets = OffsetTracker(first, world.handlers, "completion", ordered, holds)
        self.lanes = [
            make_delivery_queue(world.order, track, [world.batch] * len(track), holds_dead=holds)
            for track in world.tracks
        ]

    def poll(self, most: int) -> None:
        world = self.world
        some = [o for o in sorted(world.log) if o >= self.position][:most]
        if not some:
            return
        self.position = some[-1] + 1
        gaps = self.offsets.read(some)
        world.ledger.write([Mark(self.world.account(h), gap, Fate.GAP) for h in world.handlers for gap in gaps])
        keys = [world.log[o] for o in some]
        for lanes, track in zip(self.lanes, world.tracks, strict=True):
            found = world.ledger.fates_of([(self.world.account(handler), some) for handler in track])
            for handler, fates in zip(track, found, strict=True):
                for offset, fate in zip(some, fates, strict=True):
                    self.offsets.mark(handler, [offset], Fate(fate))
            self._doom(lanes.add(some, keys, found))

    def hand_off(self) -> None:
        for lanes in self.lanes:
            for handler, offsets, _ in lanes.take():
                entry = f"{handler}|{','.join(map(str, offsets))}".encode()
                (written,) = self.world.ledger.write([Push(self.world.account(handler), offsets, "celery", [entry])])
                if written.changed:
                    self.offsets.mark(handler, offsets, Fate.HANDED)
                    continue
                for offset, fate in zip(offsets, map(Fate, written.before), strict=True):
                    self.offsets.mark(handler, [offset], fate)
                    self._learned(lanes, handler, [offset], fate)

    def learn(self) -> None:
        for lanes, track in zip(self.lanes, self.world.tracks, strict=True):
            for handler in track:
                window = self.offsets.window
                found = self.world.ledger.fates(self.world.account(handler), window.start, window.stop - 1)
                for change in self.offsets.take_in_fates(handler, window.start, found):
                    if change.went_back and (change.before, change.fate) != (Fate.HANDED, Fate.OPEN):
                        self.begin()
                        return
                    there = [o for o in change.offsets if o in self.world.log]
                    self._learned(lanes, handler, there, change.fate)

    def commit(self, owner: bool) -> None:
        safe = self.offsets.safe()
        if self.world.ledger.state().doubt(self.state):
            self.begin()
        elif owner:
            self.state = self.world.ledger.state()
            self.world.ledger.raise_reached({self.world.account(handler): safe for handler in self.world.handlers})
            if safe > self.world.committed:
                self.world.committed, self.world.epoch = safe, self.state.epoch

    def _learned(self, lanes: DeliveryQueue, handler: str, offsets: list[int], fate: Fate) -> None:
        if fate in (Fate.OPEN, Fate.GAP):
            lanes.give_back(handler, offsets, [self.world.log[o] for o in offsets])
        else:
            self._doom(lanes.settle(handler, offsets, fate))

    def _doom(self, doomed: list[SkippedDeliveries]) -> None:
        for handler, offsets, fate in doomed:
            (written,) = self.world.ledger.write([Mark(self.world.account(handler), offsets, fate)])
            for offset in written.changed:
                self.world.ended.setdefault((handler, offset), fate)


class Worker:
    """Takes an entry and works through it, one message at a step."""

    def __init__(self, world: World, entry: bytes) -> None:
        self.world, self.entry = world, entry
        name, _, offsets = entry.partition(b"|")
        self.handler = name.decode()
        self.left = [int(offset) for offset in offsets.split(b",")]
        self.failed: list[int] = []

    def step(self, outcome: str) -> None:
        offset = self.left.pop(0)
        if self.world.lane(offset) in [self.world.lane(o) for o in self.failed]:
            self.failed.append(offset)
            return
        (found,) = self.world.ledger.fates_of([(self.world.account(self.handler), [offset])])
        fate = Fate(found[0])
        if not is_to_skip(fate):
            fate = run(self.world, self.handler, offset, outcome)
        holds = fate is Fate.PARKED or (fate is Fate.DEAD and self.world.holds_dead)
        if holds and (self.world.order != "none" or len(self.world.handlers) > 1):
            # What comes after a parked one, or a dead one that holds, goes back to its lane.
            behind = [o for o in self.left if self.world.lane(o) == self.world.lane(offset)]
            self.left = [o for o in self.left if o not in behind]
            self.world.ledger.write([Mark(self.world.account(self.handler), behind, Fate.OPEN)])
        elif not is_to_skip(fate):
            self.failed.append(offset)

    def work(self, outcomes: list[str]) -> bool:
        """Go on for as many steps as there are outcomes, and tell whether that was all."""
        for outcome in outcomes:
            if self.left:
                self.step(outcome)
        if not self.left:
            self.finish()
        return not self.left

    def finish(self) -> None:
        """Acknowledge, after what failed went back to the queue as an entry of its own."""
        if self.failed:
            entry = f"{self.handler}|{','.join(map(str, self.failed))}".encode()
            self.world.queue.append(entry)


def run(world: World, handler: str, offset: int, outcome: str) -> Fate:
    """Run a handler: check that it was its turn, and settle it."""
    for earlier in world.before(offset):
        assert (handler, earlier) in world.ended, f"{handler} ran {offset} before {earlier} had ended"
    track = next(track for track in world.tracks if handler in track)
    for first in track[: track.index(handler)]:
        assert world.ended.get((first, offset)) is Fate.DONE, f"{handler} ran {offset} before {first} was done"
    assert (handler, offset) not in world.done, f"{handler} ran {offset} again, which was known to be done"
    fate = {"done": Fate.DONE, "dead": Fate.DEAD, "park": Fate.PARKED, "fail": Fate.HANDED}[outcome]
    if fate is Fate.PARKED:
        world.retry_topic.append((handler, offset))
    if fate is not Fate.HANDED:
        world.ledger.write([Mark(world.account(handler), [offset], fate)])
    if fate is Fate.DONE:
        world.done.add((handler, offset))
    if fate is Fate.DEAD and world.holds_dead:
        world.letters.append((handler, offset))
    elif fate in ENDED and world.ended.get((handler, offset)) is not Fate.DONE:
        world.ended[handler, offset] = fate
    return fate


class Model(RuleBasedStateMachine):
    @initialize(
        order=st.sampled_from(["none", "key", "partition"]),
        tracks=st.sampled_from([[("a",)], [("a",), ("b",)], [("a", "b")], [("a", "b"), ("c",)]]),
        batch=st.integers(1, 4),
    )
    def begin(self, order: Order, tracks: list[tuple[str, ...]], batch: int) -> None:
        self.world = World(order, tracks, batch)
        self.bridges = [Bridge(self.world)]
        self.workers: list[Worker] = []
        self._write_the_file()

    @rule(
        keys=st.lists(st.sampled_from([b"x", b"x", b"y", None]), min_size=1, max_size=5),
        gap=st.integers(0, 2),
    )
    def produce(self, keys: list[bytes | None], gap: int) -> None:
        for key in keys:
            self.world.log[self.world.end] = key
            self.world.end += 1
        self.world.end += gap

    @rule(
        which=st.integers(0, 1),
        most=st.integers(1, 8),
        moves=st.lists(st.sampled_from(["poll", "hand", "learn", "commit"]), min_size=1, max_size=4)
        | st.just(["poll", "hand", "learn", "hand", "commit"]),
    )
    def bridge(self, which: int, most: int, moves: list[str]) -> None:
        bridge = self.bridges[which % len(self.bridges)]
        for move in moves:
            bridge.move(move, most, owner=bridge is self.bridges[-1])

    @precondition(lambda self: (self.workers or self.world.queue) and not self.world.silent)
    @rule(
        which=st.integers(0, 5),
        outcomes=st.lists(st.sampled_from(["done", "done", "fail", "park", "dead"]), min_size=1, max_size=5),
    )
    def work(self, which: int, outcomes: list[str]) -> None:
        if self.world.queue:
            self.workers.append(Worker(self.world, self.world.queue.pop(0)))
        worker = self.workers[which % len(self.workers)]
        if worker.work(outcomes):
            self.workers.remove(worker)

    @precondition(lambda self: not self.world.silent)
    @rule(number=st.integers(1, 4), which=st.integers(0, 1))
    def go_on_undisturbed(self, number: int, which: int) -> None:
        bridge = self.bridges[which % len(self.bridges)]
        for move in ("poll", "hand"):
            bridge.move(move, number, owner=False)
        for worker in [*self.workers, *(Worker(self.world, entry) for entry in self.world.queue)]:
            while not worker.work(["done"]):
                pass
        self.workers.clear()
        self.world.queue.clear()
        for move in ("learn", "commit"):
            bridge.move(move, number, owner=bridge is self.bridges[-1])

    @precondition(lambda self: self.world.retry_topic and not self.world.silent)
    @rule(which=st.integers(0, 9), outcome=st.sampled_from(["done", "park", "dead"]))
    def retry_parked(self, which: int, outcome: str) -> None:
        handler, offset = self.world.retry_topic.pop(which % len(self.world.retry_topic))
        (found,) = self.world.ledger.fates_of([(self.world.account(handler), [offset])])
        if not is_to_skip(Fate.OPEN, Fate(found[0])):
            run(self.world, handler, offset, outcome)

    @precondition(lambda self: self.world.letters and not self.world.silent)
    @rule(which=st.integers(0, 9), outcome=st.sampled_from(["done", "dead"]))
    def replay_a_dead_letter(self, which: int, outcome: str) -> None:
        handler, offset = self.world.letters.pop(which % len(self.world.letters))
        (found,) = self.world.ledger.fates_of([(self.world.account(handler), [offset])])
        if not is_to_skip(Fate.OPEN, Fate(found[0])) and (handler, offset) not in self.world.done:
            run(self.world, handler, offset, outcome)

    @rule(
        what=st.sampled_from(DISASTERS),
        which=st.integers(0, 5),
    )
    def disaster(self, what: str, which: int) -> None:
        world = self.world
        if what == "the bridge dies":
            self.bridges[-1] = Bridge(world)
        elif what == "rebalance":  # the one before goes on for a while, without being able to commit
            self.bridges = [self.bridges[-1], Bridge(world)]
        elif what.startswith("a worker") and self.workers:
            worker = self.workers[which % len(self.workers)]
            world.queue.append(worker.entry)
            if what == "a worker dies":
                self.workers.remove(worker)

    @rule(what=st.sampled_from(LEDGER_DISASTERS), which=st.integers(0, 5))
    def disaster_of_the_ledger(self, what: str, which: int) -> None:
        world = self.world
        if what == "the file is written":
            self._write_the_file()
        elif what == "a page expires":
            self._expire(world.handlers[which % len(world.handlers)])
        elif what == "Redis falls silent":
            world.silent = True
        elif what == "Redis answers":
            world.silent = False
        else:  # queue and fates go back together, to the file or to nothing
            if what == "Redis dies":
                world.ledger.go_back(self.file)
                # A parked record's own fate goes back too: below its topic's commit it is open, and read again.
                world.retry_topic += [parked for parked in self.parked if parked not in world.retry_topic]
                # A person sends a letter back again whose replay the ledger has forgotten.
                world.letters += [letter for letter in self.letters if letter not in world.letters]
            else:
                world.ledger.wipe()
            world.done.clear()
            self._write_the_file()

    def _write_the_file(self) -> None:
        self.file = self.world.ledger.remember()
        self.parked, self.letters = list(self.world.retry_topic), list(self.world.letters)

    def _expire(self, handler: str) -> None:
        """Nothing has been written for days, so nothing is under way; what the ledger knows to be behind it does not
        run again. A ledger that went back is told of the commit anew by the bridge's next moves: here it was not.
        """
        world = self.world
        if self.workers or world.queue or world.retry_topic or world.silent:
            return
        self.bridges = self.bridges[-1:]
        (bridge,) = self.bridges
        # Within those days it has looked at the ledger for all that was ready, and found there what was done before.
        for move in ("hand", "learn"):
            bridge.move(move, 50, owner=True)
        if world.queue:
            return
        if bridge.begun and bridge.offsets.safe() < bridge.position:
            return  # the bridge renews the pages of what it waits for (bridge.consumer.periodic_jobs)
        (known,) = world.ledger.read_progress([world.account(handler)])
        behind = min(world.committed, known.reached or 0)
        world.ledger.expire(world.account(handler), 0)
        world.done = {(name, offset) for name, offset in world.done if name != handler or offset < behind}

    @invariant()
    def nothing_below_the_committed_offset_is_unfinished(self) -> None:
        for offset in self.world.log:
            if offset < self.world.committed:
                for handler in self.world.handlers:
                    parked = self.world.order == "none" and (handler, offset) in self.world.retry_topic
                    assert (handler, offset) in self.world.ended or parked

    def teardown(self) -> None:
        """Let everything run its course: then each message has ended everywhere, and the audit is clean."""
        if not hasattr(self, "world"):
            return
        world = self.world
        world.silent = False
        self._run_its_course()
        for handler in world.handlers:
            for offset in world.log:
                assert (handler, offset) in world.ended, f"{handler} never ended {offset}"
            joined = world.ledger.join(self.world.account(handler), 0)
            assert not list(
                world.ledger.runs(self.world.account(handler), {Fate.OPEN, Fate.HANDED}, joined, world.committed - 1)
            )
        assert world.committed == max(world.log, default=-1) + 1

    def _run_its_course(self) -> None:
        # The last bridge goes on, and needs no start for what it missed.
        world, bridge = self.world, self.bridges[-1]
        world.queue.extend(worker.entry for worker in self.workers)
        for _ in range(60 + 6 * len(world.log) * len(world.handlers)):
            for move in ("poll", "hand"):
                bridge.move(move, 50, owner=True)
            while world.queue:
                worker = Worker(world, world.queue.pop(0))
                while not worker.work(["done"]):
                    pass
            while world.retry_topic:
                self.retry_parked(0, "done")
            while world.letters:
                self.replay_a_dead_letter(0, "done")
            for move in ("learn", "commit"):
                bridge.move(move, 50, owner=True)
            self._open_what_is_nowhere()

    def _open_what_is_nowhere(self) -> None:
        """Stuck: handed, and no task has it, for the queue is empty here."""
        for handler in self.world.handlers:
            for run_ in self.world.ledger.runs(self.world.account(handler), {Fate.HANDED}, 0, self.world.end):
                self.world.ledger.write([Mark(self.world.account(handler), run_, Fate.OPEN)])


TestModel = Model.TestCase
TestModel.settings = settings(max_examples=examples(150), stateful_step_count=40)


class HoldingModel(Model):
    """The same with `after_dead="hold"`, which needs an order and takes no sequence."""

    @initialize(
        order=st.sampled_from(["key", "partition"]),
        tracks=st.sampled_from([[("a",)], [("a",), ("b",)]]),
        batch=st.integers(1, 4),
    )
    def begin(self, order: Order, tracks: list[tuple[str, ...]], batch: int) -> None:
        super().begin(order, tracks, batch)
        self.world.holds_dead = True
        self.bridges = [Bridge(self.world)]


TestHoldingModel = HoldingModel.TestCase
TestHoldingModel.settings = settings(max_examples=examples(150), stateful_step_count=40)
