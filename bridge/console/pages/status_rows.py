"""Rows of topics, handlers, queues and partitions, with their states, from `bridge status --json` (pure)."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from bridge.console.pages.charts import Strip, build_handler_strip
from bridge.formats.text_forms import format_count, format_share, inflect_verb
from bridge.handler_routes import Handler, Routes
from bridge.jobs.backlog import add_up_counts
from bridge.jobs.group_facts import format_span
from bridge.problems.delivery_problem_rows import HANDLER_FAILING

#: The data of `bridge status --json`.
Status = Mapping[str, Any]


class RowState(NamedTuple):
    """The state of a row in a few words, with a shape; the colour only repeats it.

    Attributes:
        look: "bad", "warn" or "off", from the worst on.
        more: the reason.
        since: ISO 8601; empty: not known or not applicable.
    """

    look: str
    icon: str
    words: str
    more: str = ""
    since: str = ""


RUNS: Final = RowState("off", "ok", "runs")
NOT_KNOWN: Final = RowState("off", "info", "not known")
#: The words of docs/concepts/circuit-breakers.md for the states of a breaker that is not closed.
BREAKER_STATES: Final = {"open": "open", "probing": "half-open", "ramping": "closing"}
_WORST: Final = ("bad", "warn", "off")


class HandlerRow(NamedTuple):
    """A handler of a topic.

    Attributes:
        in_flight: deliveries that workers have; `None`: not known, as everywhere here.
        oldest: the seconds for which its oldest delivery has been in flight.
        dead, replaying: its letters.
        policy: the changes of its policy, by whom and when; empty: none.
        handled: the deliveries of this topic in the last hour.
    """

    name: str
    queue: str
    in_flight: int | None
    oldest: float | None
    dead: int | None
    replaying: int
    policy: str
    handled: Strip | None
    state: RowState


class TopicRow(NamedTuple):
    """A topic.

    Attributes:
        parked: unsettled records of its retry and replay topics, by delay, the shortest first; `None`: not known.
        halted: whether a person or a handler has halted it.
    """

    name: str
    partitions: int | None
    lag: int | None
    parked: Mapping[str, int] | None
    halted: bool
    state: RowState
    handlers: Sequence[HandlerRow]

    @property
    def parked_total(self) -> int | None:
        """Return the unsettled records of all its retry and replay topics; `None`: not known."""
        return None if self.parked is None else sum(self.parked.values())

    @property
    def worst(self) -> int:
        """Return the sort key by which the worst topics come first."""
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
    state: RowState


#: The number of letters in each status, by handler.
LetterCounts = Mapping[str, Mapping[str, int]]


def build_topic_rows(routes: Routes, status: Status, letters: LetterCounts | None) -> list[TopicRow]:
    """Return the topics of the group, the worst first.

    Parameters:
        letters: `None`: the database does not respond.
    """
    rows = [
        _build_topic_row(name, routes.of(name), status, letters) for name in {*routes.topics, *status.get("halted", ())}
    ]
    return sorted(rows, key=lambda row: (row.worst, row.name))


def build_queue_rows(status: Status) -> list[QueueRow]:
    """Return the queues, sorted by name."""
    return [_build_queue_row(name, found, status) for name, found in sorted((status.get("queues") or {}).items())]


def _build_topic_row(name: str, handlers: Iterable[Handler], status: Status, letters: LetterCounts | None) -> TopicRow:
    partitions = (status.get("topics") or {}).get(name)
    return TopicRow(
        name,
        None if partitions is None else len(partitions),
        None if partitions is None else sum(at["lag"] for at in partitions.values()),
        _count_parked(name, status.get("parked")),
        name in status.get("halted", {}),
        _judge_topic(name, partitions, status),
        [_build_handler_row(name, handler, status, letters) for handler in handlers],
    )


def _count_parked(topic: str, tiers: Sequence[Mapping[str, Any]] | None) -> dict[str, int] | None:
    if tiers is None:
        return None
    parked: dict[str, int] = {}
    for each in sorted(tiers, key=lambda tier: tier["delay"] or 0):
        if each["source"] == topic:
            wait = _format_wait(each["delay"])
            parked[wait] = parked.get(wait, 0) + each["records"]
    return parked


def _judge_topic(name: str, partitions: Mapping[str, Any] | None, status: Status) -> RowState:
    if halt := status.get("halted", {}).get(name):
        return RowState("bad", "halt", "halted", f"by {halt['by']}: {halt['why']}", halt["since"])
    bridges = status.get("bridges")
    if bridges is None:
        return NOT_KNOWN
    readers = [each for each in bridges.values() if name in each.get("topics", ())]
    if not readers:
        return RowState("bad", "off", "no bridge reads it")
    if all(each.get("obstacles") for each in readers):
        return RowState("bad", "off", "nothing is read", "; ".join(sorted({*readers[0]["obstacles"]})))
    if partitions is not None and not partitions:
        return RowState("warn", "info", "does not exist yet")
    if paused := _list_pauses(name, bridges):
        why = "; ".join(sorted({why for why, _ in paused}))
        since = min((since for _, since in paused if since), default="")
        return RowState("warn", "clock", f"{format_count(len(paused), 'partition')} paused", why, since)
    return RUNS


def _list_pauses(topic: str, bridges: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Return why each paused partition of a topic is paused, and since when (ISO 8601)."""
    paused = {
        place: (why, each.get("paused_since", {}).get(place, ""))
        for each in bridges.values()
        for place, why in each.get("paused", {}).items()
        if place.rpartition("-")[0] == topic
    }
    return [*paused.values()]


def _build_handler_row(topic: str, handler: Handler, status: Status, letters: LetterCounts | None) -> HandlerRow:
    workers, ages = status.get("workers"), status.get("oldest") or ()
    age = max(
        (each["seconds"] for each in ages if (each["topic"], each["handler"]) == (topic, handler.name)), default=0
    )
    statuses = None if letters is None else letters.get(handler.name, {})
    return HandlerRow(
        handler.name,
        handler.queue,
        None if workers is None else _count_held(handler, workers),
        age or None,
        None if statuses is None else statuses.get("open", 0),
        0 if statuses is None else statuses.get("replaying", 0),
        status.get("policies", {}).get(handler.name, ""),
        build_handler_strip(status, topic, handler.name),
        _judge_handler(topic, handler, status),
    )


def _count_held(handler: Handler, workers: Mapping[str, Any]) -> int:
    return round(
        add_up_counts(each.get("holds") for each in workers.values()).get(handler.queue, {}).get(handler.name, 0)
    )


def _find_handler_halt(topic: str, handler: str, status: Status) -> RowState | None:
    """Return the state of a handler that is halted, or keys of it; `None` if it is not."""
    halts = [each for each in status.get("halted_handlers", ()) if (each["topic"], each["handler"]) == (topic, handler)]
    for each in halts:
        if each["key"] is None:
            return RowState("bad", "halt", "halted", f"by {each['by']}: {each['why']}", each["since"])
    if not halts:
        return None
    since = min(each["since"] for each in halts)
    return RowState("warn", "halt", f"{format_count(len(halts), 'key')} halted", "", since)


def _judge_handler(topic: str, handler: Handler, status: Status) -> RowState:
    if topic in status.get("halted", {}):
        return RowState("bad", "halt", "halted", f"with {topic}")
    if (halted := _find_handler_halt(topic, handler.name, status)) is not None:
        return halted
    for name, breaker in sorted(status.get("breakers", {}).items()):
        if handler.name in breaker["handlers"]:
            words = f"circuit breaker {name} is {describe_breaker(breaker)}"
            return RowState("warn", "breaker", words, breaker["why"], breaker["since"])
    if (workers := status.get("workers")) is None:
        return NOT_KNOWN
    takers = [each["handlers"] for each in workers.values() if handler.queue in each["queues"]]
    if not takers:
        return RowState("bad", "off", "no worker", f"no worker consumes queue {handler.queue}")
    if strangers := sum(handler.name not in known for known in takers):
        if strangers == len(takers):
            return RowState("bad", "off", "no worker knows it", f"of those that take queue {handler.queue}")
        return RowState(
            "warn",
            "info",
            f"{format_share(strangers, len(takers), 'worker', 'do')} not know it",
            f"queue {handler.queue}",
        )
    return _find_failure(handler.name, status) or RUNS


def _find_failure(handler: str, status: Status) -> RowState | None:
    """Return the state of a handler whose attempts fail, by the problems of the status; `None` if none is known."""
    for problem in status.get("problem_values", ()):
        if problem["kind"] == HANDLER_FAILING.kind and problem["handler"] == handler:
            waits = problem["of"] == "deliveries" and problem["many"]
            words = f"{format_count(waits, 'delivery')} {inflect_verb(waits, 'wait')}" if waits else "fails"
            return RowState("warn", "warn", words, "", problem["since"] or "")
    return None


def describe_breaker(breaker: Mapping[str, Any]) -> str:
    """Return the word for the state of a breaker in `bridge status --json`."""
    return BREAKER_STATES.get(breaker["state"], str(breaker["state"]))


def _build_queue_row(name: str, found: Mapping[str, Any], status: Status) -> QueueRow:
    living = [each for each in (status.get("workers") or {}).values() if name in each["queues"]]
    versions = {version for each in living for version in each.get("handler_versions", {}).values() if version}
    none = RowState("bad", "off", "no worker", "what comes there waits")
    known = found["workers"] is not None
    return QueueRow(
        name,
        found["messages"],
        found["workers"],
        sum(each["processes"] for each in living),
        tuple(sorted(versions)),
        min((each["started"] for each in living if "started" in each), default=""),
        (RowState("off", "ok", "well") if living else none) if known else NOT_KNOWN,
    )


def _format_wait(delay: float | None) -> str:
    return format_span(delay) if delay else "replay"


#: The data of `bridge status --json`.
StatusData = Mapping[str, Any]


class PartitionRow(NamedTuple):
    """A partition of a topic.

    Attributes:
        committed: `None`: no offset, or not known.
        bridge: the bridge that has it; empty: none; `None`: not known.
        paused: the reason of the pause; empty: not paused.
        since: when the pause began, ISO 8601; empty: not known.
    """

    number: int
    committed: int | None
    end: int | None
    lag: int | None
    bridge: str | None
    paused: str
    since: str


def build_partition_rows(topic: str, status: StatusData) -> list[PartitionRow]:
    """Return the partitions of a topic by number; none if Kafka does not respond."""
    found = (status.get("topics") or {}).get(topic) or {}
    return [
        _partition_row(topic, int(number), found[number], status.get("bridges")) for number in sorted(found, key=int)
    ]


def list_own_topics(topic: str, status: StatusData) -> Sequence[Mapping[str, Any]]:
    """Return the topic's retry and replay topics, the shortest delay first."""
    found = [each for each in status.get("parked") or () if each["source"] == topic]
    return sorted(found, key=lambda each: (each["delay"] or 0, each["topic"]))


def _partition_row(topic: str, number: int, at: Mapping[str, Any], bridges: Mapping[str, Any] | None) -> PartitionRow:
    if bridges is None:
        return PartitionRow(number, at["committed"], at["end"], at["lag"], None, "", "")
    place = f"{topic}-{number}"
    name = next((name for name, each in sorted(bridges.items()) if place in each["assigned"]), "")
    bridge = bridges.get(name, {})
    paused = bridge.get("paused", {}).get(place, "")
    since = bridge.get("paused_since", {}).get(place, "")
    return PartitionRow(number, at["committed"], at["end"], at["lag"], name, paused, since)
