"""The overview's rows: topics with their handlers, queues with their workers, from `bridge status --json` (pure)."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from bridge.handlers import Handler, Routes
from bridge.upkeep.backlog import total
from bridge.upkeep.facts import span
from bridge.web.strips import Strip, of_handler

#: What `bridge status --json` answers.
Status = Mapping[str, Any]


class State(NamedTuple):
    """How something is, in a few words: always with a shape, a colour comes on top.

    Attributes:
        look: "bad", "warn" or "off", the worst first.
        more: why.
        since: ISO 8601; empty: not known, or nothing to tell.
    """

    look: str
    icon: str
    words: str
    more: str = ""
    since: str = ""


RUNS: Final = State("off", "ok", "runs")
NOT_KNOWN: Final = State("off", "info", "not known")
_WORST: Final = ("bad", "warn", "off")


class HandlerRow(NamedTuple):
    """A handler of a topic.

    Attributes:
        in_flight: deliveries that workers have; `None`: not known, as everywhere here.
        oldest: seconds for which its oldest delivery has been under way.
        dead, replaying: its letters.
        policy: what was changed of it, by whom and when; empty: nothing.
        handled: of this topic, in the last hour.
    """

    name: str
    queue: str
    in_flight: int | None
    oldest: float | None
    dead: int | None
    replaying: int
    policy: str
    handled: Strip | None
    state: State


class TopicRow(NamedTuple):
    """A topic.

    Attributes:
        parked: by kind of wait, records of its retry and replay topics that are not settled.
        halted: whether somebody, or a handler, has halted it.
    """

    name: str
    partitions: int | None
    lag: int | None
    parked: Mapping[str, int]
    halted: bool
    state: State
    handlers: Sequence[HandlerRow]

    @property
    def worst(self) -> int:
        """By what topics are listed, the worst first."""
        looks = [self.state.look, *(handler.state.look for handler in self.handlers)]
        return min(map(_WORST.index, looks))


class QueueRow(NamedTuple):
    """A queue with its living workers."""

    name: str
    messages: int | None
    workers: int | None
    processes: int
    versions: tuple[str, ...]
    started: str
    state: State


#: By handler, how many of its letters have each status.
Letters = Mapping[str, Mapping[str, int]]


def topics(routes: Routes, status: Status, letters: Letters | None) -> list[TopicRow]:
    """The topics of the group, those that are worst first.

    Parameters:
        letters: `None`: the database does not answer.
    """
    rows = [_topic(name, routes.of(name), status, letters) for name in {*routes.topics, *status.get("halted", ())}]
    return sorted(rows, key=lambda row: (row.worst, row.name))


def waits(status: Status) -> list[str]:
    """The kinds of wait that topics have, the shortest first: a column each."""
    found = {(each["delay"] or 0, _wait(each["delay"])) for each in status.get("parked") or ()}
    return [name for _, name in sorted(found)]


def queues(status: Status) -> list[QueueRow]:
    """The queues, by their names."""
    return [_queue(name, found, status) for name, found in sorted((status.get("queues") or {}).items())]


def _topic(name: str, handlers: Iterable[Handler], status: Status, letters: Letters | None) -> TopicRow:
    partitions = (status.get("topics") or {}).get(name)
    parked: dict[str, int] = {}
    for each in status.get("parked") or ():
        if each["source"] == name:
            wait = _wait(each["delay"])
            parked[wait] = parked.get(wait, 0) + each["records"]
    return TopicRow(
        name,
        None if partitions is None else len(partitions),
        None if partitions is None else sum(at["lag"] for at in partitions.values()),
        parked,
        name in status.get("halted", {}),
        _state_of_topic(name, partitions, status),
        [_handler(name, handler, status, letters) for handler in handlers],
    )


def _state_of_topic(name: str, partitions: Mapping[str, Any] | None, status: Status) -> State:
    if halt := status.get("halted", {}).get(name):
        return State("bad", "halt", "halted", f"by {halt['by']}: {halt['why']}", halt["since"])
    bridges = status.get("bridges")
    if bridges is None:
        return NOT_KNOWN
    readers = [each for each in bridges.values() if name in each.get("topics", ())]
    if not readers:
        return State("bad", "off", "no bridge reads it")
    if all(each.get("obstacles") for each in readers):
        return State("bad", "off", "nothing is read", "; ".join(sorted({*readers[0]["obstacles"]})))
    if partitions is not None and not partitions:
        return State("warn", "info", "does not exist yet")
    if paused := _paused(name, bridges):
        why = "; ".join(sorted({why for why, _ in paused}))
        since = min((since for _, since in paused if since), default="")
        return State("warn", "clock", f"{len(paused)} partition{'' if len(paused) == 1 else 's'} paused", why, since)
    return RUNS


def _paused(topic: str, bridges: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Return why each paused partition of a topic is paused, and since when (ISO 8601)."""
    paused = {
        place: (why, each.get("paused_since", {}).get(place, ""))
        for each in bridges.values()
        for place, why in each.get("paused", {}).items()
        if place.rpartition("-")[0] == topic
    }
    return [*paused.values()]


def _handler(topic: str, handler: Handler, status: Status, letters: Letters | None) -> HandlerRow:
    workers, ages = status.get("workers"), status.get("oldest") or ()
    age = max(
        (each["seconds"] for each in ages if (each["topic"], each["handler"]) == (topic, handler.name)), default=0
    )
    statuses = None if letters is None else letters.get(handler.name, {})
    return HandlerRow(
        handler.name,
        handler.queue,
        None if workers is None else _held(handler, workers),
        age or None,
        None if statuses is None else statuses.get("open", 0),
        0 if statuses is None else statuses.get("replaying", 0),
        status.get("policies", {}).get(handler.name, ""),
        of_handler(status, topic, handler.name),
        _state_of_handler(topic, handler, status),
    )


def _held(handler: Handler, workers: Mapping[str, Any]) -> int:
    return round(total(each.get("holds") for each in workers.values()).get(handler.queue, {}).get(handler.name, 0))


def _state_of_handler(topic: str, handler: Handler, status: Status) -> State:
    if topic in status.get("halted", {}):
        return State("bad", "halt", "halted", f"with {topic}")
    for name, breaker in sorted(status.get("breakers", {}).items()):
        if handler.name in breaker["handlers"]:
            words = f"held by breaker {name}" if breaker["state"] != "ramping" else f"breaker {name} lets it go on"
            return State("warn", "breaker", words, breaker["why"], breaker["since"])
    if (workers := status.get("workers")) is None:
        return NOT_KNOWN
    takers = [each["handlers"] for each in workers.values() if handler.queue in each["queues"]]
    if not takers:
        return State("bad", "off", "no worker", f"nobody takes queue {handler.queue}")
    if strangers := sum(handler.name not in known for known in takers):
        if strangers == len(takers):
            return State("bad", "off", "no worker knows it", f"of those that take queue {handler.queue}")
        return State("warn", "info", f"{strangers} of {len(takers)} workers do not know it", f"queue {handler.queue}")
    return RUNS


def _queue(name: str, found: Mapping[str, Any], status: Status) -> QueueRow:
    living = [each for each in (status.get("workers") or {}).values() if name in each["queues"]]
    versions = {version for each in living for version in each.get("handler_versions", {}).values() if version}
    none = State("bad", "off", "no worker", "what comes there waits")
    known = found["workers"] is not None
    return QueueRow(
        name,
        found["messages"],
        found["workers"],
        sum(each["processes"] for each in living),
        tuple(sorted(versions)),
        min((each["started"] for each in living if "started" in each), default=""),
        (State("off", "ok", "well") if living else none) if known else NOT_KNOWN,
    )


def _wait(delay: float | None) -> str:
    return span(delay) if delay else "replay"
