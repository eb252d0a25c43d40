"""What people do with dead letters, and what Redis does by itself (pure)."""

from collections.abc import Iterator

from bridge.ledger.fate_rules import UNSETTLED, Fate, follow_fate
from tests.model.checker import Step
from tests.model.world import Bounds, File, Parked, World, letters_of, put, replays_of


def decide(world: World, bounds: Bounds) -> Iterator[Step[World]]:
    """Every dead letter may be sent back or discarded, but not while it is on its way back."""
    if dict(world.faults).get("Redis goes back") and world.file is None:
        file = File(world.fates, world.own, world.queue, world.committed, world.retry_committed)
        yield Step("Redis writes its file", world._replace(file=file))
    if not bounds.holds:
        return
    for at, fate in enumerate(world.fates):
        replayed = replays_of(world, at)
        if not any(letters_of(world, at)) or _is_replaying(world, at):
            continue
        if letters_of(world, at)[replayed] and replayed < bounds.replays and fate not in (Fate.DONE, Fate.DISCARDED):
            sent = (*world.retry, Parked(at, 0, replayed + 1))
            yield Step(f"a person replays {at}", world._replace(retry=sent, own=(*world.own, Fate.OPEN)))
        # Also before its worker has marked it: then the mark follows, and it is discarded once more.
        if fate in (Fate.DEAD, Fate.HANDED):
            marked = put(world.fates, at, follow_fate(fate, Fate.DISCARDED))
            given_up = world._replace(fates=marked, discarded=put(world.discarded, at, True))
            yield Step(f"a person discards {at}", given_up)


def _is_replaying(world: World, at: int) -> bool:
    return any(
        each.record == at and each.replayed and own in UNSETTLED and place >= world.retry_committed
        for place, (each, own) in enumerate(zip(world.retry, world.own, strict=True))
    )
