"""The ways that are compared: raw Celery on kombu's own transport, and ours; what is not named is at its default."""

import itertools
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

from confluent_kafka import Consumer, TopicPartition

from benchmarks.rates import clock_from_first
from benchmarks.stack import PARTITIONS, Stack

WORKER: Final = ("celery", "-A", "tasks", "worker", "-c", "2")
RAW_WORKER: Final = ("celery", "-A", "benchmarks.raw", "worker", "-c", "2")

#: How many messages the fast ways are measured with.
MANY: Final = int(os.environ.get("MANY", "200000"))

_number = itertools.count()


def group() -> str:
    """A consumer group that nobody was given before."""
    return f"bench-{next(_number)}"


def raw(
    count: int, task: str = "noop", worker: tuple[str, ...] = RAW_WORKER, **environment: str
) -> Callable[[Stack], float]:
    """Raw Celery: its messages lie in the queue when its worker starts."""

    def rate(on: Stack) -> float:
        marks = on.marks(count)
        with on.process("benchmarks.fill_raw", str(count), task) as filling:
            filling.wait(300)
        with on.process(*worker, CELERY_CONFIG_MODULE="", **environment):
            return count / clock_from_first(marks.handled, count)

    return rate


def ours(
    topic: str, count: int, worker: tuple[str, ...] = WORKER, storm: bool = False, **environment: str
) -> Callable[[Stack], float]:
    """Bridge and worker; of a storm the dead letters count too."""

    def rate(on: Stack) -> float:
        marks, before = on.marks(count), letters(on, topic) if storm else 0
        dead = count // 1000 if storm else 0

        def ended() -> int:
            handled = marks.handled()
            # Dead letters are only asked for at the end: asking costs the broker.
            return handled + (letters(on, topic) - before if dead and handled == count - dead else 0)

        environ = {"BRIDGE_GROUP": group(), "TOPIC": topic, **environment}
        with on.process(*worker, **environ), on.process("bridge", **environ):
            return count / clock_from_first(ended, count)

    return rate


def letters(on: Stack, topic: str) -> int:
    """How many dead letters there are; none where the topic does not exist yet."""
    client = Consumer({"bootstrap.servers": on.kafka.bootstrap_servers, "group.id": "count"})
    try:
        name = f"{topic}.dlq"
        if client.list_topics(name, timeout=10).topics[name].error is not None:
            return 0
        ends = (client.get_watermark_offsets(TopicPartition(name, number), timeout=5) for number in range(PARTITIONS))
        return sum(end for _, end in ends)
    finally:
        client.close()


@contextmanager
def somebody_listening(on: Stack) -> Iterator[None]:
    """A receiver of events that keeps their state, as Flower does, for the length of the block."""
    with on.process("benchmarks.listen"):
        while not any(int(one["psub"]) for one in on.redis.client_list(_type="pubsub")):
            time.sleep(0.05)
        yield


def heard(rate: Callable[[Stack], float]) -> Callable[[Stack], float]:
    """The same way while somebody listens to events."""

    def listened_to(on: Stack) -> float:
        with somebody_listening(on):
            return rate(on)

    return listened_to
