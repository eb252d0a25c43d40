"""A sample of the records that the handler of some dead letters has handled, read from Kafka when it is asked for.

Nothing is kept for it while records are handled: Kafka still has them, and the ledger knows which are done.
"""

import time
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Final, NamedTuple

from bridge.deadletters.db import letter_rows
from bridge.deadletters.db.database import Database
from bridge.deadletters.db.letter_payload import read_letter_standings
from bridge.deadletters.replay.kafka_lookup import read_topic_id
from bridge.deadletters.replay.ledger_fates import LedgerFates
from bridge.errors import KafkaUnavailable, LedgerUnavailable
from bridge.formats.delivery_identity import Origin
from bridge.kafka.clients import Record
from bridge.kafka.partition_offsets import Extent, find_offsets_at, read_extents
from bridge.kafka.record_reader import RecordPicker
from bridge.ledger import Fate
from bridge.settings import Settings

#: Most records, bytes of values and seconds of reading for a sample, and most topics and partitions of each.
MOST_RECORDS: Final = 2_000
MOST_BYTES: Final = 20 * 2**20
MOST_SECONDS: Final = 10.0
MOST_TOPICS: Final = 5
MOST_PARTITIONS: Final = 100
#: The moments at which records are read, between the oldest and the newest of the letters.
MOMENTS: Final = 5


class HandledSample(NamedTuple):
    """A sample of handled records.

    Attributes:
        records: the records that the handler has done, and of which there is no dead letter.
        read: the number of records that were read.
        silent: why there is no sample, or why it is cut short; empty: neither.
    """

    records: Sequence[Record] = ()
    read: int = 0
    silent: str = ""


def choose_moments(times: Iterable[int]) -> list[int]:
    """Return at most `MOMENTS` of these times (ms), evenly chosen, with the first and the last (pure)."""
    ordered = sorted(set(times))
    if len(ordered) <= MOMENTS:
        return ordered
    return [ordered[number * (len(ordered) - 1) // (MOMENTS - 1)] for number in range(MOMENTS)]


def choose_partitions(extents: Sequence[Extent], having: frozenset[int]) -> list[Extent]:
    """Return at most `MOST_PARTITIONS` partitions that are not empty: those with letters, the others evenly (pure)."""
    full = [each for each in extents if not each.is_empty]
    chosen = [each for each in full if each.partition in having][:MOST_PARTITIONS]
    others = [each for each in full if each.partition not in having]
    room = min(MOST_PARTITIONS - len(chosen), len(others))
    return chosen + [others[number * len(others) // room] for number in range(room)]


def choose_offsets(extents: Sequence[Extent], at: Mapping[int, int], width: int) -> dict[int, range]:
    """Return so many offsets of each partition from its offset at a moment on, or the last before the end (pure)."""
    found = {}
    for each in extents:
        start = max(each.first, min(at[each.partition], each.end - width))
        found[each.partition] = range(start, min(start + width, each.end))
    return found


@dataclass
class _Reading:
    """The records that were read so far, and what is left to read."""

    give_up: float = field(default_factory=lambda: time.monotonic() + MOST_SECONDS)
    bytes_left: int = MOST_BYTES
    records: dict[tuple[str, int, int], Record] = field(default_factory=dict)

    def add(self, record: Record) -> None:
        """Add a record that was read."""
        self.bytes_left -= len(record.value() or b"")
        self.records[record.topic() or "", record.partition() or 0, record.offset() or 0] = record
        self.require_room()

    def require_room(self) -> None:
        """Require that there is time and room for more.

        Raises:
            TimeoutError: there is not.
        """
        if self.bytes_left < 0 or time.monotonic() > self.give_up:
            raise TimeoutError


@dataclass(frozen=True)
class HandledRecords:
    """The handled records beside dead letters. Raises DeskUnavailable if the database does not answer."""

    settings: Settings
    database: Database

    def find_sample(self, letter_ids: Sequence[int], times: Iterable[int]) -> HandledSample:
        """Return a sample of what the handler of these letters has handled of their topics, at the time of the letters.

        All partitions are read alike, so that a partition can be what sets the letters apart. A record whose letter was
        replayed since is no success of the code that failed: what has or had a letter is left out.

        Parameters:
            letter_ids: letters of one handler.
            times: when their records were produced, ms since the epoch.
        """
        with self.database.reading() as connection:
            standings = read_letter_standings(connection, letter_ids)
        origins = [each.delivery for each in standings.values() if each.is_ours and each.delivery.topic_id]
        moments = choose_moments(times)
        if not origins or not moments:
            return HandledSample(
                silent="These letters do not tell whose deliveries they are, so handled records are not known."
            )
        if self.settings.ledger_url is None:
            return HandledSample(silent="Handled records are not known: no ledger is set, and the broker is no Redis.")
        reading = _Reading()
        try:
            silent = self._read(origins, moments, reading)
            done = self._keep_done(origins, reading)
        except (KafkaUnavailable, LedgerUnavailable) as error:
            return HandledSample(read=len(reading.records), silent=str(error))
        return HandledSample(done, len(reading.records), silent)

    def _read(self, origins: Sequence[Origin], moments: Sequence[int], reading: _Reading) -> str:
        topics = [*dict.fromkeys(origin.topic for origin in origins)][:MOST_TOPICS]
        with suppress(TimeoutError):
            for topic in topics:
                having = frozenset(origin.partition for origin in origins if origin.topic == topic)
                extents = choose_partitions(read_extents(self.settings, [topic]), having)
                if not extents:
                    continue
                width = max(1, MOST_RECORDS // (len(topics) * len(moments) * len(extents)))
                with RecordPicker(self.settings, topic) as picker:
                    for moment in moments:
                        at = datetime.fromtimestamp(moment / 1000, UTC).isoformat()
                        wanted = choose_offsets(extents, find_offsets_at(self.settings, extents, at), width)
                        for record in picker.records(wanted, reading.require_room):
                            reading.add(record)
            return ""
        return f"The reading of Kafka was ended after {MOST_SECONDS:g} s or {MOST_BYTES // 2**20} MiB."

    def _keep_done(self, origins: Sequence[Origin], reading: _Reading) -> list[Record]:
        """Return the records that the handler has done and that have no letter."""
        # A topic that was made again has other records at the same offsets: only those of today's log are asked for.
        logs = {topic: read_topic_id(self.settings, topic) for topic in {place[0] for place in reading.records}}
        whose = {(origin.topic, origin.topic_id): origin for origin in origins}
        asked: dict[Origin, Record] = {}
        for (topic, partition, offset), record in reading.records.items():
            if (one := whose.get((topic, logs[topic]))) is not None:
                asked[one._replace(partition=partition, offset=offset)] = record
        with LedgerFates.opened(self.settings) as ledgers:
            fates = ledgers.read_fates([*asked])
        done = {origin: asked[origin] for origin, fate in zip(asked, fates, strict=True) if fate is Fate.DONE}
        places: dict[str, list[tuple[int, int]]] = defaultdict(list)
        for origin in done:
            places[origin.topic].append((origin.partition, origin.offset))
        with self.database.reading() as connection:
            recorded = {
                (topic, *place)
                for topic, some in places.items()
                for place in letter_rows.find_recorded_places(connection, topic, origins[0].handler, some)
            }
        return [record for origin, record in done.items() if (origin.topic, *origin[2:4]) not in recorded]
