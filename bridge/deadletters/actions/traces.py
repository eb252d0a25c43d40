"""What is left in Kafka of deliveries that were being sent when it became uncertain whether they were."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from bridge.deadletters.actions.action import Claimed
from bridge.deadletters.store.spots import Spot
from bridge.kafka import Record
from bridge.records.place import Place
from bridge.settings import Settings
from bridge.topics.extents import Extent, extents
from bridge.topics.readback import records

#: Why a delivery is not sent that may have been.
LOST: Final = (
    "its plan was left while it was being sent, and Kafka has what lay there no more: whether it was sent is not known"
)


class Traces(NamedTuple):
    """What was found.

    Attributes:
        records: all that lies where theirs lie, if they were sent; they may be read once.
        lost: positions of those whose records may have lain in what Kafka has dropped since, or in a topic that was
            deleted since.
    """

    records: Iterator[Record]
    lost: frozenset[int]


def traces(settings: Settings, claimed: Sequence[Claimed]) -> Traces:
    """Look where the records of deliveries would lie.

    Raises:
        KafkaUnavailable: nothing is known; also while the records are read.
    """
    spots = {each.item.position: each.spot for each in claimed if each.spot is not None}
    there = {each.place: each for each in extents(settings, {spot.topic for spot in spots.values()})}
    begin: dict[Place, int] = {}
    for topic, partition, offset in spots.values():
        place = (topic, partition)
        if place in there:
            begin[place] = max(there[place].first, min(offset, begin.get(place, offset)))
    begin = {place: start for place, start in begin.items() if start < there[place].end}
    lost = frozenset(position for position, spot in spots.items() if not reaches(there, spot))
    return Traces(records(settings, begin, {place: there[place].end for place in begin}), lost)


def reaches(there: Mapping[Place, Extent], spot: Spot) -> bool:
    """Whether Kafka has all that was ever written at an offset and behind it (pure)."""
    extent = there.get((spot.topic, spot.partition))
    return extent is not None and extent.first <= spot.offset <= extent.end
