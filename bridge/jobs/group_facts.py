"""The facts of a group: its bridges, workers, queues, topics and servers; and the formats of times and counts."""

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from bridge.dispatch.broker_search import NONE_ASIDE, SetAside
from bridge.dispatch.carrier_message import WaitingFailures
from bridge.formats.delivery_identity import Place
from bridge.formats.group_decision import GroupDecision
from bridge.formats.halt_scope import HaltScope
from bridge.formats.text_forms import format_count, inflect_verb
from bridge.jobs.deleted_topics import DeletedTopic
from bridge.kafka.managed_topic import IN_SYNC, ReplicaState
from bridge.ledger import KafkaLogChange
from bridge.ledger.attempt_statistics import OutcomeSummary, TopicHandler, UnpublishedDeadLetters
from bridge.ledger.delivery_counts import CountSeries
from bridge.problems.problem import Problem


@dataclass(frozen=True, slots=True)
class HandlerFacts:
    """A handler: its topics and queue, the longest wait in seconds that its retries may cause, and its former names."""

    name: str
    topics: tuple[str, ...]
    queue: str
    longest_wait: float = 0.0
    aliases: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class DeadLetterFacts:
    """The dead letters of one handler and dead-letter topic whose deliveries are still dead, with the last error."""

    topic: str
    handler: str
    count: int
    since: float
    reason: str
    error: str
    more: bool = False


@dataclass(frozen=True, slots=True)
class RedisMemory:
    """The memory of a Redis: bytes used and allowed (0: no limit), and why it does not write its data to disk.

    Attributes:
        evicts: its maxmemory-policy, if that evicts now.
        evicted: keys that it has evicted since its start.
        would_evict: its maxmemory-policy, if that evicts as soon as a maxmemory is set.
        saved_at: when its last snapshot was written, or it started, if a snapshot has failed since.
        unsaved: how many changes that snapshot lacks.
        refuses: whether it has just refused a write, since it is full.
        unlisted: which bridges and workers may run unlisted, since it does not take their announcements.
    """

    where: str
    used: int = 0
    allowed: int = 0
    disk: str | None = None
    evicts: str | None = None
    evicted: int = 0
    would_evict: str | None = None
    saved_at: float | None = None
    unsaved: int | None = None
    refuses: bool = False
    unlisted: str = ""

    @property
    def full(self) -> bool:
        """Return whether it takes no more writes."""
        return self.refuses or 0 < self.allowed <= self.used


@dataclass(frozen=True, slots=True)
class TopicFacts:
    """A topic of the group, and the content of a retry or replay topic.

    Attributes:
        kind, use: as `bridge topics` shows them.
        delay: seconds that its records wait there.
        records: unsettled records, those that are handed off and committed included.
        dues: by partition and handler, when (Unix time) the first record that is not handed off is due.
        lag: by partition, how many records are not committed yet.
        problems: problems of the topic, a sentence each.
        refused: whether no bridge starts with the topic as it is.
        failed: by handler, the failures in the records that were read.
        replicas: the state of the topic's replicas.
    """

    topic: str
    kind: str
    source: str
    delay: int | None
    use: str
    records: int = 0
    dues: Mapping[int, Mapping[str, float]] = field(default_factory=dict)
    lag: Mapping[int, int] = field(default_factory=dict)
    problems: Sequence[str] = ()
    refused: bool = False
    failed: Sequence[WaitingFailures] = ()
    replicas: ReplicaState = IN_SYNC

    @property
    def first_due(self) -> dict[int, float]:
        """Return by partition when (Unix time) the first record that is not handed off is due."""
        return self.find_first_due()

    def find_first_due(self, without: Collection[str] = frozenset()) -> dict[int, float]:
        """Return by partition when (Unix time) the first record that is not handed off is due.

        Parameters:
            without: the handlers whose records are left out.
        """
        dues = {
            partition: [due for handler, due in by_handler.items() if handler not in without]
            for partition, by_handler in self.dues.items()
        }
        return {partition: min(some) for partition, some in dues.items() if some}

    @property
    def waits(self) -> bool:
        """Return whether its records are to run again."""
        return self.kind in ("retry", "replay") and self.use != "abandoned"


@dataclass(frozen=True, slots=True)
class DependencyDown:
    """A dependency whose circuit breaker is open or half-open.

    Attributes:
        state: `open`, `probing` or `ramping`.
        since: when its first failure was.
        handlers: the handlers that need it.
        aside: the messages that wait for it in the broker.
        tried: when the last trial request began; 0: none has.
        next: from when on another may begin.
        silent: how many trial requests have not ended in time.
    """

    dependency: str
    state: str
    since: float
    why: str
    handlers: Sequence[str] = ()
    aside: SetAside = NONE_ASIDE
    tried: float = 0.0
    next: float = 0.0
    silent: int = 0


@dataclass(frozen=True, slots=True)
class HandlerHalt:
    """A halted handler of a topic, or one key of it.

    Attributes:
        aside: the messages that wait for it in the broker.
    """

    scope: HaltScope
    halt: GroupDecision
    aside: SetAside = NONE_ASIDE


@dataclass(frozen=True)
class GroupFacts:
    """The facts of a group; one that could not be asked is `None`.

    Attributes:
        now: Unix time, as all times here.
        handlers: of the settings here.
        app: the Celery app, as `-A` names it.
        silent: why something did not answer, a sentence each.
        lag: per topic, records between the committed offset and the end.
        partitions: per topic, how many.
        bridges, workers: what the living announce.
        unconfirmed: by `bridges` and `workers`, the members that a Redis which refuses writes still lists, and when any
            of their kind announced itself last (`None`: not known). They may live.
        seen: when each name was announced last, `queue …`, `handler …` and `group …`.
        queues: messages that wait, per queue.
        deliveries: what the messages of a queue carry, those that wait for their time too, where that was counted.
        retries: messages that wait for their time, per queue.
        oldest: seconds that the oldest delivery has been in flight, by topic and handler.
        tiers: the topics of ours, in the order in which they are listed.
        halts: by topic, why its consumption is halted.
        handler_halts: the halted handlers and keys.
        stale: what was changed of policies and is not in force, a sentence each.
        breakers: the dependencies of handlers whose circuit breaker is not closed.
        aside: by topic, what its halt keeps back in the broker.
        sources: of retry and replay topics that are gone, whose deliveries lay there.
        gone: retry and replay topics that were deleted with what is parked there.
        unnamed: messages in the broker that wait for a dependency that no handler here names, by its name.
        counts: what was handled, failed, died and was replayed, by topic and handler.
        outcomes: how the last attempts ended, by topic and handler.
        unpublished: by handler, the deliveries whose dead letter Kafka does not take.
        costs: seconds that a delivery of a handler takes, where it was measured.
        foreign: topics that a member of the consumer group has which no bridge of this Redis is.
        lost: bridges that fell silent in the last hour without a shutdown, and how many seconds ago.
        unreadable: the partitions that Kafka cannot read, each with the reason; no count includes them.
    """

    now: float
    group: str
    handlers: Sequence[HandlerFacts] = ()
    silent: Sequence[str] = ()
    lag: Mapping[str, int] | None = None
    partitions: Mapping[str, int] | None = None
    bridges: Mapping[str, Mapping[str, Any]] | None = None
    workers: Mapping[str, Mapping[str, Any]] | None = None
    unconfirmed: Mapping[str, Mapping[str, float | None]] = field(default_factory=dict)
    seen: Mapping[str, float] = field(default_factory=dict)
    queues: Mapping[str, int] | None = None
    deliveries: Mapping[str, int] = field(default_factory=dict)
    retries: Mapping[str, int] = field(default_factory=dict)
    oldest: Mapping[tuple[str, str], float] = field(default_factory=dict)
    letters: Sequence[DeadLetterFacts] = ()
    failing: Sequence[WaitingFailures] = ()
    changes: Sequence[KafkaLogChange] = ()
    memory: Sequence[RedisMemory] = ()
    tiers: Sequence[TopicFacts] = ()
    halts: Mapping[str, GroupDecision] = field(default_factory=dict)
    handler_halts: Sequence[HandlerHalt] = ()
    stale: Sequence[Problem] = ()
    breakers: Sequence[DependencyDown] = ()
    aside: Mapping[str, SetAside] = field(default_factory=dict)
    sources: Mapping[str, str] = field(default_factory=dict)
    unnamed: Mapping[str, SetAside] = field(default_factory=dict)
    gone: Sequence[DeletedTopic] = ()
    counts: Mapping[TopicHandler, CountSeries] | None = None
    outcomes: Mapping[TopicHandler, OutcomeSummary] = field(default_factory=dict)
    unpublished: Mapping[str, UnpublishedDeadLetters] = field(default_factory=dict)
    costs: Mapping[str, float] = field(default_factory=dict)
    lost: Mapping[str, float] = field(default_factory=dict)
    foreign: Sequence[str] = ()
    unreadable: Mapping[Place, str] = field(default_factory=dict)
    app: str = "tasks"

    def consumers(self, queue: str) -> dict[str, Mapping[str, Any]]:
        """Return the living workers that consume a queue."""
        return {name: state for name, state in (self.workers or {}).items() if queue in state["queues"]}

    def parked(self, source: str | None = None) -> int:
        """Return how many records of retry and replay topics wait in Kafka; of one source, or of all."""
        return sum(sum(tier.lag.values()) for tier in self.tiers if tier.waits and source in (None, tier.source))

    def find_halted_handlers(self, topic: str) -> set[str]:
        """Return the handlers that are halted as a whole on a topic, those that were renamed by both names."""
        scopes = (each.scope for each in self.handler_halts)
        halted = {scope.handler for scope in scopes if scope.topic == topic and scope.key is None}
        return halted | {self.current_names.get(name, name) for name in halted}

    @property
    def current_names(self) -> dict[str, str]:
        """Return by former name of a handler its current one."""
        return {alias: handler.name for handler in self.handlers for alias in handler.aliases}

    @property
    def held_back(self) -> set[str]:
        """Return the topics of which open transactions hold back every partition."""
        counts = Counter(topic for topic, _ in self.held_back_places)
        return {topic for topic, count in counts.items() if count >= (self.partitions or {}).get(topic, 1)}

    @property
    def held_back_places(self) -> set[tuple[str, int]]:
        """Return the partitions that open transactions hold back."""
        states = (self.bridges or {}).values()
        return {(each["topic"], each["partition"]) for state in states for each in state.get("open_transactions", ())}

    @property
    def waiting_for_needs(self) -> set[str]:
        """Return the handlers whose deliveries wait because a circuit breaker is open or half-open."""
        return {handler for each in self.breakers for handler in each.handlers}


def format_since(at: float | None, now: float) -> str:
    """Return words such as `since 2026-01-31 12:00:05 UTC (7 min)`."""
    if at is None:
        return "and none was seen before"
    return f"since {format_utc(at)} ({format_span(now - at)})"


def format_known_since(at: float | None, now: float) -> str:
    """Return words such as `, since 2026-01-31 12:00:05 UTC (7 min)`; nothing if no time is known."""
    return "" if at is None else f", {format_since(at, now)}"


def format_utc(at: float) -> str:
    """Return a time such as `2026-01-31 12:00:05 UTC`."""
    return f"{datetime.fromtimestamp(at, UTC):%Y-%m-%d %H:%M:%S} UTC"


def format_span(seconds: float) -> str:
    """Return a time span in its largest unit: `7 min`, `3.5 h`."""
    for unit, name in ((86_400, "d"), (3_600, "h"), (60, "min")):
        if seconds >= unit:
            return f"{seconds / unit:.3g} {name}"
    return f"{max(0.0, seconds):.0f} s"


def format_waiting_records(unread: int, parked: int) -> str:
    """Return words such as `9 records in Kafka wait, 2 of them in retry and replay topics`."""
    of_these = f", {parked:,} of them in retry and replay topics" if parked else ""
    verb = inflect_verb(unread + parked, "wait")
    return f"{format_record_count(unread + parked)} in Kafka {verb}{of_these}"


def format_letter_count(count: int) -> str:
    """Return words such as `1 letter` or `1,234 letters`."""
    return format_count(count, "letter")


def format_record_count(count: int) -> str:
    """Return words such as `1 record` or `1,234 records`."""
    return format_count(count, "record")
