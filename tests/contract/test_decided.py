"""In whatever order Kafka, Redis and bridges come and go, what was decided last stands everywhere at the end."""

from collections.abc import Iterator
from contextlib import closing
from typing import Any
from unittest.mock import patch

import pytest
import redis
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from bridge.errors import KafkaUnavailable, LedgerUnavailable, NotDecided
from bridge.ledger import Ledger
from bridge.ledger.control import Mirror, Mirrored
from bridge.ledger.deciding import decide, standing
from bridge.metrics import BridgeMetrics
from bridge.records.control import Decision, Standing, halt_key
from bridge.settings import EnvironmentSettings, FileSettings, Settings
from bridge.topics import control
from bridge.topics.control import Published
from bridge.upkeep.decided import Decided, Publishing

KEY = halt_key("orders")
SETTINGS = Settings(FileSettings(), EnvironmentSettings(), "", {})


class Kafka:
    """The control topic, and whether it can be reached."""

    def __init__(self) -> None:
        self.log: list[Decision] = []
        self.made = 0
        self.up = True

    def check(self) -> None:
        if not self.up:
            raise KafkaUnavailable("Kafka does not answer.")

    def there_is(self, settings: Settings) -> bool:
        self.check()
        return True

    def publish(self, settings: Settings, decision: Decision) -> int:
        self.check()
        self.log.append(decision)
        return len(self.log) - 1

    def published(self, settings: Settings) -> Published:
        self.check()
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


class Ungated:
    """A broker without gates."""

    def shut(self) -> frozenset[str]:
        return frozenset()

    def bring_in_order(self, shut: Any, halts: Any) -> None:
        """Nothing to bring."""


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
        self.last: Decision | None = None
        for number in (0, 1):
            self.start(number)

    def start(self, number: int) -> None:
        made: Any = Decided(SETTINGS, self.mirror, BridgeMetrics(), Ungated(), follower=Reader(self.kafka))  # type: ignore[arg-type]
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
        self.last = outcome.decision

    def look(self, number: int) -> None:
        try:
            self.bridges[number].look()
        except LedgerUnavailable:
            return

    def settle(self) -> None:
        self.kafka.up = self.mirror.up = True
        for _ in range(4):
            for number in (0, 1):
                self.look(number)


@pytest.fixture
def there(redis_url: str) -> Iterator[tuple[Any, Ledger]]:
    with redis.Redis.from_url(redis_url) as client, closing(Ledger(redis_url, "", "bridge")) as ledger:
        yield client, ledger


STEPS = st.lists(
    st.sampled_from(["halt", "resume", "look 0", "look 1", "start 0", "kafka", "redis", "wipe", "topic made again"]),
    max_size=14,
)


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
                    world.client.flushdb()
                case _:
                    world.settle()
                    world.kafka.log.clear()
                    world.kafka.made += 1
        world.settle()
        wanted = {} if world.last is None else {KEY: world.last}
        assert world.mirror.read().in_force() == wanted
        assert world.mirror.read().unpublished == {}
        assert {key: each.decision for key, each in world.kafka.published(SETTINGS).standing.items()} == wanted
        halted = world.last is not None and world.last.data is not None
        assert [list(bridge.halts) for bridge in world.bridges] == [["orders"] if halted else []] * 2
