"""The steady load: records of every kind to every topic, at a steady rate, until it is told to stop."""

import json
import random
import threading
import time
from collections import deque
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from confluent_kafka import KafkaException, Producer

from tests.chaos.topics import TOPICS, Topic

#: What a record has its handler do → how often. `sleep` and `later` take seconds, `fail` and `kill` how often.
DOINGS: Final = {
    "ok": 780,
    "sleep 0.005": 60,
    "sleep 0.3": 10,
    "fail 1": 60,
    "fail 2": 20,
    "later 0.5": 10,
    "later 2": 5,
    "dead": 12,
    "fail 99": 8,
    "kill 1": 4,
    "kill 99": 2,
    "undecodable": 10,
    "null": 10,
    "huge": 3,
}
#: Why it dies, where it must; anything else ends as done.
DIES: Final = {"dead": "permanent", "fail 99": "exhausted", "kill 99": "poison", "undecodable": "undecodable"}
KEYS: Final = 25
#: How often a record of a topic with unique names is one of the last ones again, and how many those are.
AGAIN: Final = 0.4
RECENT: Final = 20
Headers = list[tuple[str, str | bytes | None]]
HUGE: Final = 200_000


class Produced(NamedTuple):
    """A record as it is produced."""

    uid: str
    key: bytes | None
    value: bytes | None
    headers: Headers


class Load:
    """Produces from a thread of its own, within its block.

    Parameters: Kafka's own address (the load's network is sound), the prefix of the topics, records a second, a seed;
    other topics, and what their records have handlers do, and how often.
    Attributes: `sent`, how many of each topic were acknowledged.
    """

    def __init__(
        self,
        servers: str,
        prefix: str,
        rate: float,
        seed: int,
        topics: Mapping[str, Topic] = TOPICS,
        doings: Mapping[str, int] = DOINGS,
    ) -> None:
        self._servers, self._prefix, self._rate = servers, prefix, rate
        self._topics, self._doings = topics, doings
        self._draw = random.Random(f"{seed} load")
        self._numbers = dict.fromkeys(self._topics, 0)
        self._recent: dict[str, deque[Produced]] = {name: deque(maxlen=RECENT) for name in self._topics}
        self.acknowledged: dict[str, set[str]] = {name: set() for name in self._topics}
        self.refused: dict[str, int] = dict.fromkeys(self._topics, 0)
        self._producers: dict[str, Producer] = {}
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    @property
    def sent(self) -> int:
        return sum(map(len, self.acknowledged.values()))

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Stop, and wait until Kafka has taken what was produced."""
        self._stop.set()
        self._thread.join(60)
        for producer in set(self._producers.values()):
            producer.flush(60)

    def _run(self) -> None:
        begun, number = time.monotonic(), 0
        names = sorted(self._topics)
        while not self._stop.is_set():
            due = int((time.monotonic() - begun) * self._rate)
            for _ in range(min(due - number, 200)):
                self._produce(self._draw.choice(names))
            number = due
            for producer in set(self._producers.values()):
                producer.poll(0)
            self._stop.wait(0.02)

    def _produce(self, name: str) -> None:
        recent = self._recent[name]
        if self._topics[name].unique and recent and self._draw.random() < AGAIN:
            made = self._draw.choice(recent)
        else:
            self._numbers[name] += 1
            uid = f"{name}.{self._numbers[name]}"
            made = Produced(uid, *self._record(uid, self._topics[name]))
            recent.append(made)
        uid, key, value, headers = made

        def acknowledged(error: Any, record: Any) -> None:
            if error is None:
                self.acknowledged[name].add(uid)
                return
            self.refused[name] += 1
            if not self._topics[name].whole:
                # One that had written before is out of step with a log that lost its end for ever.
                self._producers.pop(name, None)

        try:
            self._producer(name).produce(
                f"{self._prefix}.{name}", value, key, headers=headers, on_delivery=acknowledged
            )
        except (BufferError, KafkaException):
            self.refused[name] += 1

    def _record(self, uid: str, topic: Topic) -> tuple[bytes | None, bytes | None, Headers]:
        said = self._draw.choices(list(self._doings), list(self._doings.values()))[0]
        value: bytes | None = json.dumps({"uid": uid}).encode()
        match said.partition(" ")[0]:
            case "undecodable":
                value = b"{" + bytes([0xFF])
            case "null":
                value = None
            case "huge":
                value = json.dumps({"uid": uid, "huge": "x" * HUGE}).encode()
        key = b"%d" % self._draw.randrange(KEYS) if self._draw.random() < 0.95 else None
        headers: Headers = [("uid", uid.encode()), ("do", said.encode())]
        if len(topic.handlers) > 1:
            headers.append(("who", self._draw.choice(topic.handlers).encode()))
        return key, value, headers

    def _producer(self, name: str) -> Producer:
        if name not in self._producers:
            shared = self._topics[name].whole
            settings: dict[str, Any] = {"bootstrap.servers": self._servers, "log_level": 0, "linger.ms": 5}
            settings |= {"enable.idempotence": True} if shared else {"acks": "all", "message.timeout.ms": 5000}
            made = Producer(settings)
            for each in [each for each in self._topics if self._topics[each].whole] if shared else [name]:
                self._producers[each] = made
        return self._producers[name]
