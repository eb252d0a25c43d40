"""Reads what a run left behind: the records and dead letters that Kafka has, and the handlers' book."""

from pathlib import Path

from confluent_kafka import Message

from tests.chaos.topics import OUT, TOPICS
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


def unsent(world: World) -> tuple[list[str], int]:
    """What is wrong with what `sends` has sent, and how much of it came more than once, with the same id.

    Each of its records that is done has sent two messages; what the old version handled has sent nothing.
    """
    ids: dict[str, set[str]] = {}
    repeats = 0
    for raw in world.records(OUT):
        value, key = raw.value(), raw.key()
        assert isinstance(value, bytes | None)
        assert isinstance(key, bytes | None)
        (message_id,) = {(said or b"").decode() for name, said in headers_of(raw) if name == "message_id"}
        sent = ids.setdefault(f"key {(key or b'').decode()}" if value is None else value.decode(), set())
        repeats += message_id in sent
        sent.add(message_id)
    uids = _done_and_sent([entry for entry in book(world.book) if entry.handler == "sends"])
    counts = {uid: (len(ids.get(uid, ())), len(ids.get(f"key {uid}", ()))) for uid in uids}
    wrong = [f"{uid} was done and has sent {count}" for uid, count in sorted(counts.items()) if count != (1, 1)]
    return wrong, repeats


def _done_and_sent(entries: list[Entry]) -> set[str]:
    """What was done by runs that sent, and by no run of the old version, which cannot."""
    sent = {(entry.uid, entry.pid) for entry in entries if entry.outcome == "sent"}
    done = {(entry.uid, entry.pid) for entry in entries if entry.outcome == "done"}
    return {uid for uid, _ in done} - {uid for uid, _ in done - sent}


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
