"""When sizes are looked at, and what may be taken meanwhile."""

from typing import Any

import pytest

from bridge.errors import HandoffFailed, LedgerUnavailable
from bridge.handlers import Handler, Routes
from bridge.handoff import sizes
from bridge.handoff.sizes import WAIT_FOR_TIMES, Sizes
from bridge.ledger.times import Cost, Known


class World:
    """A ledger, a broker and a clock that a test sets."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, **handler: Any) -> None:
        self.now, self.looks = 100.0, 0
        self.found, self.queued = Known(), 0
        self.workers: dict[str, Any] = {"one": {"queues": ["mail"], "processes": 4}}
        world: Any = self
        monkeypatch.setattr(sizes, "Times", lambda ledger: self)
        monkeypatch.setattr(sizes, "Members", lambda ledger, kind: self)
        made = Handler("charge", ("orders",), "mail", **{"batch": "auto", "longest_wait": 0, **handler})
        self.sizes = Sizes(Routes({"charge": made}), world, world, lambda: self.now)

    def known(self, handlers: Any) -> dict[str, Known]:
        self.looks += 1
        return dict.fromkeys(handlers, self.found)

    def living(self) -> dict[str, Any]:
        return self.workers

    def lengths(self, queues: Any) -> dict[str, int]:
        return dict.fromkeys(queues, self.queued)

    def look(self, times: int = 1) -> None:
        for _ in range(times):
            self.now += 1
            self.sizes.look()

    def taken(self, ready: int) -> tuple[int, int | None]:
        portion = self.sizes.portions({"charge": ready})["charge"]
        return portion.size, portion.room


def test_a_look_is_not_repeated_before_its_time(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(monkeypatch)
    for _ in range(5):
        world.sizes.look()
    assert world.looks == 1


def test_little_goes_out_until_times_are_known_however_long_the_first_run_takes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = World(monkeypatch)
    world.look()
    assert world.taken(1_000) == (1, 16)
    world.now += WAIT_FOR_TIMES
    assert world.taken(20_000) == (1, 16)
    world.sizes.handed("charge", 16)
    world.now += 100 * WAIT_FOR_TIMES
    assert world.taken(20_000) == (1, 0)


def test_a_fast_handler_ends_at_the_most_and_its_processes_share(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(monkeypatch)
    world.found = Known(Cost(1_000, 0.02, 0.0000004))
    world.look(12)
    assert world.taken(100_000)[0] == 500
    assert world.taken(80)[0] == 10
    assert str(world.sizes.shown()["charge"]) == "10: 4 processes share 80 that wait"


def test_what_was_handed_out_since_the_look_counts_as_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(monkeypatch)
    world.found = Known(Cost(1_000, 0.02, 0.0000004))
    world.look(12)
    world.sizes.handed("charge", 8)
    assert world.taken(80)[0] == 500


def test_a_worker_that_does_not_say_how_many_processes_it_has_counts_as_one(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(monkeypatch)
    world.workers = {"old": {"queues": ["mail"]}, "another": {"queues": ["else"], "processes": 9}}
    world.found = Known(Cost(1_000, 0.02, 0.0000004))
    world.look(12)
    assert world.taken(80)[0] == 40


def test_a_size_that_was_given_or_must_be_one_is_shown_and_not_looked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    given = World(monkeypatch, batch=200)
    given.look()
    assert (given.looks, str(given.sizes.shown()["charge"])) == (0, "200: given as batch=")
    alone = World(monkeypatch, batch=1, one_by_one="its rate_limit is 5/s")
    assert str(alone.sizes.shown()["charge"]) == "1: its rate_limit is 5/s"


def test_where_no_worker_is_there_a_few_go_out_and_after_a_while_all(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(monkeypatch)
    world.workers = {}
    world.look()
    assert world.taken(60) == (1, 4)
    world.sizes.handed("charge", 4)
    assert world.taken(56) == (1, 0)
    world.now += WAIT_FOR_TIMES
    assert world.taken(56) == (1, None)


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
    world.found = Known(Cost(1_000, 0.02, 0.0000004))
    world.look(12)
    assert world.taken(80)[0] == 10


@pytest.mark.parametrize("error", [LedgerUnavailable("no answer"), HandoffFailed("no answer"), ValueError("odd")])
def test_a_look_that_fails_leaves_the_sizes_as_they_were_and_holds_nothing_up_for_long(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, error: Exception
) -> None:
    world = World(monkeypatch)
    world.found = Known(Cost(1_000, 0.02, 0.0000004))
    world.look(12)
    known = world.known

    def fail(handlers: Any) -> Any:
        raise error

    monkeypatch.setattr(world, "known", fail)
    world.look(2)
    assert world.taken(100_000)[0] == 500
    world.sizes.handed("charge", 10_000)
    world.look(4)
    assert world.taken(100_000) == (500, None)
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    monkeypatch.setattr(world, "known", known)
    world.queued = 10_000
    world.look()
    assert world.taken(100_000)[1] is not None


def test_two_handlers_of_one_queue_both_get_on_while_one_keeps_it_full(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(monkeypatch)
    made = [Handler(name, (name,), "mail", batch="auto", longest_wait=0) for name in ("quick", "slow")]
    found = {"quick": Known(Cost(1_000, 5.0, 0.025)), "slow": Known(Cost(10, 5.0, 2.5))}
    monkeypatch.setattr(world, "known", lambda handlers: found)
    any_world: Any = world
    world.sizes = Sizes(Routes({each.name: each for each in made}), any_world, any_world, lambda: world.now)
    world.look(12)
    for name in ("quick", "quick", "slow"):
        portion = world.sizes.portions({"slow": 100, "quick": 100_000})[name]
        assert portion.room is not None
        world.sizes.handed(name, portion.room)
        world.queued += portion.room
        world.look()
        if name == "quick":
            # 5 s of work of 5 ms each in tens for each of four processes.
            assert world.queued == 400
    # The queue is full of the quick one's; the slow one still has the room that its own times give it beside others.
    assert world.queued == 400 + 4 * 2
    assert world.sizes.portions({"slow": 100})["slow"].room == 0


def test_what_records_weigh_lately_bounds_what_goes_out_ahead(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(monkeypatch)
    world.found = Known(Cost(1_000, 0.02, 0.0000004))
    world.look(12)
    assert world.taken(10**6) == (500, 400)
    world.workers["one"]["processes"] = 64
    world.look()
    assert world.taken(10**6) == (500, 64 * 50)
    # A message carries no more than a million bytes, however many it might carry.
    world.sizes.handed("charge", 1, 100, 100 * 10_000)
    assert world.taken(10**6) == (500, 256 - 1)
    # The small ones that follow are heeded by and by.
    for _ in range(60):
        world.sizes.handed("charge", 0, 500, 500 * 10)
    assert world.taken(10**6) == (500, 64 * 50 - 1)
