"""Tens of thousands of records as nobody should write them: each ends once, and all that is served goes on.

CHAOS_SEED chooses others, CHAOS_BAD how many.
"""

import os
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Message as Record
from confluent_kafka import Producer

from tests.chaos.bad_input import FOREIGN, LIMIT, Bad, foreign, huge, records
from tests.chaos.evidence import book
from tests.delivery_checks import audit, choose, end, wait_until_settled
from tests.processes import DeadLetter, Stack, headers_of
from tests.raw_producer import produce_raw

SEED = int(os.environ.get("CHAOS_SEED") or 1)
COUNT = int(os.environ.get("CHAOS_BAD") or 20_000)
HUGE, UNREADABLE, STRANGERS = 16, 12, 200
OURS = ("json.dlq", "bytes.dlq", "json.retry.1s", "json.replay")
HANDLERS = {"bytes": ("raw",), "json": ("anything", "typed")}
PREFIX = "tests.handlers.bad."

pytestmark = [pytest.mark.chaos, pytest.mark.timeout(600)]


class Source:
    """Produces what is bad, and knows what each record of a topic was."""

    def __init__(self, stack: Stack) -> None:
        self._stack = stack
        large = {"message.max.bytes": 2 * LIMIT, "queue.buffering.max.kbytes": 1 << 20}
        self._producer = Producer({"bootstrap.servers": stack.kafka, "linger.ms": 5, "log_level": 0, **large})
        self.labels: dict[str, str] = {}
        self.refused: Counter[str] = Counter()

    def produce(self, topic: str, bad: Bad) -> None:
        def acknowledged(error: Any, record: Record) -> None:
            if error is not None:
                self.refused[f"{bad.label}: {error.name()}"] += 1
                return
            self.labels[f"{record.topic()}-{record.partition()}-{record.offset()}"] = bad.label

        while True:
            try:
                self._producer.produce(
                    self._stack.topic(topic), bad.value, bad.key, headers=list(bad.headers), on_delivery=acknowledged
                )
                self._producer.poll(0)
                return
            except BufferError:
                self._producer.flush(30)

    def flush(self) -> None:
        assert self._producer.flush(60) == 0


def theirs(letter: DeadLetter) -> list[tuple[str, bytes | None]]:
    """The producer's headers, which may have ours among them: ours begin where `origin_topic` stands last."""
    names = [name for name, _ in letter.headers]
    return letter.headers[: len(names) - 1 - names[::-1].index("origin_topic")]


def test_whatever_is_written_to_a_topic_each_record_ends_once(
    kafka: Any, redis_url: str, topic_prefix: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with capsys.disabled(), Stack(kafka.bootstrap_servers, redis_url, topic_prefix, tmp_path, "") as stack:
        run(stack, tmp_path / "book")


def run(stack: Stack, file: Path) -> None:
    file.touch()
    choose(stack, {name: {"commit": "completion"} for name in HANDLERS}, kafka_park_after=1)
    stack.environ |= {"HANDLERS": "tests.handlers.bad", "BOOK": str(file)}
    stack.make_topics(*HANDLERS, partitions=3)
    processes = [stack.bridge(), stack.worker(), stack.worker()]
    source = Source(stack)
    for number, bad in enumerate([*huge(SEED, HUGE), *records(SEED, COUNT)]):
        # Of what is JSON's most dies, and a dead letter takes a hundred times as long as a record that is done.
        source.produce("bytes" if number % 4 else "json", bad)
    for ours in OURS:
        assert stack.has_topic(ours)
        for bad in foreign(SEED, STRANGERS, stack.queue):
            source.produce(ours, bad)
    source.flush()
    for topic in HANDLERS:
        for number in range(UNREADABLE):
            name = b"\xff\xfe%d" % number
            produce_raw(stack.kafka, stack.topic(topic), b"unreadable", b"{}", [(name, b"1"), (b"handler", b"raw")])
    for topic in (*HANDLERS, "json.retry.1s", "json.replay"):
        wait_until_settled(stack, topic, 300)
    assert [process.exit_code for process in processes] == [None] * len(processes)
    ends: Counter[str] = Counter()
    for topic, handlers in HANDLERS.items():
        ends += counted(stack, topic, tuple(PREFIX + name for name in handlers), source, file)
    # What others wrote where our retries lie was run by nobody.
    assert len(book(file)) == sum(count for words, count in ends.items() if words.endswith(": done"))
    print(f"\nseed {SEED}: {COUNT} records and {sum(ends.values())} ends; refused by Kafka: {dict(source.refused)}")
    print(*(f"  {count:6}  {words}" for words, count in sorted(ends.items())), sep="\n", flush=True)


def counted(stack: Stack, topic: str, handlers: tuple[str, ...], source: Source, file: Path) -> Counter[str]:
    """How each delivery of a topic ended, by the book and by the dead letters; and that the ledger says the same."""
    done = Counter(
        (PREFIX + entry.handler, entry.coordinates)
        for entry in book(file)
        if entry.coordinates.startswith(stack.topic(topic) + "-")
    )
    letters: dict[tuple[str, str], list[DeadLetter]] = {}
    for letter in stack.dead_letters(topic):
        if letter.record.key() != FOREIGN:
            # Where a name occurs twice the last counts.
            ours = {name: (value or b"").decode("ascii", "replace") for name, value in letter.headers}
            place = "{origin_topic}-{origin_partition}-{origin_offset}".format(**ours)
            letters.setdefault((ours["handler"], place), []).append(letter)
    ends: Counter[str] = Counter()
    originals = stack.records(topic)
    assert len(originals) == end(stack, topic)
    for record in originals:
        where = f"{record.topic()}-{record.partition()}-{record.offset()}"
        for handler in handlers:
            found = letters.get((handler, where), [])
            assert done[handler, where] + len(found) == 1, (where, handler, done[handler, where], len(found))
            for letter in found:
                assert (letter.record.key(), letter.record.value()) == (record.key(), record.value())
                if record.key() != b"unreadable":
                    assert theirs(letter) == headers_of(record)
            reason = (dict(found[0].headers)["reason"] or b"").decode() if found else "done"
            ends[f"{source.labels.get(where, 'unreadable')} → {handler.removeprefix(PREFIX)}: {reason}"] += 1
    report = audit(stack, topic)
    assert report["clean"]
    assert (report["done"], report["dead"]) == (sum(done.values()), sum(map(len, letters.values())))
    assert report["done"] + report["dead"] == len(originals) * len(handlers)
    return ends
