"""Two bridges, a worker, a person, a Kafka and a Redis, in which what was decided goes on its way, a step at a time."""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

from bridge.bridge_metrics import BridgeMetrics
from bridge.errors import KafkaUnavailable, LedgerUnavailable, NotDecided, PublishFailed
from bridge.formats.group_decision import (
    DecisionEntry,
    GroupDecision,
    PublishedDecision,
    append_decision,
    halt_key,
)
from bridge.jobs.decision_sync import DecisionPublisher, GroupDecisions
from bridge.jobs.halt_gates import HaltGates
from bridge.kafka import control_topic
from bridge.kafka.control_topic import PublishedDecisions
from bridge.ledger import Ledger, decision_store, group_access
from bridge.ledger.decision_store import DecisionMirror, MirroredDecisions, make_decision, read_standing_decisions
from bridge.settings import EnvironmentSettings, FileSettings, Settings
from tasks.policy.effective_decisions import DecisionCache

KEY = halt_key("orders")
SETTINGS = Settings(FileSettings(), EnvironmentSettings(), "", {})


class Kafka:
    """The control topic, and whether it can be reached; while it is slow, what is written arrives later.

    Attributes:
        under_way: what nobody waits for any more and Kafka still gets.
    """

    def __init__(self) -> None:
        self.log: list[GroupDecision] = []
        self.made = 0
        self.up, self.slow = True, False
        self.under_way: list[GroupDecision] = []

    def check(self) -> None:
        if not self.up:
            raise KafkaUnavailable("Kafka does not answer.")

    def there_is(self, settings: Settings, topics: Iterable[str] = ()) -> bool:
        self.check()
        return True

    def publish(self, settings: Settings, decision: GroupDecision) -> int:
        self.check()
        if self.slow:
            self.under_way.append(decision)
            raise PublishFailed("No answer in time.")
        self.log.append(decision)
        return len(self.log) - 1

    def arrive(self) -> None:
        self.log += self.under_way
        self.under_way = []

    def published(self, settings: Settings) -> PublishedDecisions:
        self.check()
        # As after compaction: of each key the last.
        last = {each.key: PublishedDecision(each, offset) for offset, each in enumerate(self.log)}
        return PublishedDecisions(last, len(self.log))


class Reader:
    """A follower of that topic."""

    caught_up = True

    def __init__(self, kafka: Kafka) -> None:
        self._kafka, self._next, self._made = kafka, 0, kafka.made
        self.went_back = False

    def poll(self, seconds: float = 0.0) -> list[PublishedDecision]:
        self.went_back = False
        if not self._kafka.up:
            return []
        if self._made != self._kafka.made:
            self._made, self._next, self.went_back = self._kafka.made, 0, True
        found = [PublishedDecision(each, at) for at, each in enumerate(self._kafka.log)][self._next :]
        self._next = len(self._kafka.log)
        return found

    def close(self) -> None:
        """Nothing to leave."""


class Frail(DecisionMirror):
    """A mirror whose Redis can be away."""

    up = True

    def __init__(self, ledger: Ledger) -> None:
        super().__init__(ledger)
        self.ledger = ledger

    def read(self) -> MirroredDecisions:
        self._check()
        return super().read()

    def version(self) -> str:
        self._check()
        return super().version()

    def _do(self, *args: str | int) -> None:
        self._check()
        super()._do(*args)

    def _check(self) -> None:
        if not self.up:
            raise LedgerUnavailable("Redis does not answer.")


class Broker:
    """The gates of a broker that answers always."""

    def __init__(self) -> None:
        self.names: dict[str, str] = {}

    @contextmanager
    def gates(self) -> Iterator["Broker"]:
        yield self

    def shut_names(self) -> dict[str, str]:
        return self.names

    def shut(self, name: str, why: str) -> None:
        self.names = {**self.names, name: why}

    def open(self, name: str) -> None:
        self.names = {each: why for each, why in self.names.items() if each != name}


class AtOnce(DecisionPublisher):
    """Publishes without a thread and without waiting."""

    def start(self, decision: GroupDecision) -> None:
        if self._outcome is None:
            self._is_old = False
            self._run(decision)

    def done(self) -> PublishedDecision | None:
        return self._taken()


class World:
    """Two bridges, a person, a Kafka and a Redis."""

    def __init__(self, kafka: Kafka, client: Any, ledger: Ledger) -> None:
        client.flushdb()
        self.client, self.kafka, self.mirror = client, kafka, Frail(ledger)
        self.bridges: list[GroupDecisions] = []
        self.broker: Any = Broker()
        self.worker = DecisionCache(self.mirror)
        self.last: GroupDecision | None = None
        self.durable: GroupDecision | None = None
        self.unpublished = ""
        self.is_lost = False
        for number in (0, 1):
            self.start(number)

    def start(self, number: int) -> None:
        gates = HaltGates(self.broker, "bridge")
        reader: Any = Reader(self.kafka)
        made: Any = GroupDecisions(SETTINGS, self.mirror, BridgeMetrics(), gates, follower=reader)
        made._publishing = AtOnce(SETTINGS, lambda: 0.0)
        if self.kafka.up:
            made.begin()
        self.bridges[number : number + 1] = [made]

    def decide(self, halts: bool) -> None:
        data = {"on": 1} if halts else None
        try:
            before = read_standing_decisions(SETTINGS, self.mirror).get(KEY)
            outcome = make_decision(SETTINGS, self.mirror, KEY, data, "ann", "", before)
        except NotDecided:
            return
        self.last, self.unpublished = outcome.decision, outcome.unpublished

    def attempt(self, halts: bool) -> list[GroupDecision]:
        """Decide, knowing what stands as far as it can be known; what Kafka may have of it, or get."""
        made: list[GroupDecision] = []

        def note(key: str, before: GroupDecision | None, change: DecisionEntry) -> GroupDecision:
            made.append(append_decision(key, before, change))
            return made[-1]

        with patch.object(decision_store, "append_decision", note):
            known = self.last
            self.decide(halts)
        if self.last is not known and not self.unpublished:
            self.durable = self.last
        return made

    def look(self, number: int) -> None:
        try:
            self.bridges[number].update()
        except LedgerUnavailable:
            return

    def do(self, step: str) -> list[GroupDecision]:
        """Do a step; what was decided in it, whoever has it."""
        match step.split():
            case ["halt" | "resume" as what]:
                return self.attempt(what == "halt")
            case ["look", number]:
                self.look(int(number))
            case ["start", number]:
                self.start(int(number))
            case ["kafka"]:
                self.kafka.up = not self.kafka.up
            case ["redis"]:
                self.mirror.up = not self.mirror.up
            case ["slow"]:
                self.kafka.slow = not self.kafka.slow
            case _:
                others = {"arrives": self.kafka.arrive, "wipe": self.wipe, "worker": self.ask_worker}
                (others | {"topic made again": self.make_topic_again})[step]()
        return []

    def knows(self, decision: GroupDecision | None) -> bool:
        """Whether Kafka, Redis or a bridge has it, be they reachable or not."""
        if decision is None:
            return True
        mirrored = DecisionMirror(self.mirror.ledger).read()
        noted = [
            *mirrored.published.values(),
            *(each for bridge in self.bridges for each in bridge._published.values()),
        ]
        wanted = [*mirrored.unpublished.values(), *(each for one in self.bridges for each in one._unpublished.values())]
        return decision in [*self.kafka.log, *self.kafka.under_way, *wanted, *(each.decision for each in noted)]

    def make_topic_again(self) -> None:
        self.kafka.log.clear()
        self.kafka.made += 1

    def ask_worker(self) -> GroupDecision | None:
        return self.worker.halt("orders", anew=True)

    def wipe(self) -> None:
        self.client.flushdb()
        self.broker.names = {}

    def settle(self) -> None:
        self.kafka.up = self.mirror.up = True
        self.kafka.slow = False
        self.kafka.arrive()
        for _ in range(4):
            for number in (0, 1):
                self.look(number)


def agree(world: World, *, halts: bool) -> None:
    """Bridges, gates and workers do as was decided."""
    halted = {"orders"} if halts else set[str]()
    assert [set(bridge.halts) for bridge in world.bridges] == [halted] * 2
    assert {name.rpartition(":")[2] for name in world.broker.names} == halted
    assert (world.ask_worker() is not None) == halts


@contextmanager
def broken_world(client: Any, ledger: Ledger) -> Iterator[World]:
    kafka = Kafka()
    with (
        patch.object(control_topic, "publish_decision", kafka.publish),
        patch.object(control_topic, "read_published_decisions", kafka.published),
        patch.object(control_topic, "ensure_control_topic", kafka.there_is),
    ):
        yield World(kafka, client, ledger)


@contextmanager
def the_mirror(world: World) -> Iterator[None]:
    """Commands read Redis as the world does: it may be away."""
    with patch.object(group_access, "DecisionMirror", lambda ledger: world.mirror):
        yield
