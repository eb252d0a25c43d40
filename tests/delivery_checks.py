"""A stack whose topics' settings a test chooses, and what must hold at its end, whatever happened to it."""

import json
import re
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import Any

from confluent_kafka import TopicCollection, TopicPartition
from confluent_kafka.admin import AdminClient

from bridge.formats.dead_letter_record import DeadLetterRecord, read_dead_letter
from bridge.formats.replay_record import replay_headers
from bridge.ledger import Account, Ledger
from tests.processes import Process, Run, Stack, eventually

AUDITED = ("done", "handed", "parked", "dead", "discarded", "open", "unaccounted")


def choose(stack: Stack, topics: dict[str, dict[str, Any]], **settings: Any) -> None:
    """Set `kafka_topics` (names without the prefix) and other settings of celeryconfig for all processes of a stack."""
    stack.environ |= {
        "CELERY_CONFIG_MODULE": "tests.handlers.chosen",
        "HANDLERS": "tests.handlers.fates",
        "TEST_TOPICS": json.dumps(topics),
        "TEST_SETTINGS": json.dumps(settings),
    }


def command(stack: Stack, *words: str, code: int | None = 0) -> str:
    """Run `python -m bridge …` to its end; return what it printed. `code` is the exit code that it must have."""
    process: Process = stack.start("command", sys.executable, "-m", "bridge", *words)
    found = process.ends(120)
    assert code is None or found == code, f"bridge {' '.join(words)} ended with {found}:\n{process.text}"
    return process.text


def json_of(stack: Stack, *words: str, code: int | None = 0) -> Any:
    """The JSON that a command printed."""
    printed = command(stack, *words, "--json", code=code)
    return json_in(printed)


def json_in(printed: str) -> Any:
    """The JSON in what a command printed: log lines may stand before it, and notes behind."""
    start = re.search(r"^(?:\{|\[(?!\d{4}-))", printed, re.MULTILINE)
    assert start is not None, printed
    return json.JSONDecoder().raw_decode(printed, start.start())[0]


def audit(stack: Stack, topic: str = "orders", code: int | None = 0) -> dict[str, Any]:
    """`bridge audit --json`; it must find nothing unaccounted for, unless `code` says so."""
    found: dict[str, Any] = json_of(stack, "audit", stack.topic(topic), code=code)
    assert set(AUDITED) <= found.keys()
    return found


def end(stack: Stack, topic: str) -> int:
    """The sum of the end offsets of a topic."""
    name = stack.topic(topic)
    with stack._reader("nobody") as reader:
        partitions = reader.list_topics(name, timeout=10).topics[name].partitions
        return sum(reader.get_watermark_offsets(TopicPartition(name, n), timeout=10)[1] for n in partitions)


def wait_until_settled(stack: Stack, topic: str, within: float = 60) -> None:
    """With commit="completion" all that is committed is settled."""
    wanted = end(stack, topic)
    eventually(lambda: stack.committed(topic) == wanted, within, f"{wanted} offsets of {topic} are committed")


def all_settled(
    stack: Stack, topic: str, *, done: int, dead: int = 0, letters: int | None = None, within: float = 60
) -> dict[str, Any]:
    """Wait until all is settled, and audit: nothing is open, handed or lost, and each dead letter is there once.

    `letters` is how many dead letters there are, where not each dead delivery has one (`sequence`).
    """
    wait_until_settled(stack, topic, within)
    found = audit(stack, topic)
    assert {name: found[name] for name in AUDITED} == dict.fromkeys(AUDITED, 0) | {"done": done, "dead": dead}, found
    there = [(letter.origin, letter.ours["handler"]) for letter in stack.dead_letters(topic)]
    assert len(there) == len(set(there)) == (dead if letters is None else letters)
    return found


def twice(stack: Stack, handler: str = "") -> dict[str, int]:
    """What was done more than once: coordinates and how often."""
    return {where: times for where, times in Counter(stack.done(handler)).items() if times > 1}


def in_order(stack: Stack, handler: str = "orders", by: str = "key") -> None:
    """Each key's (or partition's) messages were done in the order of their offsets; one that ran twice counts the
    first time: its later run began before its fate was known."""
    lanes: dict[Any, list[int]] = {}
    seen: set[str] = set()
    for run in stack.runs(handler):
        if run.outcome == "done" and run.coordinates not in seen:
            seen.add(run.coordinates)
            lanes.setdefault(lane(run, by), []).append(offset(run))
    for name, offsets in lanes.items():
        assert offsets == sorted(offsets), f"{name}: {offsets}"


def lane(run: Run, by: str) -> Any:
    """What a run must be in order with."""
    place = run.coordinates.rpartition("-")[0]
    return place if by == "partition" else (place, run.key)


def offset(run: Run) -> int:
    return int(run.coordinates.rpartition("-")[2])


def send_back(stack: Stack, topic: str, letter: DeadLetterRecord, value: bytes | None = None, **changes: Any) -> str:
    """Send a dead letter back through the replay topic, its value mended or not; return where it lies there."""
    said = {"number": letter.number, "runs": letter.runs, "attempts": letter.attempts, **changes}
    headers = replay_headers(letter.origin, letter.theirs, timestamp=letter.timestamp, **said)
    value = letter.value if value is None else value
    (place,) = stack.produce(f"{topic}.replay", value, key=letter.key, headers=headers)
    return place


def letters(stack: Stack, topic: str, count: int, within: float = 30) -> list[DeadLetterRecord]:
    """Wait until a topic has so many dead letters, and read each in full."""
    return [found for each in stack.dead(topic, count, within) if (found := read_dead_letter(each.record)) is not None]


def delete_topic(stack: Stack, name: str) -> None:
    """Delete a topic; it may be seen for a moment longer."""
    admin = AdminClient({"bootstrap.servers": stack.kafka})
    (deleted,) = admin.delete_topics([stack.topic(name)]).values()
    deleted.result(30)


@contextmanager
def ledger(stack: Stack, topic: str, partition: int = 0) -> Iterator[tuple[Ledger, Account]]:
    """The stack's ledger, and the account there of the handler that has the topic's name."""
    admin = AdminClient({"bootstrap.servers": stack.kafka})
    name = stack.topic(topic)
    described = admin.describe_topics(TopicCollection([name]))[name].result(10)
    cluster = admin.describe_cluster().result(10).cluster_id
    with closing(Ledger(stack.broker, cluster, stack.environ["BRIDGE_GROUP"])) as found:
        yield found, Account(topic, name, str(described.topic_id), partition)
