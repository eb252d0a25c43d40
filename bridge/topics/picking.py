"""Chosen records of a topic, read back by their offsets, beside the group."""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final, Self

from bridge.errors import KafkaUnavailable
from bridge.kafka import Consumer, Record, TopicPartition, consumer_client
from bridge.settings import Settings

#: Seconds without a record after which reading is given up.
SILENCE: Final = 20.0


class Picking:
    """Reads records of one topic, again and again, with one client: what lies between them is read too, and dropped."""

    def __init__(self, settings: Settings, topic: str) -> None:
        self._topic = topic
        self._client: Consumer = consumer_client(settings.kafka, f"{settings.group}.reading")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._client.close()

    def records(self, wanted: Mapping[int, Sequence[int]], reading: Callable[[], object] = bool) -> Iterator[Record]:
        """The records that are there of those that are wanted; what Kafka has dropped is left out.

        Parameters:
            wanted: by partition its offsets, ascending, at least one.
            reading: is called again and again, also while none of them comes: what lies between them may be much.

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
            if left and time.monotonic() - heard > SILENCE:
                raise KafkaUnavailable(f"Kafka gives no records of {self._topic}.")

    def _pass_what_is_gone(self, left: dict[int, int]) -> None:
        """Of what was compacted away, and of transaction markers, only the position says that it was passed."""
        for at in self._client.position([TopicPartition(self._topic, number) for number in left]) if left else []:
            if at.offset > left[at.partition]:
                del left[at.partition]
