"""When sizes are looked at, and what may be taken meanwhile."""

from typing import Any

import pytest

from bridge.dispatch import batch_sizer
from bridge.dispatch.batch_sizer import WAIT_FOR_TIMES, BatchSizer
from bridge.errors import HandoffFailed, LedgerUnavailable
from bridge.handler_routes import Handler, Routes
from bridge.ledger import Account
from bridge.ledger.fate_rules import Fate
from bridge.ledger.handler_costs import DeliveryCost, KnownCost


class World:
    """A ledger, a broker and a clock that a test sets."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, **handler: Any) -> None:
        self.now, self.looks, self.read, self.asked = 100.0, 0, 0, 0
        self.found, self.queued = KnownCost(), 0
        self.ended: set[int] = set()
        self.wiped = False
        self.workers: dict[str, Any] = {"one": {"queues": ["mail"], "processes": 4}}
        world: Any = self
        monkeypatch.setattr(batch_sizer, "HandlerCosts", lambda ledger: self)
        monkeypatch.setattr(batch_sizer, "GroupMembers", lambda ledger, kind: self)
        made = Handler("charge", ("orders",), "mail", **{"batch": "auto", "longest_wait": 0, **handler})
        self.sizes = BatchSizer(Routes({"charge": made}), world, world, lambda: self.now)

    def read_costs(self, handlers: Any) -> dict[str, KnownCost]:
        self.looks += 1
        self.read += len(handlers)
        return dict.fromkeys(handlers, self.found)

    def living(self) -> dict[str, Any]:
        return self.workers

    def read_lengths(self, queues: Any) -> dict[str, int]:
        return dict.fromkeys(queues, self.queued)

    def fates_of(self, questions: Any) -> list[bytes]:
        self.asked += len(questions)
        return [bytes(self._fate(offset) for offset in offsets) for _, offsets in questions]

    def _fate(self, offset: int) -> Fate:
        return Fate.DONE if offset in self.ended else Fate.OPEN if self.wiped else Fate.HANDED

    def look(self, times: int = 1) -> None:
        for _ in range(times):
            self.now += 1
            self.sizes.poll()

    def taken(self, ready: int) -> tuple[int, int | None]:
        portion = self.sizes.portions({"charge": ready})["charge"]
        return portion.size, portion.room


def test_a_look_is_not_repeated_before_its_time(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(monkeypatch)
    for _ in range(5):
        world.sizes.poll()
    assert world.looks == 1


def test_costs_that_are_known_are_read_twice_a_second_and_unknown_ones_at_each_look(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = World(monkeypatch)
    reads = []
    for found in (KnownCost(), KnownCost(DeliveryCost(1_000, 0.02, 0.0000004))):
        world.found, world.read = found, 0
        for _ in range(100):
            world.now += 0.05
            world.sizes.note_handed("charge", 1, 1)
            world.sizes.poll()
        reads.append(world.read)
    assert reads[0] >= 90
    assert reads[1] <= 11


def test_fates_are_read_only_while_more_messages_run_or_wait_than_there_are_processes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = World(monkeypatch)
    world.found = KnownCost(DeliveryCost(10, 20.0, 40.0))
    world.look(12)
    asked = []
    for messages in (4, 5):
        for offset in range(messages):
            world.sizes.note_message("charge", Account("charge", "orders", "id", 0), [offset])
        world.look()
        asked.append(world.asked)
    assert asked == [0, 1]


def test_little_goes_out_until_times_are_known_however_long_the_first_run_takes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = World(monkeypatch)
    world.look()
    assert world.taken(1_000) == (1, 16)
    world.now += WAIT_FOR_TIMES
    assert world.taken(20_000) == (1, 16)
    world.sizes.note_handed("charge", 16)
    world.now += 100 * WAIT_FOR_TIMES
    assert world.taken(20_000) == (1, 0)


def test_a_fast_handler_ends_at_the_most_and_its_processes_share(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(monkeypatch)
    world.found = KnownCost(DeliveryCost(1_000, 0.02, 0.0000004))
    world.look(12)
    assert world.taken(100_000)[0] == 500
    assert world.taken(80)[0] == 10
    assert str(world.sizes.shown()["charge"]) == "10: 4 processes share 80 that wait"


def test_batches_are_larger_while_much_waits_and_as_ever_once_it_is_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(monkeypatch)
    world.found = KnownCost(DeliveryCost(100, 1.0, 0.01))
    world.look(12)
    sizes = []
    for ready in (0, 2_000, 0):
        world.taken(ready)
        world.look(12)
        sizes.append(world.sizes.most("charge"))
    # Of 10 ms each, 2,000 keep four processes busy for 5 s.
    assert sizes == [5, 25, 5]


def test_what_was_handed_out_since_the_look_counts_as_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(monkeypatch)
    world.found = KnownCost(DeliveryCost(1_000, 0.02, 0.0000004))
    world.look(12)
    world.sizes.note_handed("charge", 8)
    assert world.taken(80)[0] == 500


def test_a_worker_that_does_not_say_how_many_processes_it_has_counts_as_one(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(monkeypatch)
    world.workers = {"old": {"queues": ["mail"]}, "another": {"queues": ["else"], "processes": 9}}
    world.found = KnownCost(DeliveryCost(1_000, 0.02, 0.0000004))
    world.look(12)
    assert world.taken(80)[0] == 40


def test_a_size_that_was_given_or_must_be_one_is_kept_and_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    given = World(monkeypatch, batch=200)
    given.look()
    given.found = KnownCost(DeliveryCost(1_000, 0.02, 0.0000004))
    given.look(12)
    assert given.taken(10**6)[0] == given.taken(80)[0] == 200
    assert str(given.sizes.shown()["charge"]) == "200: given as batch="
    alone = World(monkeypatch, batch=1, one_by_one="its rate_limit is 5/s")
    assert str(alone.sizes.shown()["charge"]) == "1: its rate_limit is 5/s"


@pytest.mark.parametrize(("concurrency", "size"), [("auto", 40), (20, 20)])
def test_a_batch_of_an_async_handler_has_as_many_as_run_side_by_side(
    monkeypatch: pytest.MonkeyPatch, concurrency: Any, size: int
) -> None:
    world = World(monkeypatch, concurrency=concurrency)
    world.found = KnownCost(DeliveryCost(100, 100.0, 100.0), at_once=40)
    world.look(12)
    assert world.taken(100_000)[0] == size
    # Of a few, each process gets its part at once: it runs them side by side.
    assert world.taken(20)[0] == 5


def test_where_no_worker_is_there_a_few_go_out_and_after_a_while_all(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(monkeypatch)
    world.workers = {}
    world.look()
    assert world.taken(60) == (1, 4)
    world.sizes.note_handed("charge", 4)
    assert world.taken(56) == (1, 0)
    world.now += WAIT_FOR_TIMES
    assert world.taken(20_000) == (1, 1_000 - 4)


def test_after_all_workers_have_left_no_more_goes_out_than_they_would_have(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(monkeypatch)
    world.found = KnownCost(DeliveryCost(10, 20.0, 40.0))
    world.look(12)
    before = world.taken(20_000)
    world.workers = {}
    world.look(12)
    assert world.taken(20_000) == before == (1, 10)


@pytest.mark.parametrize(("batch", "room"), [(1, 10), (200, 4)])
def test_what_is_handed_off_of_a_given_batch_is_bounded_by_seconds_of_work(
    monkeypatch: pytest.MonkeyPatch, batch: int, room: int
) -> None:
    world = World(monkeypatch, batch=batch)
    world.look()
    assert world.taken(20_000) == (batch, 16)
    world.found = KnownCost(DeliveryCost(10, 20.0, 40.0))
    world.look()
    assert world.taken(20_000) == (batch, room)


def test_slow_deliveries_that_a_worker_has_taken_count_until_they_have_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(monkeypatch)
    account = Account("charge", "orders", "id", 0)
    world.found = KnownCost(DeliveryCost(10, 20.0, 40.0))
    world.look(12)
    for offset in range(14):
        world.sizes.note_message("charge", account, [offset])
    world.look()
    # 4 run and 10 were taken ahead: nothing waits in the queue itself.
    assert world.taken(100) == (1, 0)
    world.ended |= {0, 1}
    world.look()
    assert world.taken(100) == (1, 2)
    # Somebody purged the queue: they never end, and yet others go out in the end.
    world.now += 100
    world.look()
    assert world.taken(100) == (1, 10)


def test_after_a_wipe_of_redis_what_it_had_holds_up_no_hand_off(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(monkeypatch)
    account = Account("charge", "orders", "id", 0)
    world.look(12)
    for offset in range(16):
        world.sizes.note_message("charge", account, [offset])
    world.look()
    assert world.taken(100) == (1, 0)
    world.wiped = True
    world.look()
    assert world.taken(100) == (1, 16)


def test_handlers_that_would_have_more_share_the_work_that_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(monkeypatch)
    made = [Handler(name, (name,), "mail", batch="auto", longest_wait=0) for name in ("a", "b", "c")]
    any_world: Any = world
    world.sizes = BatchSizer(Routes({each.name: each for each in made}), any_world, any_world, lambda: world.now)
    world.found = KnownCost(DeliveryCost(10, 2.0, 0.4))
    world.look(12)
    rooms = []
    for _ in range(2):
        portions = world.sizes.portions({"a": 10_000, "b": 10_000, "c": 1})
        rooms.append([portions[name].room for name in "abc"])
        for name, portion in portions.items():
            world.sizes.note_handed(name, 1)
            while name != "c" and not portion.spent:
                portion.spend()
        world.look()
    # 0.2 s each, a second of four processes: c waits behind no more than that, from the first hand-off on.
    assert rooms == [[10, 10, 7], [10, 10, 7]]


@pytest.mark.parametrize("known", [KnownCost(DeliveryCost(100, 10.0, 1.0)), KnownCost()], ids=["0.1 s each", "unknown"])
def test_what_many_handlers_have_in_a_queue_together_is_bounded_when_the_records_of_all_come_little_by_little(
    monkeypatch: pytest.MonkeyPatch, known: KnownCost
) -> None:
    world = World(monkeypatch)
    names = [f"h{number}" for number in range(12)]
    any_world: Any = world
    made = {name: Handler(name, (name,), "mail", batch="auto", longest_wait=0) for name in names}
    world.sizes = BatchSizer(Routes(made), any_world, any_world, lambda: world.now)
    world.found = known
    world.look(12)
    backlog = dict.fromkeys(names, 0)
    for _ in range(100):
        for name in names:
            backlog[name] += 3
        portions = world.sizes.portions(backlog)
        for name in names:
            while backlog[name] and not portions[name].spent:
                portions[name].spend()
                backlog[name] -= 1
                world.queued += 1
                world.sizes.note_handed(name, 1, 1)
        world.look()
    # A second of four processes, or four messages for each of them, and one more of each handler at most.
    assert world.queued <= (40 if known.cost else 16) + len(names)


@pytest.mark.parametrize(
    "state",
    [
        {"queues": ["mail"], "processes": "many"},
        {"queues": ["mail"], "processes": 10**12},
        {"queues": ["mail"], "processes": float("inf")},
        {"queues": ["mail"], "processes": float("nan")},
        {"queues": ["mail"], "processes": -4},
        {"queues": ["mail"], "processes": [4]},
        {"queues": None},
        {"queues": "mail"},
        {"queues": 5},
        {"queues": [["mail"], None]},
    ],
    ids=str,
)
def test_a_worker_whose_announcement_makes_no_sense_is_not_counted(monkeypatch: pytest.MonkeyPatch, state: Any) -> None:
    world = World(monkeypatch)
    world.workers["liar"] = state
    world.found = KnownCost(DeliveryCost(1_000, 0.02, 0.0000004))
    world.look(12)
    assert world.taken(80)[0] == 10


@pytest.mark.parametrize("error", [LedgerUnavailable("no answer"), HandoffFailed("no answer"), ValueError("odd")])
def test_a_look_that_fails_leaves_the_sizes_as_they_were_and_holds_nothing_up_for_long(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, error: Exception
) -> None:
    world = World(monkeypatch)
    world.found = KnownCost(DeliveryCost(1_000, 0.02, 0.0000004))
    world.look(12)
    known = world.read_costs

    def fail(handlers: Any) -> Any:
        raise error

    monkeypatch.setattr(world, "read_costs", fail)
    world.look(2)
    assert world.taken(100_000)[0] == 500
    world.sizes.note_handed("charge", 10_000)
    world.look(4)
    assert world.taken(100_000) == (500, None)
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    monkeypatch.setattr(world, "read_costs", known)
    world.queued = 10_000
    world.look()
    assert world.taken(100_000)[1] is not None


def test_two_handlers_of_one_queue_both_get_on_while_one_keeps_it_full(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(monkeypatch)
    made = [Handler(name, (name,), "mail", batch="auto", longest_wait=0) for name in ("quick", "slow")]
    found = {"quick": KnownCost(DeliveryCost(1_000, 5.0, 0.025)), "slow": KnownCost(DeliveryCost(10, 5.0, 2.5))}
    monkeypatch.setattr(world, "read_costs", lambda handlers: found)
    any_world: Any = world
    world.sizes = BatchSizer(Routes({each.name: each for each in made}), any_world, any_world, lambda: world.now)
    world.look(12)
    for name in ("quick", "quick", "slow"):
        portion = world.sizes.portions({"quick": 100_000} if name == "quick" else {"slow": 100, "quick": 100_000})[name]
        assert portion.room is not None
        world.sizes.note_handed(name, portion.room, portion.room * portion.size)
        world.queued += portion.room
        world.look()
        if name == "quick":
            # 5 s of work of 5 ms each in tens for each of four processes.
            assert world.queued == 400
    # The queue is full of the quick one's; the slow one still has its half of a second of four processes.
    assert world.queued == 400 + 4
    assert world.sizes.portions({"slow": 100})["slow"].room == 0


def test_what_records_weigh_lately_bounds_what_goes_out_ahead(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(monkeypatch)
    world.found = KnownCost(DeliveryCost(1_000, 0.02, 0.0000004))
    world.look(12)
    assert world.taken(10**6) == (500, 400)
    world.workers["one"]["processes"] = 64
    world.look()
    assert world.taken(10**6) == (500, 64 * 50)
    # A message carries no more than a million bytes, however many it might carry.
    world.sizes.note_handed("charge", 1, 100, 100 * 10_000)
    assert world.taken(10**6) == (500, 256 - 1)
    # The small ones that follow are heeded by and by.
    for _ in range(60):
        world.sizes.note_handed("charge", 0, 500, 500 * 10)
    assert world.taken(10**6) == (500, 64 * 50 - 1)
