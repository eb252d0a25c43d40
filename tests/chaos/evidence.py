"""Reads what a run left behind: the records and dead letters that Kafka has, and the handlers' book."""

from pathlib import Path

from confluent_kafka import Message

from tests.chaos.topics import TOPICS
from tests.chaos.verdict import Entry, Happened, Letter, Record, Verdict, judge
from tests.chaos.world import World
from tests.processes import DeadLetter, headers_of


def book(file: Path) -> list[Entry]:
    """All entries of a book."""
    found = []
    for line in file.read_text().splitlines():
        handler, uid, coordinates, outcome, at, pid = line.split("\t")
        found.append(Entry(handler, uid, coordinates, outcome, float(at), int(pid)))
    return found


def record(raw: Message) -> Record:
    """A record of the load."""
    said = {name: (value or b"").decode() for name, value in headers_of(raw)}
    key = raw.key()
    assert isinstance(key, bytes | None)
    return Record(said["uid"], said["do"], said.get("who", ""), key, raw.partition() or 0, raw.offset() or 0)


def letter(dead: DeadLetter) -> Letter:
    """A dead letter of the load."""
    said = {name: (value or b"").decode() for name, value in dead.theirs}
    at = dead.record.timestamp()[1] / 1000
    return Letter(dead.ours["handler"], said["uid"], dead.origin, dead.ours["reason"], at)


def verdicts(world: World, faults: list[Happened]) -> dict[str, Verdict]:
    """What is found of each topic."""
    entries = book(world.book)
    return {
        name: judge(
            topic,
            [record(raw) for raw in world.records(name)],
            entries,
            [letter(dead) for dead in world.dead_letters(name)],
            faults,
        )
        for name, topic in TOPICS.items()
    }
