"""The dead letters of the deliveries that `bridge find` shows, and those that hold other deliveries in their order
(`after_dead="hold"`).
"""

from collections.abc import Mapping

from bridge.dispatch.carrier_message import DeliveryKey
from bridge.formats.dead_letter_record import DeadLetterSummary
from bridge.inspection.delivery_trace import UNENDED, DeliveryTrace
from bridge.kafka.dead_letter_reader import MOST_RECENT, read_dead_letters
from bridge.kafka.partition_offsets import ExtentRead
from bridge.ledger import Account, Fate
from bridge.ledger.group_access import open_ledger
from bridge.settings import Settings, TopicSettings

#: A partition, a handler and, with `order="key"`, a key: deliveries that run one after another.
OrderLane = tuple[int, str, bytes | None]


def read_letters_and_holds(
    settings: Settings,
    topic: str,
    traced: DeliveryTrace,
    keys: Mapping[tuple[int, int], bytes | None],
    read: ExtentRead,
) -> tuple[dict[DeliveryKey, DeadLetterSummary], dict[DeliveryKey, dict[str, str]]]:
    """Return the last dead letter of each delivery, of the logs that the topic has now; and the holds.

    Parameters:
        keys: the keys of the records.
        read: reads the extents of the dead-letter topic.

    Returns:
        the letters; and by delivery that waits behind a dead one in its order the record and the letter of that one.

    Raises:
        KafkaUnavailable, LedgerUnavailable: one of them does not answer.
    """
    chosen = settings.topic(topic)
    lanes = find_order_lanes(chosen, traced, keys)
    if not lanes and Fate.DEAD not in traced.fates.values():
        return {}, {}
    letters: dict[DeliveryKey, DeadLetterSummary] = {}
    before: dict[DeliveryKey, DeadLetterSummary] = {}
    wanted = {*lanes.values()}
    for letter in read_dead_letters(settings, topic, MOST_RECENT, read).letters:
        whose = letter.whose
        if not whose.is_of(traced.logs.get(whose.partition, "")):
            continue
        which = (whose.partition, whose.offset, whose.handler)
        if which in traced.fates:
            letters[which] = letter
        if (whose.partition, whose.handler, letter.key if chosen.order == "key" else None) in wanted:
            before[which] = letter
    if not before:
        return letters, {}
    with open_ledger(settings, [topic]) as (ledger, _):
        asked = [
            (Account(handler, topic, traced.logs[partition], partition), offset, offset)
            for partition, offset, handler in before
        ]
        fates = ledger.fates_many(asked)
    dead = {which: letter for (which, letter), (fate,) in zip(before.items(), fates, strict=True) if fate == Fate.DEAD}
    return letters, find_dead_holds(lanes, dead, chosen, topic)


def find_order_lanes(
    chosen: TopicSettings, traced: DeliveryTrace, keys: Mapping[tuple[int, int], bytes | None]
) -> dict[DeliveryKey, OrderLane]:
    """Return the lane of each delivery that a dead one before it would hold: none without `after_dead="hold"` (pure).

    Parameters:
        keys: the keys of the records.
    """
    if not chosen.holds_dead:
        return {}
    return {
        which: (which[0], which[2], keys[which[:2]] if chosen.order == "key" else None)
        for which, fate in traced.fates.items()
        if fate in UNENDED
        and which not in traced.before
        and which not in traced.forgotten
        and (chosen.order != "key" or keys[which[:2]] is not None)
    }


def find_dead_holds(
    lanes: Mapping[DeliveryKey, OrderLane],
    dead: Mapping[DeliveryKey, DeadLetterSummary],
    chosen: TopicSettings,
    topic: str,
) -> dict[DeliveryKey, dict[str, str]]:
    """Return by delivery that waits behind a dead one the record and the letter of the first such one (pure).

    Parameters:
        lanes: of the deliveries that may wait.
        dead: the dead deliveries with their letters.
    """
    first: dict[OrderLane, DeliveryKey] = {}
    for which, letter in dead.items():
        lane = (which[0], which[2], letter.key if chosen.order == "key" else None)
        first[lane] = min(which, first.get(lane, which))
    return {
        which: {"record": f"{topic}-{held_by[0]}-{held_by[1]}", "letter": dead[held_by].place}
        for which, lane in lanes.items()
        if (held_by := first.get(lane)) is not None and held_by[1] < which[1]
    }
