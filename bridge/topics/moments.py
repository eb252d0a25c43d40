"""Which offsets a person means: the earliest, the latest, an offset, or a time."""

from collections.abc import Sequence
from concurrent.futures import wait
from datetime import datetime
from typing import Final

from bridge.errors import KafkaUnavailable, NoMoment
from bridge.kafka import KafkaException, OffsetSpec, TopicPartition, admin_client
from bridge.settings import Settings
from bridge.topics.extents import Extent
from bridge.topics.offset_answers import NO_SUCH_RECORD, listed_offset

#: Seconds for Kafka's answer; its client must live until that is there.
ANSWER_WITHIN: Final = 10.0


def offsets_at(settings: Settings, found: Sequence[Extent], moment: str) -> dict[int, int]:
    """The offset of each partition that a moment means, no less than its first and no more than its end.

    Parameters:
        found: the partitions of one topic.
        moment: `earliest`, `latest`, an offset, or a time as ISO 8601: the first record of that time or later.

    Raises:
        NoMoment: it is none of these.
        KafkaUnavailable: Kafka did not answer.
    """
    if moment == "earliest":
        return {extent.partition: extent.first for extent in found}
    if moment == "latest":
        return {extent.partition: extent.end for extent in found}
    if moment.isdecimal():
        return {extent.partition: min(max(int(moment), extent.first), extent.end) for extent in found}
    try:
        time = int(datetime.fromisoformat(moment).astimezone().timestamp() * 1000)
    except ValueError:
        raise NoMoment(f"{moment!r} is no offset, no time (2026-01-31T12:00), neither earliest nor latest.") from None
    return _at(settings, found, moment, time)


def _at(settings: Settings, found: Sequence[Extent], moment: str, time: int) -> dict[int, int]:
    asked = {TopicPartition(extent.topic, extent.partition): OffsetSpec.for_timestamp(time) for extent in found}
    ends = {extent.partition: extent.end for extent in found}
    admin = admin_client(settings.kafka)
    try:
        answers = admin.list_offsets(asked, request_timeout=ANSWER_WITHIN)
        if wait(answers.values(), ANSWER_WITHIN * 2).not_done:
            raise KafkaUnavailable(f"no answer within {ANSWER_WITHIN * 2:g} s")
        offsets = {place.partition: listed_offset(future, of_a_time=True) for place, future in answers.items()}
    except (KafkaException, KafkaUnavailable) as error:
        raise KafkaUnavailable(f"Kafka does not say which offsets {moment} means: {error}.") from None
    return {partition: ends[partition] if offset == NO_SUCH_RECORD else offset for partition, offset in offsets.items()}
