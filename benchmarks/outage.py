"""An outage of what one of two handlers needs, with a breaker and without: what dies, what is spent, who is held up.

An hour in 15 s: retries last 5 s, as the default's 20 minutes to an hour. Probes and the ramp are as ever.
"""

import statistics
import time
from pathlib import Path

from confluent_kafka import Consumer, Producer, TopicPartition

from benchmarks.stack import Stack, stack
from benchmarks.ways import WORKER, group

#: Seconds before the outage, of it, and after it; records a second of each topic.
BEFORE, OUTAGE, AFTER = 3, 15, 20
CHARGES, MAILS = 20, 20


def main() -> None:
    """One round of each."""
    with stack() as on:
        for breaker in ("1", "0"):
            on.redis.flushall()
            on.kafka.create_topics(f"charges{breaker}", f"mails{breaker}", partitions=2)
            _round(on, breaker)


def _round(on: Stack, breaker: str) -> None:
    notes = on.folder / f"notes{breaker}"
    notes.touch()
    down = Path(f"{notes}.down")
    name = group()
    environment = {
        "BRIDGE_GROUP": name,
        "HANDLERS": "benchmarks.needy",
        "BREAKER": breaker,
        "NOTES": str(notes),
    }
    with on.process(*WORKER, **environment), on.process("bridge", **environment):
        producer = Producer({"bootstrap.servers": on.kafka.bootstrap_servers})
        _send(producer, breaker, time.time())
        producer.flush(10)
        deadline = time.time() + 40
        while not notes.read_text() and time.time() < deadline:
            time.sleep(0.2)
        began = time.time()
        ended = began + BEFORE + OUTAGE
        while (now := time.time()) < ended + AFTER:
            if now >= ended:
                down.unlink(missing_ok=True)
            elif now >= began + BEFORE:
                down.touch()
            _send(producer, breaker, now)
            time.sleep(max(0.0, 0.1 - (time.time() - now)))
        producer.flush(10)
        time.sleep(5)
    _report(on, breaker, notes, ended)


def _send(producer: Producer, breaker: str, now: float) -> None:
    """A tenth of a second's records."""
    for topic, rate in (("charges", CHARGES), ("mails", MAILS)):
        for _ in range(rate // 10):
            producer.produce(topic + breaker, str(now).encode())
    producer.poll(0)


def _report(on: Stack, breaker: str, notes: Path, ended: float) -> None:
    rows = [line.split() for line in notes.read_text().splitlines()]
    charges = [(float(sent_at), float(at), int(failed)) for name, sent_at, at, failed in rows if name == "charge"]
    late = sorted(float(at) - float(sent_at) for name, sent_at, at, _ in rows if name == "mail")
    waited = [at - ended for sent_at, at, _ in charges if sent_at < ended <= at]
    live = [at for sent_at, at, _ in charges if at > ended and at - sent_at < 1.0]
    which = "with a breaker" if breaker == "1" else "without"
    spent, after = sum(failed for *_, failed in charges), max(waited, default=0.0)
    p50, p99 = statistics.median(late) * 1000, late[int(len(late) * 0.99)] * 1000
    print(
        f"outage: {which}: {_dead(on, breaker)} dead, {len(charges)} done; attempts that these spent: {spent}; "
        f"all that waited done {after:.1f} s after its end, live ones on time from "
        f"{min(live, default=ended) - ended:.1f} s on; mails p50 {p50:.0f} ms, p99 {p99:.0f} ms late",
        flush=True,
    )


def _dead(on: Stack, breaker: str) -> int:
    """How many dead letters there are."""
    topic = f"charges{breaker}.dlq"
    reader = Consumer({"bootstrap.servers": on.kafka.bootstrap_servers, "group.id": "nobody"})
    try:
        partitions = reader.list_topics(topic, timeout=10).topics[topic].partitions
        return sum(reader.get_watermark_offsets(TopicPartition(topic, each), timeout=10)[1] for each in partitions)
    finally:
        reader.close()
