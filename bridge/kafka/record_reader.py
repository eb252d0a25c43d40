"""A reader that joins no consumer group and commits nothing: all records between two offsets, or chosen ones."""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final, Self

from bridge.errors import KafkaUnavailable
from bridge.formats.delivery_identity import Place
from bridge.kafka.clients import Consumer, Record, TopicPartition, consumer_client
from bridge.settings import Settings

#: Seconds without a record after which reading is given up.
SILENCE: Final = 20.0


def read_records(settings: Settings, starts: Mapping[Place, int], ends: Mapping[Place, int]) -> Iterator[Record]:
    """Yield the existing records of each partition from its start to below its end.

    Raises:
        KafkaUnavailable: Kafka did not answer.
    """
    left = {place: end for place, end in ends.items() if starts[place] < end}
    if not left:
        return
    client = consumer_client(settings.kafka, f"{settings.group}.reading")
    try:
        client.assign([TopicPartition(*place, starts[place]) for place in left])
        heard = time.monotonic()
        while left:
            for record in client.consume(1000, 0.2):
                if record.error() is not None:
                    continue
                heard = time.monotonic()
                place, offset = (record.topic() or "", record.partition() or 0), record.offset() or 0
                if offset < ends[place]:
                    yield record
                if offset + 1 >= ends[place]:
                    left.pop(place, None)
            # Compacted records and transaction markers are never returned: the position shows that all is read.
            for at in client.position([TopicPartition(*place) for place in left]) if left else []:
                if at.offset >= ends[(at.topic, at.partition)]:
                    left.pop((at.topic, at.partition))
            if time.monotonic() - heard > SILENCE:
                raise KafkaUnavailable(f"Kafka gives no records of {', '.join(sorted({place[0] for place in left}))}.")
    finally:
        client.close()


#: Seconds without a record after which reading is given up.
PICK_SILENCE: Final = 20.0


class RecordPicker:
    """A reader of chosen records of one topic, for several calls with one client; records between them are skipped."""

    def __init__(self, settings: Settings, topic: str) -> None:
        self._topic = topic
        self._client: Consumer = consumer_client(settings.kafka, f"{settings.group}.reading")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._client.close()

    def records(self, wanted: Mapping[int, Sequence[int]], reading: Callable[[], object] = bool) -> Iterator[Record]:
        """Yield those of the wanted records that exist.

        Parameters:
            wanted: the offsets by partition, ascending, at least one.
            reading: is called often, also while none of them is found: there may be many records in between.

        Raises:
            KafkaUnavailable: Kafka did not answer.
        """
        left = {partition: offsets[-1] for partition, offsets in wanted.items()}
        chosen = {partition: frozenset(offsets) for partition, offsets in wanted.items()}
        self._client.assign([TopicPartition(self._topic, number, offsets[0]) for number, offsets in wanted.items()])
        heard = time.monotonic()
        while left:
            reading()
            for record in self._client.consume(1000, 0.2):
                if record.error() is not None:
                    continue
                heard = time.monotonic()
                partition, offset = record.partition() or 0, record.offset() or 0
                if partition not in left:
                    continue
                if offset in chosen[partition]:
                    yield record
                if offset >= left[partition]:
                    del left[partition]
            self._pass_what_is_gone(left)
            if left and time.monotonic() - heard > PICK_SILENCE:
                raise KafkaUnavailable(f"Kafka gives no records of {self._topic}.")

    def _pass_what_is_gone(self, left: dict[int, int]) -> None:
        """Drop the wanted offsets that the position has passed: compacted records and transaction markers are
        never returned.
        """
        for at in self._client.position([TopicPartition(self._topic, number) for number in left]) if left else []:
            if at.offset > left[at.partition]:
                del left[at.partition]
