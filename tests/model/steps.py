"""The steps of bridges and workers, in the order in which the real ones make them, and a crash between each two (pure).

*Publish, wait for the acknowledgement, mark the ledger, then acknowledge or commit.* What is one step here is one step
there: one write of the ledger's script, one answer of Kafka, one script of the transport.
"""

from collections.abc import Callable, Iterator
from typing import TypeAlias

from bridge.ledger.duplicate_check import is_to_skip
from bridge.ledger.fate_rules import UNSETTLED, Fate, follow_fate
from tests.model.checker import Step
from tests.model.faults import faults_of
from tests.model.person import decide
from tests.model.world import ENDED, Bounds, Bridge, Message, Parked, Worker, World, published, put, sort_workers

#: Makes a step of a name, the world after it, and what becomes of whoever takes it.
To: TypeAlias = Callable[..., Step[World]]
#: What a failed run does first if it has a name.
RELEASE = "release its name, "


def steps_of(world: World, bounds: Bounds) -> Iterator[Step[World]]:
    """Everything that may happen next; workers are equals, and their numbers part no two worlds."""
    for step in _all_steps(world, bounds):
        if bounds.workers > 1 and (equals := sort_workers(step.after.workers)) != step.after.workers:
            yield step._replace(after=step.after._replace(workers=equals))
        else:
            yield step


def _all_steps(world: World, bounds: Bounds) -> Iterator[Step[World]]:
    for number, bridge in enumerate(world.bridges):
        yield from _bridge(world, bounds, number, bridge)
    yield from _stuck(world)
    for number, worker in enumerate(world.workers):
        yield from _worker(world, bounds, number, worker)
    yield from decide(world, bounds)
    yield from faults_of(world)


# The bridge


def _bridge(world: World, bounds: Bounds, number: int, bridge: Bridge) -> Iterator[Step[World]]:
    def to(name: str, changed: World, **of_bridge: object) -> Step[World]:
        after = bridge._replace(**of_bridge)  # type: ignore[arg-type]
        return Step(f"bridge {number} {name}", changed._replace(bridges=put(changed.bridges, number, after)))

    if bridge.hand is not None:
        yield _hand_off(world, bounds, bridge, to)
        return
    if not bridge.owner:
        return
    if bridge.at < len(world.fates):
        yield from _read(world, bounds, bridge, to)
    if bridge.retry_at < len(world.retry):
        yield _read_parked(world, bridge, to)
    safe = _safe(world.fates, world.committed, bridge.at, _unsafe(bounds))
    if bounds.mistake == "commits what it has read":
        safe = bridge.at
    if safe > world.committed:
        yield to(f"commits {safe}", world._replace(committed=safe))
    own_unsafe = _unsafe(bounds._replace(ordered=False, holds=False))
    safe = _safe(world.own, world.retry_committed, bridge.retry_at, own_unsafe)
    if safe > world.retry_committed:
        yield to(f"commits {safe} of the retry topic", world._replace(retry_committed=safe))


def _read(world: World, bounds: Bounds, bridge: Bridge, to: To) -> Iterator[Step[World]]:
    at = bridge.at
    if world.fates[at] is not Fate.OPEN:
        yield to(f"passes {at}, which is {world.fates[at].name}", world, at=at + 1)
    elif not bounds.ordered or all(fate in _frees(bounds) for fate in _before(world, at)):
        yield to(f"reads {at}", world, hand=("source", at))


def _before(world: World, at: int) -> tuple[Fate, ...]:
    """The fates before a record, as a bridge knows them: from where it began to read."""
    return world.fates[world.committed if world.back_at is None else world.back_at : at]


def _frees(bounds: Bounds) -> frozenset[Fate]:
    """The fates that free a key."""
    return ENDED if bounds.mistake == "frees the key of a dead one" else bounds.ends


def _read_parked(world: World, bridge: Bridge, to: To) -> Step[World]:
    at = bridge.retry_at
    origin = world.fates[world.retry[at].record]
    if world.own[at] is not Fate.OPEN:
        return to(f"passes parked {at}", world, retry_at=at + 1)
    if is_to_skip(Fate.OPEN, origin, retried=not world.retry[at].replayed):
        marked = world._replace(own=put(world.own, at, Fate.DONE))
        return to(f"passes parked {at}, whose origin is {origin.name}", marked, retry_at=at + 1)
    return to(f"reads parked {at}", world, hand=("retry", at))


def _hand_off(world: World, bounds: Bounds, bridge: Bridge, to: To) -> Step[World]:
    """In one step with the mark, and only what is open; or published first, and marked then."""
    assert bridge.hand is not None
    topic, at = bridge.hand
    of_source = topic == "source"
    known = world.fates if of_source else world.own
    message = Message(at) if of_source else _message_of(world.retry[at], at)
    free = known[at] is Fate.OPEN or bounds.mistake == "pushes what is not open"
    marked = put(known, at, follow_fate(known[at], Fate.HANDED))
    over = {"hand": None, "published": False, **({"at": at + 1} if of_source else {"retry_at": at + 1})}
    if not bounds.one_step and not bridge.published:
        return to(f"publishes {topic} {at}", published(world, message), published=True)
    if not bounds.one_step:
        return to(f"marks {topic} {at} handed", _marked(world, of_source, marked), **over)
    if not free:
        return to(f"finds {topic} {at} {known[at].name}", world, **over)
    if of_source and bounds.together and known[at + 1 : at + 2] == (Fate.OPEN,):
        both = published(published(world, message), Message(at + 1, after=at))
        handed = _marked(both, of_source, put(marked, at + 1, Fate.HANDED))
        return to(f"pushes {at} and {at + 1}", handed, **{**over, "at": at + 2})
    return to(f"pushes {topic} {at}", _marked(published(world, message), of_source, marked), **over)


def _message_of(parked: Parked, at: int) -> Message:
    return Message(parked.record, via=at, number=parked.number, replayed=parked.replayed)


def _marked(world: World, of_source: bool, marked: tuple[Fate, ...]) -> World:
    return world._replace(fates=marked) if of_source else world._replace(own=marked)


def _unsafe(bounds: Bounds) -> frozenset[Fate]:
    """The fates that hold the commit back."""
    unsafe = UNSETTLED if bounds.completion else frozenset({Fate.OPEN})
    held = {Fate.PARKED} if bounds.ordered else set()
    if bounds.holds and bounds.mistake != "commits a dead one that holds":
        held.add(Fate.DEAD)
    return unsafe | held


def _safe(fates: tuple[Fate, ...], committed: int, end: int, unsafe: frozenset[Fate]) -> int:
    return next((at for at in range(committed, end) if fates[at] in unsafe), max(end, committed))


def _stuck(world: World) -> Iterator[Step[World]]:
    """What is handed, and nowhere: it is open again, and read again."""
    there = [*world.queue, *(worker.message for worker in world.workers if worker.message is not None)]
    if any(bridge.hand is not None for bridge in world.bridges):
        return
    for at, fate in enumerate(world.fates):
        if fate is Fate.HANDED and not any(each.record == at and each.via < 0 for each in there):
            again = [b._replace(at=min(b.at, at)) if b.owner else b for b in world.bridges]
            opened = world._replace(fates=put(world.fates, at, Fate.OPEN), bridges=tuple(again))
            yield Step(f"{at} is stuck, and is read again", opened)
    for at, fate in enumerate(world.own):
        if fate is Fate.HANDED and not any(each.via == at for each in there):
            again = [b._replace(retry_at=min(b.retry_at, at)) if b.owner else b for b in world.bridges]
            opened = world._replace(own=put(world.own, at, Fate.OPEN), bridges=tuple(again))
            yield Step(f"parked {at} is stuck, and is read again", opened)


# The worker


def _worker(world: World, bounds: Bounds, number: int, worker: Worker) -> Iterator[Step[World]]:
    def to(name: str, changed: World, does: str) -> Step[World]:
        after = worker._replace(does=does)
        return Step(f"worker {number} {name}", changed._replace(workers=put(changed.workers, number, after)))

    message = worker.message
    if message is None:
        for taken in dict.fromkeys(world.queue):
            left = list(world.queue)
            left.remove(taken)
            held = put(world.workers, number, Worker(taken, "look"))
            yield Step(f"worker {number} takes {taken}", world._replace(queue=tuple(left), workers=held))
        return
    if worker.does == "look":
        own = world.own[message.via] if message.via >= 0 else world.fates[message.record]
        skipped = is_to_skip(own, world.fates[message.record], retried=message.via >= 0 and not message.replayed)
        runs = "claim its name" if bounds.unique else "run"
        if not skipped and _waits(world, bounds, message):
            runs = "wait for the one before it"
        yield to("skips it" if skipped else "looks", world, "acknowledge" if skipped else runs)
    elif worker.does == "run":
        yield from _run(world, bounds, message, to)
    elif worker.does == "acknowledge":
        yield Step(f"worker {number} acknowledges", world._replace(workers=put(world.workers, number, Worker())))
    elif "name" in worker.does:
        yield _use_name(world, bounds, message, worker.does, to)
    else:
        yield _settle(world, bounds, message, worker.does, to)


def _waits(world: World, bounds: Bounds, message: Message) -> bool:
    """Whether the record that was handed off with it, in front of it, has not ended yet."""
    ends = ENDED if bounds.mistake == "runs what is behind a dead one of its message" else bounds.ends
    return message.after >= 0 and world.fates[message.after] not in ends


def _use_name(world: World, bounds: Bounds, message: Message, does: str, to: To) -> Step[World]:
    """Its own record takes a name over, whatever it did; another waits, or is done without a run."""
    at, name = message.record, world.name
    match does:
        case "claim its name":
            return _claim(world, bounds, message, to)
        case "mark done by its name":
            return to(does, _end(world, message, Fate.DONE), "acknowledge")
        case "wait for its name":
            return to(does, published(world, message._replace(again=False)), "acknowledge")
    released = world._replace(name=None) if name == ("runs", at) else world
    return to("releases its name", released, does.removeprefix(RELEASE))


def _claim(world: World, bounds: Bounds, message: Message, to: To) -> Step[World]:
    at, name = message.record, world.name
    if name == ("done", at):
        return to("finds its name done by itself", world, "run")
    given_up = name is not None and name[0] == "runs" and world.fates[name[1]] is Fate.DEAD
    if name is None or name[1] == at or given_up:
        does = "done" if bounds.mistake == "is done before it runs" else "runs"
        return to("claims its name", world._replace(name=(does, at)), "run")
    if name[0] == "done":
        return to(f"finds {name[1]} done", world, "mark done by its name")
    return to(f"finds {name[1]} running", world, "wait for its name")


def _run(world: World, bounds: Bounds, message: Message, to: To) -> Iterator[Step[World]]:
    at = message.record
    overtakes = bounds.ordered and not all(fate in ENDED for fate in world.fates[:at])
    passes = bounds.holds and not all(world.runs[one] or world.discarded[one] for one in range(at))
    ran = world._replace(overtaken=world.overtaken or overtakes, passed=world.passed or passes)
    yield to("does its work", ran._replace(runs=put(ran.runs, at, min(ran.runs[at] + 1, 3))), "mark done")
    marks_first = bounds.mistake == "marks before it publishes"
    first = RELEASE if bounds.unique else ""
    yield to("fails for good", ran, first + ("mark dead" if marks_first else "publish the dead letter"))
    if message.number < bounds.parks:
        yield to("fails for long", ran, f"{first}publish the parked record")
    if message.tries < bounds.tries:
        yield to("fails for now", ran, f"{first}send it again")


def _settle(world: World, bounds: Bounds, message: Message, does: str, to: To) -> Step[World]:
    at = message.record
    match does:
        case "mark done":
            # Its name is done in the same step.
            named = world._replace(name=("done", at)) if bounds.unique else world
            return to(does, _end(named, message, Fate.DONE), "acknowledge")
        case "mark dead":
            has_letter = bounds.mistake != "marks before it publishes"
            return to(does, _end(world, message, Fate.DEAD), "acknowledge" if has_letter else "publish the dead letter")
        case "mark parked":
            return to(does, _end(world, message, Fate.PARKED), "acknowledge")
        case "publish the dead letter":
            return _bury(world, bounds, message, to)
        case "publish the parked record":
            clone = Parked(at, message.number + 1, message.replayed)
            if _looks(world, message) and clone in world.retry:
                return to("finds the parked record", world, "mark parked")
            written = world._replace(retry=(*world.retry, clone), own=(*world.own, Fate.OPEN))
            return to(does, written, "mark parked")
        case "send it again":
            return to(does, published(world, message._replace(tries=message.tries + 1, again=False)), "acknowledge")
        case "wait for the one before it":
            return to(does, published(world, message._replace(again=False)), "acknowledge")
    raise AssertionError(does)


def _bury(world: World, bounds: Bounds, message: Message, to: To) -> Step[World]:
    place = message.record + len(world.fates) * message.replayed
    then = "acknowledge" if bounds.mistake == "marks before it publishes" else "mark dead"
    if _looks(world, message) and world.dead[place]:
        return to("finds the dead letter", world, then)
    if message.via < 0 and world.fates[message.record] is Fate.DISCARDED:
        return to("finds it discarded", world, "acknowledge")
    written = world._replace(dead=put(world.dead, place, world.dead[place] + 1))
    return to("publish the dead letter", written, then)


def _looks(world: World, message: Message) -> bool:
    """Who looks for what an earlier run wrote: a message that came back, and whoever has a ledger that forgot."""
    return message.again or world.wiped


def _end(world: World, message: Message, fate: Fate) -> World:
    """Origin and own place in one write."""
    at = message.record
    marked = world._replace(fates=put(world.fates, at, follow_fate(world.fates[at], fate)))
    if message.via >= 0:
        own = follow_fate(marked.own[message.via], fate)
        marked = marked._replace(own=put(marked.own, message.via, own))
    return marked
