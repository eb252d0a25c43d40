"""In whatever order Kafka, Redis and bridges come and go, what was decided last stands everywhere at the end."""

from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import Any
from unittest.mock import patch

import pytest
import redis
from celery import Celery
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from bridge.commands import halt as commands
from bridge.errors import KafkaUnavailable, LedgerUnavailable, NotDecided, PublishFailed
from bridge.handlers import Handler, Routes
from bridge.ledger import Ledger, deciding
from bridge.ledger.control import Mirror, Mirrored
from bridge.ledger.deciding import decide, standing
from bridge.metrics import BridgeMetrics
from bridge.records.control import Change, Decision, Standing, decided, halt_key
from bridge.settings import EnvironmentSettings, FileSettings, Settings
from bridge.topics import control
from bridge.topics.control import Published
from bridge.upkeep.decided import Decided, Publishing
from bridge.upkeep.topic_gates import TopicGates
from tasks.control import Control

KEY = halt_key("orders")
SETTINGS = Settings(FileSettings(), EnvironmentSettings(), "", {})


class Kafka:
    """The control topic, and whether it can be reached; while it is slow, what is written arrives later.

    Attributes:
        under_way: what nobody waits for any more and Kafka still gets.
    """

    def __init__(self) -> None:
        self.log: list[Decision] = []
        self.made = 0
        self.up, self.slow = True, False
        self.under_way: list[Decision] = []

    def check(self) -> None:
        if not self.up:
            raise KafkaUnavailable("Kafka does not answer.")

    def there_is(self, settings: Settings) -> bool:
        self.check()
        return True

    def publish(self, settings: Settings, decision: Decision) -> int:
        self.check()
        if self.slow:
            self.under_way.append(decision)
            raise PublishFailed("No answer in time.")
        self.log.append(decision)
        return len(self.log) - 1

    def arrive(self) -> None:
        self.log += self.under_way
        self.under_way = []

    def published(self, settings: Settings) -> Published:
        self.check()
        # As after compaction: of each key the last.
        last = {each.key: Standing(each, offset) for offset, each in enumerate(self.log)}
        return Published(last, len(self.log))


class Reader:
    """A follower of that topic."""

    caught_up = True

    def __init__(self, kafka: Kafka) -> None:
        self._kafka, self._next, self._made = kafka, 0, kafka.made
        self.went_back = False

    def poll(self, seconds: float = 0.0) -> list[Standing]:
        self.went_back = False
        if not self._kafka.up:
            return []
        if self._made != self._kafka.made:
            self._made, self._next, self.went_back = self._kafka.made, 0, True
        found = [Standing(each, at) for at, each in enumerate(self._kafka.log)][self._next :]
        self._next = len(self._kafka.log)
        return found

    def close(self) -> None:
        """Nothing to leave."""


class Frail(Mirror):
    """A mirror whose Redis can be away."""

    up = True

    def read(self) -> Mirrored:
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


class AtOnce(Publishing):
    """Publishes without a thread and without waiting."""

    def start(self, decision: Decision) -> None:
        if self._outcome is None:
            self._run(decision)

    def done(self) -> Standing | None:
        found, self._outcome = self._outcome, None
        return found


class World:
    """Two bridges, a person, a Kafka and a Redis."""

    def __init__(self, kafka: Kafka, client: Any, ledger: Ledger) -> None:
        client.flushdb()
        self.client, self.kafka, self.mirror = client, kafka, Frail(ledger)
        self.bridges: list[Decided] = []
        self.broker: Any = Broker()
        self.worker = Control(self.mirror)
        self.last: Decision | None = None
        self.durable: Decision | None = None
        self.unpublished = ""
        for number in (0, 1):
            self.start(number)

    def start(self, number: int) -> None:
        gates = TopicGates(self.broker, "bridge")
        reader: Any = Reader(self.kafka)
        made: Any = Decided(SETTINGS, self.mirror, BridgeMetrics(), gates, follower=reader)
        made._publishing = AtOnce(SETTINGS, lambda: 0.0)
        if self.kafka.up:
            made.begin()
        self.bridges[number : number + 1] = [made]

    def decide(self, halts: bool) -> None:
        data = {"on": 1} if halts else None
        try:
            before = standing(SETTINGS, self.mirror).get(KEY)
            outcome = decide(SETTINGS, self.mirror, KEY, data, "ann", "", before)
        except NotDecided:
            return
        self.last, self.unpublished = outcome.decision, outcome.unpublished

    def attempt(self, halts: bool) -> list[Decision]:
        """Decide, knowing what stands as far as it can be known; what Kafka may have of it, or get."""
        made: list[Decision] = []

        def note(key: str, before: Decision | None, change: Change) -> Decision:
            made.append(decided(key, before, change))
            return made[-1]

        with patch.object(deciding, "decided", note):
            known = self.last
            self.decide(halts)
        if self.last is not known and not self.unpublished:
            self.durable = self.last
        return made

    def look(self, number: int) -> None:
        try:
            self.bridges[number].look()
        except LedgerUnavailable:
            return

    def do(self, step: str) -> list[Decision]:
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
                {"arrives": self.kafka.arrive, "wipe": self.wipe, "worker": self.ask_worker}[step]()
        return []

    def ask_worker(self) -> Decision | None:
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


@pytest.fixture
def there(redis_url: str) -> Iterator[tuple[Any, Ledger]]:
    with redis.Redis.from_url(redis_url) as client, closing(Ledger(redis_url, "", "bridge")) as ledger:
        yield client, ledger


STEPS = st.lists(
    st.sampled_from(
        ["halt", "resume", "look 0", "look 1", "start 0", "kafka", "redis", "wipe", "worker", "topic made again"]
    ),
    max_size=14,
)


@pytest.fixture
def broken(there: tuple[Any, Ledger]) -> Iterator[World]:
    with broken_world(*there) as world:
        yield world


def resumed(redis_url: str, *topics: str) -> dict[str, Any]:
    """What `bridge resume` says; without topics as with `--all`."""
    chosen = Settings(FileSettings(), EnvironmentSettings(), redis_url, {})
    routes = Routes({"orders": Handler("orders", ("orders",), "q", 1, 0.0)})
    with Celery("here", broker=redis_url, broker_transport="lossless.transport:Transport", set_as_current=False) as app:
        found: dict[str, Any] = commands.resume(app, chosen, routes, topics or None, "", "bob")["topics"]
        return found


@pytest.mark.parametrize("topics", [("orders",), ()], ids=["named", "all"])
@pytest.mark.parametrize("lost", ["wiped", "went back"])
def test_a_topic_that_kafka_alone_knows_as_halted_is_resumed_while_kafka_cannot_be_asked(
    broken: World, redis_url: str, topics: tuple[str, ...], lost: str
):
    if lost == "went back":
        broken.decide(halts=False)
    broken.mirror.up = False
    broken.decide(halts=True)
    broken.mirror.up = True
    if lost == "wiped":
        broken.wipe()
    broken.kafka.up = False
    (how,) = resumed(redis_url, *topics).values()
    assert (how["halted"], how["changed"]) == (False, True)
    assert "Kafka does not answer" in how["unpublished"]
    broken.settle()
    agree(broken, halts=False)
    assert resumed(redis_url, "orders")["orders"] == {"halted": False, "changed": False}


@settings(max_examples=80, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(STEPS)
def test_what_was_decided_last_stands_everywhere_at_the_end(there: tuple[Any, Ledger], steps: list[str]):
    kafka = Kafka()
    with (
        patch.object(control, "publish", kafka.publish),
        patch.object(control, "published", kafka.published),
        patch.object(control, "there_is", kafka.there_is),
    ):
        world = World(kafka, *there)
        for step in steps:
            known = world.last
            match step.split():
                case ["halt" | "resume" as what]:
                    world.decide(what == "halt")
                    if world.last is not known and not (world.kafka.up and world.mirror.up):
                        # One of the two alone has it: bridges look within a second, before the next thing breaks.
                        world.settle()
                case ["look", number]:
                    world.look(int(number))
                case ["start", number]:
                    world.start(int(number))
                case ["kafka"]:
                    world.kafka.up = not world.kafka.up
                case ["redis"]:
                    world.mirror.up = not world.mirror.up
                case ["wipe"]:
                    world.wipe()
                case ["worker"]:
                    world.ask_worker()
                case _:
                    world.settle()
                    world.kafka.log.clear()
                    world.kafka.made += 1
                    # Who decides before a bridge has looked, while Redis is away too, knows of nothing.
                    world.look(0)
        world.settle()
        wanted = {} if world.last is None else {KEY: world.last}
        assert world.mirror.read().in_force() == wanted
        assert world.mirror.read().unpublished == {}
        assert {key: each.decision for key, each in world.kafka.published(SETTINGS).standing.items()} == wanted
        agree(world, halts=world.last is not None and world.last.data is not None)


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
        patch.object(control, "publish", kafka.publish),
        patch.object(control, "published", kafka.published),
        patch.object(control, "there_is", kafka.there_is),
    ):
        yield World(kafka, client, ledger)


@settings(max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.lists(
        st.sampled_from(
            ["halt", "resume", "look 0", "look 1", "start 0", "kafka", "slow", "arrives", "redis", "wipe", "worker"]
        ),
        max_size=16,
    )
)
@example(["kafka", "halt", "worker", "wipe"])
@example(["slow", "halt", "slow", "resume", "arrives"])
@example(["slow", "halt", "slow", "resume", "arrives", "start 0", "start 1"])
@example(["halt", "wipe", "kafka", "resume"])
def test_all_agree_at_the_end_and_on_nothing_older_than_what_kafka_acknowledged(
    there: tuple[Any, Ledger], steps: list[str]
):
    """What Redis alone had may be lost with it; a write that nobody waited for may arrive late."""
    with broken_world(*there) as world:
        tried: list[Decision] = []
        for step in steps:
            tried += world.do(step)
        world.settle()
        stands = world.mirror.read().in_force().get(KEY)
        assert world.mirror.read().unpublished == {}
        in_kafka = world.kafka.published(SETTINGS).standing.get(KEY)
        assert (None if in_kafka is None else in_kafka.decision) == stands
        agree(world, halts=stands is not None and stands.data is not None)
        if world.durable is not None:
            assert stands is not None
            assert not world.durable.follows(stands), "what was acknowledged is not undone by what it followed"
            assert stands in (world.durable, *tried)
