"""Every way that a delivery can go, with a crash between every two steps: none loses it, and none ends it twice.

Unlike tests/unit/test_delivery_model.py, which draws long ways at random, this visits all of them, on small bounds
(docs/contributors/model.md).
"""

from functools import partial

import pytest

from bridge.ledger.fate_rules import UNSETTLED, Fate
from tests.model.checker import Broken, Step, Visited, visit
from tests.model.steps import steps_of
from tests.model.world import Bounds, World, begin, letters_of

#: Faults in which work that nobody knows of may be done again: its process was killed, or held to be.
FORGETS = ("Redis is wiped", "Redis goes back")
REPEATS = ("worker dies", "worker freezes", "lease ends", *FORGETS)


def wrong_in(world: World, bounds: Bounds) -> str | None:
    """The first promise that does not hold in a world."""
    often = 1 + _repeats(world, bounds)
    if why := next(filter(None, (_wrong_fate(world, at, often) for at in range(len(world.fates)))), None):
        return why
    if bounds.workers == 1 and (again := _dead_and_running(world)):
        return f"{again} are dead, and run again: one end is promised"
    if world.overtaken and not world.wiped:
        return "a message overtook one of its key"
    if world.passed:
        return "a message passed one of its key that was neither done nor discarded"
    if bounds.completion and not world.wiped:
        unsafe = [at for at in range(world.committed) if world.fates[at] in UNSETTLED or _holds(world, bounds, at)]
        if unsafe:
            return f"{unsafe} are committed, and not settled"
    return _wrong_name(world, often) if bounds.unique else None


def _holds(world: World, bounds: Bounds, at: int) -> bool:
    """Whether a dead one holds; one that was discarded before its worker's mark does not any more."""
    return bounds.holds and world.fates[at] is Fate.DEAD and not world.discarded[at]


def _wrong_fate(world: World, at: int, often: int) -> str | None:
    """Of one record."""
    fate, letters = world.fates[at], letters_of(world, at)
    if fate is Fate.DEAD and not any(letters):
        return f"{at} is dead, and has no dead letter"
    if fate is Fate.PARKED and not _lies_parked(world, at):
        return f"{at} is parked, and nowhere"
    if world.runs[at] > often:
        return f"the work of {at} was done {world.runs[at]} times, and may be {often}"
    if max(letters) > often:
        return f"{at} has {max(letters)} dead letters, and may have {often}"
    return None


def _wrong_name(world: World, often: int) -> str | None:
    """Of all records with one name."""
    if Fate.DONE in world.fates and not any(world.runs):
        return "a record is done, and nobody did its work"
    done = sum(world.runs)
    return f"the work of one name was done {done} times, and may be {often}" if done > often else None


def is_over(world: World, bounds: Bounds) -> bool:
    """Everybody is idle, nothing waits, and each record has been done or is dead; if those hold, none is dead."""
    idle = all(worker.message is None for worker in world.workers)
    ended = all(
        fate in bounds.ends or (at < world.committed and world.wiped and _had_ended(world, bounds, at))
        for at, fate in enumerate(world.fates)
    )
    return idle and not world.queue and ended


def _had_ended(world: World, bounds: Bounds, at: int) -> bool:
    """Whether a record had ended, of which Redis has forgotten that."""
    is_dead = not bounds.holds and any(letters_of(world, at))
    return bool(world.runs[at] or world.discarded[at] or is_dead)


def _repeats(world: World, bounds: Bounds) -> int:
    """How many faults have happened after which work that nobody knew of may be done again."""
    left = dict(world.faults)
    happened = {kind: count - left[kind] for kind, count in bounds.faults}
    # Who publishes first and marks then hands out again what it had not marked.
    kinds = REPEATS if bounds.one_step else (*REPEATS, "bridge dies")
    # A wiped Redis knows neither of a record nor of its parked clone: each is handed out again.
    clones = sum(happened.get(kind, 0) for kind in FORGETS) * (bounds.parks + bounds.replays)
    return sum(happened.get(kind, 0) for kind in kinds) + clones


def _dead_and_running(world: World) -> list[int]:
    """With several workers it may have begun before it was dead, too."""
    messages = [worker.message for worker in world.workers if worker.message is not None and worker.does == "run"]
    return [each.record for each in messages if world.fates[each.record] is Fate.DEAD and not each.replayed]


def _lies_parked(world: World, at: int) -> bool:
    return any(
        each.record == at and own in (Fate.OPEN, Fate.HANDED) for each, own in zip(world.retry, world.own, strict=True)
    )


def _visit(bounds: Bounds) -> Visited[World]:
    return visit(
        begin(bounds),
        partial(steps_of, bounds=bounds),
        partial(wrong_in, bounds=bounds),
        partial(is_over, bounds=bounds),
    )


def _faults(**kinds: int) -> tuple[tuple[str, int], ...]:
    return tuple((name.replace("_", " "), count) for name, count in kinds.items())


WIPED = (("Redis is wiped", 1),)
BACK = (("Redis goes back", 1),)
SMALL = {
    "nothing goes wrong": Bounds(records=2, workers=2),
    "a worker dies, twice": Bounds(tries=1, faults=_faults(worker_dies=2)),
    "a worker dies, and a bridge": Bounds(bridges=2, workers=2, faults=_faults(worker_dies=1, bridge_dies=1)),
    "a bridge is held to be dead": Bounds(bridges=2, workers=2, faults=_faults(bridge_freezes=1, bridge_dies=1)),
    "a worker is held to be dead": Bounds(workers=2, faults=_faults(worker_freezes=1)),
    "Redis is wiped": Bounds(workers=2, completion=True, faults=WIPED),
    "Redis is wiped, and a worker dies": Bounds(completion=True, faults=(*WIPED, ("worker dies", 1))),
    "the broker is not the ledger's": Bounds(
        bridges=2, workers=2, one_step=False, parks=0, faults=_faults(bridge_dies=1, worker_dies=1)
    ),
    "one key": Bounds(records=2, ordered=True, completion=True, faults=_faults(bridge_dies=1, worker_dies=1)),
    "one name, and a worker dies": Bounds(records=2, workers=2, parks=0, unique=True, faults=_faults(worker_dies=1)),
    "one name, and a worker is held to be dead": Bounds(
        records=2, workers=2, parks=0, unique=True, faults=_faults(worker_freezes=1, lease_ends=1)
    ),
    "one key, and a bridge is held to be dead": Bounds(
        records=2, bridges=2, ordered=True, completion=True, faults=_faults(bridge_freezes=1)
    ),
}
HOLDS = Bounds(records=2, parks=0, ordered=True, completion=True, holds=True, replays=1)
SMALL |= {
    "a dead one holds, and a worker dies": HOLDS._replace(together=True, faults=_faults(worker_dies=1)),
    "a dead one holds, and a bridge dies": HOLDS._replace(faults=_faults(bridge_dies=1)),
    "a dead one holds, and a worker is held to be dead": HOLDS._replace(
        replays=0, workers=2, faults=_faults(worker_freezes=1)
    ),
    "dead ones hold, and Redis is wiped": HOLDS._replace(replays=0, together=True, faults=WIPED),
    "dead ones hold, and Redis goes back": HOLDS._replace(replays=0, together=True, faults=BACK),
    "a replay, and Redis goes back": HOLDS._replace(records=1, faults=BACK),
}
#: Their ways are among those of other bounds, or take their time.
MARKS = dict.fromkeys(
    (
        "nothing goes wrong",
        "a worker dies, twice",
        "a worker is held to be dead",
        "one key",
        "one name, and a worker is held to be dead",
    ),
    pytest.mark.slow,
)
LARGE = {
    "two workers die, and one sends again": Bounds(workers=2, tries=1, parks=0, faults=_faults(worker_dies=2)),
    "parked twice": Bounds(parks=2, faults=_faults(worker_dies=2)),
    "one name, and retries are parked": Bounds(records=2, workers=2, unique=True),
    "one name, retries are parked, and the worker dies": Bounds(records=2, unique=True, faults=_faults(worker_dies=1)),
    "a dead one is replayed, and a worker is held to be dead": HOLDS._replace(
        workers=2, faults=_faults(worker_freezes=1)
    ),
    "a dead one is replayed, and Redis is wiped": HOLDS._replace(faults=WIPED),
    "a dead one is replayed twice, and parked": HOLDS._replace(
        parks=1, replays=2, records=1, faults=_faults(worker_dies=1)
    ),
    "one key, two workers": Bounds(records=2, workers=2, ordered=True, completion=True, faults=_faults(worker_dies=1)),
}


@pytest.mark.parametrize("name", [pytest.param(name, marks=MARKS.get(name, ())) for name in SMALL])
def test_no_way_loses_a_delivery_or_ends_it_twice(name: str) -> None:
    assert _visit(SMALL[name]).ends


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("name", LARGE)
def test_no_longer_way_does_either(name: str) -> None:
    assert _visit(LARGE[name]).ends


@pytest.mark.parametrize(
    ("mistake", "found"),
    [
        ("marks before it publishes", "is dead, and has no dead letter"),
        ("pushes what is not open", "the work of 0 was done"),
        ("commits what it has read", "committed, and not settled"),
    ],
)
def test_a_step_in_the_wrong_order_is_found(mistake: str, found: str) -> None:
    faults = _faults(bridge_dies=1, bridge_freezes=1)
    with pytest.raises(Broken, match=found):
        _visit(Bounds(bridges=2, workers=2, parks=0, completion=True, faults=faults, mistake=mistake))


@pytest.mark.parametrize(
    ("mistake", "together", "found"),
    [
        ("frees the key of a dead one", False, "passed one of its key"),
        ("runs what is behind a dead one of its message", True, "passed one of its key"),
        ("commits a dead one that holds", False, "committed, and not settled"),
    ],
)
def test_what_lets_a_record_pass_a_dead_one_that_holds_is_found(mistake: str, together: bool, found: str) -> None:
    with pytest.raises(Broken, match=found):
        _visit(HOLDS._replace(together=together, mistake=mistake))


def test_a_name_that_is_done_before_its_work_is_found() -> None:
    bounds = Bounds(records=2, workers=2, parks=0, unique=True, mistake="is done before it runs")
    with pytest.raises(Broken, match="is done, and nobody did its work"):
        _visit(bounds)


def test_what_stands_still_for_ever_is_found() -> None:
    with pytest.raises(Broken, match="nothing leads to an end"):
        visit(0, lambda at: [Step("on", at + 1)] if at < 2 else [], lambda _: None, lambda _: False)
