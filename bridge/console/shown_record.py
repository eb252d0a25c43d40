"""A record of a source topic, read from Kafka for a page or an answer, with the masks of its reader."""

from typing import NamedTuple

from bridge.deadletters.dead_letter_service import DeadLetterService
from bridge.deadletters.masking.letter_mask import LetterMasks, MaskedRecord
from bridge.errors import KafkaUnavailable, NoSuchRecord, UnknownTopic
from bridge.inspection.record_content import RecordContent, read_record_content


class ShownRecord(NamedTuple):
    """A record on a page.

    Attributes:
        content: `None`: it cannot be shown, and `absent` says why.
        status: the HTTP status of the page.
    """

    name: str
    content: RecordContent | None = None
    masked: MaskedRecord | None = None
    absent: str = ""
    status: int = 200


def read_shown_record(
    desk: DeadLetterService, masks: LetterMasks, topic: str, partition: int, offset: int
) -> ShownRecord:
    """Return a record of a source topic as a role sees it, or why there is none.

    Raises:
        UnknownTopic: no handler names the topic.
    """
    require_source_topic(desk, topic)
    name = f"{topic}-{partition}-{offset}"
    try:
        found = read_record_content(desk.settings, topic, partition, offset)
    except NoSuchRecord as error:
        return ShownRecord(name, absent=str(error), status=404)
    except KafkaUnavailable as error:
        return ShownRecord(name, absent=str(error), status=503)
    return ShownRecord(name, found, mask_content(desk, masks, found))


def require_source_topic(desk: DeadLetterService, topic: str) -> None:
    """Refuse a topic of others: this console's login to Kafka may read more than its users may see.

    Raises:
        UnknownTopic: no handler names the topic.
    """
    if topic not in desk.routes.topics:
        raise UnknownTopic(f"No handler here names the topic {topic!r}: the console shows the group's topics alone.")


def mask_content(desk: DeadLetterService, masks: LetterMasks, content: RecordContent) -> MaskedRecord:
    """Return a record's content as a role sees it."""
    return masks.record(content.topic, content.key, content.value, content.headers, desk.database.payloads)
