"""What goes wrong: whoever does a step may be gone, or be held to be gone, before the next; Redis may forget (pure)."""

from collections.abc import Callable, Iterator, Mapping
from typing import Final

from bridge.ledger.fate_rules import Fate
from tests.model.checker import Step
from tests.model.world import Bridge, Worker, World, published, put


def faults_of(world: World) -> Iterator[Step[World]]:
    """Every fault that may happen next."""
    for kind, left in world.faults:
        if left:
            rest = tuple((name, count - (name == kind)) for name, count in world.faults)
            for name, after in _HAPPENS[kind](world._replace(faults=rest)):
                yield Step(name, after, fault=True)


def _bridge_dies(world: World) -> Iterator[tuple[str, World]]:
    """Another has its partitions, or it does once it is started again."""
    for number, bridge in enumerate(world.bridges):
        gone = world._replace(bridges=put(world.bridges, number, Bridge()))
        yield f"bridge {number} dies", _taken_over(gone, number) if bridge.owner else gone


def _bridge_freezes(world: World) -> Iterator[tuple[str, World]]:
    """It is held to be dead, another has its partitions, and it wakes with what it was about to do."""
    for number, bridge in enumerate(world.bridges):
        if bridge.owner and len(world.bridges) > 1:
            frozen = put(world.bridges, number, bridge._replace(owner=False))
            yield f"bridge {number} freezes", _taken_over(world._replace(bridges=frozen), number)


def _taken_over(world: World, number: int) -> World:
    heir = (number + 1) % len(world.bridges)
    begun = Bridge(world.committed, world.retry_committed, owner=True)
    return world._replace(bridges=put(world.bridges, heir, begun))


def _worker_dies(world: World) -> Iterator[tuple[str, World]]:
    """What it held goes back to the queue, unless it did so while the worker was held to be dead."""
    for number, worker in enumerate(world.workers):
        if worker.message is not None:
            gone = world._replace(workers=put(world.workers, number, Worker()))
            back = worker.message._replace(again=True)
            yield f"worker {number} dies", published(gone, back) if worker.owns else gone


def _worker_freezes(world: World) -> Iterator[tuple[str, World]]:
    """It is held to be dead, what it held goes back to the queue, and it wakes where it was."""
    for number, worker in enumerate(world.workers):
        if worker.message is not None and worker.owns:
            frozen = put(world.workers, number, worker._replace(owns=False))
            back = worker.message._replace(again=True)
            yield f"worker {number} freezes", published(world._replace(workers=frozen), back)


def _redis_is_wiped(world: World) -> Iterator[tuple[str, World]]:
    """Bridges notice by the epoch, and read again what is not committed; workers hold what nobody knows of."""
    bridges = tuple(Bridge(world.committed, world.retry_committed, owner=bridge.owner) for bridge in world.bridges)
    after = world._replace(
        fates=(Fate.OPEN,) * len(world.fates),
        own=(Fate.OPEN,) * len(world.own),
        queue=(),
        name=None,
        workers=tuple(worker._replace(owns=False) for worker in world.workers),
        bridges=bridges,
        back_at=None,
        wiped=True,
    )
    yield "Redis is wiped", after


def _redis_goes_back(world: World) -> Iterator[tuple[str, World]]:
    """It has what was in its file; bridges notice, and read again what was not committed by then."""
    if (file := world.file) is None:
        return
    begun = Bridge(file.committed, file.retry_committed)
    after = world._replace(
        fates=file.fates,
        own=(*file.own, *(Fate.OPEN,) * (len(world.own) - len(file.own))),
        queue=file.queue,
        workers=tuple(worker._replace(owns=False) for worker in world.workers),
        bridges=tuple(begun._replace(owner=bridge.owner) for bridge in world.bridges),
        file=None,
        back_at=file.committed,
        wiped=True,
    )
    yield "Redis goes back", after


def _lease_ends(world: World) -> Iterator[tuple[str, World]]:
    """A claim of a name ends, though its record may run: whoever runs it was frozen."""
    if world.name is not None and world.name[0] == "runs":
        yield f"the lease of {world.name[1]} ends", world._replace(name=None)


_HAPPENS: Final[Mapping[str, Callable[[World], Iterator[tuple[str, World]]]]] = {
    "bridge dies": _bridge_dies,
    "bridge freezes": _bridge_freezes,
    "worker dies": _worker_dies,
    "worker freezes": _worker_freezes,
    "Redis is wiped": _redis_is_wiped,
    "Redis goes back": _redis_goes_back,
    "lease ends": _lease_ends,
}
