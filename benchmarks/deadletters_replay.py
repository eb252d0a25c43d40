"""Dead letters sent back by `bridge deadletters replay --wait`, with no option set, beside a worker that has a no-op.

How fast they are sent, and how fast they are done and known, beside the hand-off's own rate: that of as many records of
the same handler that are simply there. How much memory the command takes for few and for many, and how long after its
handler's end each outcome is known.
"""

import json
import os
import statistics
import subprocess
import sys
import time

from confluent_kafka import TopicCollection
from confluent_kafka.admin import AdminClient
from sqlalchemy import func, select

from benchmarks.deadletters_recording import database
from benchmarks.stack import PARTITIONS, ROOT, Stack, stack
from benchmarks.ways import WORKER, ours
from bridge.deadletters.db.database import Database
from bridge.deadletters.db.kind_rows import IdCache
from bridge.deadletters.db.letter_writer import LetterWriter
from bridge.deadletters.db.table_definitions import items
from bridge.deadletters.model.failure_group import FailureGroup
from bridge.deadletters.model.stored_letter import LetterIdentity, LetterKind, StoredLetter
from bridge.formats.delivery import Attempts

COUNTS = [int(count) for count in os.environ.get("REPLAYED", "10000 100000").split()]
WHICH = os.environ.get("RECORDING", "sqlite postgresql").split()
#: What is to be reached: letters a second that are sent, and seconds from an end until it is known.
WANTED, KNOWN_WITHIN = 5_000, 5.0
TOPIC = "quiet"
GROUP = "measured"


def main() -> None:
    """Each database, for few and for many letters, on servers of their own."""
    for count in COUNTS:
        own = handed_off(count)
        print(f"{count:,} records handed off and run: {own:,.0f}/s", flush=True)
        for name in WHICH:
            with stack() as on, database(on, name) as url:
                on.kafka.create_topics(TOPIC, f"{TOPIC}.replay", f"{TOPIC}.dlq", partitions=PARTITIONS)
                bury(on, url, count)
                measure(on, name, url, count, own)


def handed_off(count: int) -> float:
    """The hand-off's own rate: of records as large as the letters, which are there when bridge and worker start."""
    with stack() as on:
        on.kafka.create_topics(TOPIC, partitions=PARTITIONS)
        on.fill(TOPIC, count, size=1000)
        return ours(TOPIC, count)(on)


def bury(on: Stack, url: str, count: int) -> None:
    """Letters of deliveries that died, as a recorder has them."""
    admin = AdminClient({"bootstrap.servers": on.kafka.bootstrap_servers})
    topic_id = str(admin.describe_topics(TopicCollection([TOPIC]))[TOPIC].result(10).topic_id)
    opened, ids = Database(url), IdCache()
    opened.migrate()
    for start in range(0, count, 1000):
        with opened.writing() as connection:
            made = [letter(number, topic_id) for number in range(start, min(count, start + 1000))]
            LetterWriter(connection, ids, int(time.time() * 1000), 1_000_000).record(made)
        ids.keep()
    opened.close()


def letter(number: int, topic_id: str) -> StoredLetter:
    """One with a value of 1 kB."""
    handler = f"benchmarks.{TOPIC}"
    kind = LetterKind(
        FailureGroup(handler, "builtins.ValueError", "orders/bank.py:pay"), TOPIC, "bridge", GROUP, "exhausted", "1"
    )
    partition, offset = number % PARTITIONS, number // PARTITIONS
    return StoredLetter(
        identity=LetterIdentity(GROUP, TOPIC, topic_id, partition, offset, handler),
        kind=kind,
        key=b"%d" % (number % 1000),
        value=b"%-1000d" % number,
        headers=(("trace", b"%032d" % number),),
        timestamp=1_000,
        number=0,
        runs=13,
        attempts=Attempts(13),
        error_message=f"order {number}: declined",
        traceback="",
        first_failed_at=1_000,
        failed_at=2_000 + number,
        topic=f"{TOPIC}.dlq",
        partition=partition,
        offset=offset,
    )


def measure(on: Stack, name: str, url: str, count: int, own: float) -> None:
    """One replay of all.

    Parameters:
        own: the hand-off's own rate.
    """
    marks = on.marks(count)
    common = {"DEADLETTERS_DATABASE_URL": url, "BRIDGE_GROUP": GROUP, "TOPIC": TOPIC}
    with on.process(*WORKER, **common), on.process("bridge", **common):
        command = [sys.executable, "-m", "bridge", "deadletters", "replay", "--yes", "--wait", "--json"]
        output = on.folder / "replayed"
        with output.open("wb") as file:
            started = subprocess.Popen(command, env=on.environment(**common), cwd=ROOT, stdout=file)
            memory = watched(started)
    found = json.loads(output.read_text())
    assert found["outcomes"] == {"done": count}, found
    assert marks.more_than_once() == []
    tell(name, url, count, own, memory, [marks.at(number) for number in range(count)])


def watched(started: "subprocess.Popen[bytes]") -> int:
    """A process's highest memory in MB, at its end."""
    memory = 0
    while started.poll() is None:
        try:
            with open(f"/proc/{started.pid}/status") as status:
                peak = next((line for line in status if line.startswith("VmHWM")), "VmHWM: 0 kB")
            memory = max(memory, int(peak.split()[1]) // 1024)
        except FileNotFoundError:
            break
        time.sleep(0.05)
    return memory


def tell(name: str, url: str, count: int, own: float, memory: int, ran_at: list[float]) -> None:
    """What was measured."""
    opened = Database(url)
    with opened.reading() as connection:
        first, last = connection.execute(select(func.min(items.c.sent_at), func.max(items.c.sent_at))).one()
        known = connection.execute(select(items.c.sent_partition, items.c.ended_at).order_by(items.c.position)).all()
    opened.close()
    # Positions go by offset, then partition: as the numbers do.
    late = [row.ended_at / 1000 - at for row, at in zip(known, ran_at, strict=True)]
    sent = count / max(0.001, (last - first) / 1000)
    through = count / (max(row.ended_at for row in known) - first) * 1000
    slow = f"; WANTED {min(WANTED, own):,.0f}/s" if min(sent, through) < min(WANTED, own) else ""
    unknown = f"; WANTED {KNOWN_WITHIN:g} s" if max(late) > KNOWN_WITHIN else ""
    print(
        f"replay of {count:,} from {name}: sent {sent:,.0f}/s, done and known {through:,.0f}/s{slow}; "
        f"the command takes {memory} MB; its outcome is known {statistics.median(late):.1f} s after the handler's end, "
        f"the last {max(late):.1f} s{unknown}",
        flush=True,
    )


if __name__ == "__main__":
    main()
