"""Records read back from Kafka, beside the group: what lies between two offsets."""

import time
from collections.abc import Iterator, Mapping
from typing import Final

from bridge.errors import KafkaUnavailable
from bridge.kafka import Record, TopicPartition, consumer_client
from bridge.records.place import Place
from bridge.settings import Settings

#: Seconds without a record after which reading is given up.
SILENCE: Final = 20.0


def records(settings: Settings, starts: Mapping[Place, int], ends: Mapping[Place, int]) -> Iterator[Record]:
    """The records of each partition from its start on and below its end, which Kafka has.

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
            # What was compacted away and transaction markers are no records: the position says that all is read.
            for at in client.position([TopicPartition(*place) for place in left]) if left else []:
                if at.offset >= ends[(at.topic, at.partition)]:
                    left.pop((at.topic, at.partition))
            if time.monotonic() - heard > SILENCE:
                raise KafkaUnavailable(f"Kafka gives no records of {', '.join(sorted({place[0] for place in left}))}.")
    finally:
        client.close()
