"""The records of a person in Kafka: found in all topics of the group, and up to which offset they can be deleted."""

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from bridge.deadletters.db.erasure_rows import SourceRecord
from bridge.deadletters.model.erasure_subject import ErasureSubject
from bridge.deadletters.model.payload_codec import PayloadCodec
from bridge.formats.delivery import Headers
from bridge.formats.delivery_identity import Origin, Place
from bridge.formats.retry_record import read_retry_origin
from bridge.handler_routes import Routes
from bridge.kafka.clients import AdminClient, Record, admin_client, headers_of
from bridge.kafka.managed_topic import ManagedTopic, TopicKind
from bridge.kafka.partition_offsets import Extent, read_extents
from bridge.kafka.record_deletion import RecordRetention
from bridge.kafka.record_reader import read_records
from bridge.kafka.topic_admin import read_cluster, read_topic_configs
from bridge.kafka.topic_survey import list_group_topics
from bridge.ledger import RETRY_RECORD, Account, Fate, Ledger, LogHistory
from bridge.ledger.fate_rules import UNSETTLED
from bridge.settings import Settings

#: The topics whose records are copies that the bridge made.
_COPIES: Final = (TopicKind.RETRY, TopicKind.REPLAY, TopicKind.DEAD_LETTERS)


class PersonRecord(NamedTuple):
    """A record of the person; `timestamp` in ms since the epoch."""

    offset: int
    timestamp: int


@dataclass(slots=True)
class SearchedTopic:
    """A topic that was searched for a person.

    Attributes:
        retention: how long it keeps records; `None` if Kafka does not tell.
        found: the person's records by partition, ascending.
        others: by partition, the records of others: offset and delivery; `None` for one that is none of this group's.
        quoting: how many records of others quote the person.
    """

    ours: ManagedTopic
    retention: RecordRetention | None
    extents: Mapping[Place, Extent]
    found: dict[Place, list[PersonRecord]] = field(default_factory=lambda: defaultdict(list))
    others: dict[Place, list[tuple[int, Origin | None]]] = field(default_factory=lambda: defaultdict(list))
    quoting: int = 0

    @property
    def count(self) -> int:
        """Return how many records of the person it has."""
        return sum(map(len, self.found.values()))

    def take(self, record: Record, is_own: bool, origin: Origin | None) -> None:
        """Take in a record that was read, with the delivery that it holds."""
        place = (record.topic() or "", record.partition() or 0)
        if is_own:
            self.found[place].append(PersonRecord(record.offset() or 0, max(0, record.timestamp()[1])))
        # Another group's ledger and database may need its record, also one of the person.
        if self.ours.kind in _COPIES and (not is_own or origin is None):
            self.others[place].append((record.offset() or 0, origin))

    def drop_later_others(self) -> None:
        """Drop the records of others behind the person's last one: nothing there is deleted."""
        self.others = {
            place: [each for each in some if each[0] <= self.found[place][-1].offset]
            for place, some in self.others.items()
            if self.found.get(place)
        }


def search_topics(
    settings: Settings,
    routes: Routes,
    subject: ErasureSubject,
    payloads: PayloadCodec,
    others: Collection[str],
    heard: Callable[[str, int], None],
) -> tuple[list[SearchedTopic], set[SourceRecord]]:
    """Return all topics of the group that exist, searched from begin to end, and the person's source records.

    Parameters:
        others: further topics, of other groups and programs: they are searched as source topics.
        heard: called with each topic before it is searched, and about how many records it has.

    Raises:
        KafkaUnavailable: Kafka did not answer.
    """
    admin = admin_client(settings.kafka)
    known = read_cluster(admin).shapes
    listed = [ours for ours, _ in list_group_topics(settings, routes, known) if ours.name in known]
    listed += [ManagedTopic(name, TopicKind.SOURCE, name) for name in others if name in known]
    listed = [ours for ours in listed if ours.kind is TopicKind.CONTROL or subject.covers(ours.source)]
    listed = list({ours.name: ours for ours in reversed(listed)}.values())[::-1]
    topics = _open_topics(admin, settings, listed)
    sources: set[SourceRecord] = set()
    # First the source topics: an edited copy may lack what names the person, and has the coordinates.
    for kind in (TopicKind.SOURCE, *_COPIES):
        for searched in (each for each in topics if each.ours.kind is kind):
            heard(searched.ours.name, sum(extent.end - extent.first for extent in searched.extents.values()))
            _search_topic(settings, searched, subject, payloads, sources)
    return topics, sources


def _open_topics(admin: AdminClient, settings: Settings, listed: Iterable[ManagedTopic]) -> list[SearchedTopic]:
    names = {ours.name: ours for ours in listed}
    config = read_topic_configs(admin, names)
    extents: dict[str, dict[Place, Extent]] = {name: {} for name in names}
    for extent in read_extents(settings, names):
        extents[extent.topic][extent.place] = extent
    return [
        SearchedTopic(ours, RecordRetention.from_config(config.get(name, {})), extents[name])
        for name, ours in names.items()
    ]


def _search_topic(
    settings: Settings,
    searched: SearchedTopic,
    subject: ErasureSubject,
    payloads: PayloadCodec,
    sources: set[SourceRecord],
) -> None:
    is_copy = searched.ours.kind in _COPIES
    starts = {place: extent.first for place, extent in searched.extents.items()}
    ends = {place: extent.end for place, extent in searched.extents.items()}
    for record in read_records(settings, starts, ends):
        key, value, origin = record.key(), record.value(), read_retry_origin(record) if is_copy else None
        source = _read_source(record, origin) if origin or not is_copy else None
        readable = payloads.read(value, _read_headers(record)).value if subject.fields else value
        is_own = subject.owns(key, readable) or (source is not None and source in sources)
        if is_own and source is not None:
            sources.add(source)
        if not is_own and subject.is_quoted_in(value):
            searched.quoting += 1
        searched.take(record, is_own, origin if origin and origin.group == settings.group else None)
    searched.drop_later_others()


def _read_headers(record: Record) -> Headers:
    try:
        return tuple(headers_of(record))
    except Exception:  # another client's header, which Python's cannot read
        return ()


def _read_source(record: Record, origin: Origin | None) -> SourceRecord:
    if origin is not None:
        return origin.topic, origin.partition, origin.offset
    return record.topic() or "", record.partition() or 0, record.offset() or 0


class DeletableRange(NamedTuple):
    """The begin of a partition that can be deleted.

    Attributes:
        below: the offset behind the last of the person's records that can be deleted; `None`: none can.
        left: how many of the person's records stay.
        why: what is in front of them; empty: nothing is.
    """

    below: int | None
    left: int
    why: str


def find_deletable_range(found: Iterable[PersonRecord], limit: int, why: str) -> DeletableRange:
    """Return what can be deleted of a partition (pure).

    Parameters:
        limit: the first offset that must stay.
        why: the reason for it.
    """
    offsets = [record.offset for record in found]
    gone = [offset for offset in offsets if offset < limit]
    left = len(offsets) - len(gone)
    return DeletableRange(gone[-1] + 1 if gone else None, left, why if left else "")


def find_first_unsettled(ledger: Ledger, topic_ids: Mapping[str, str], extent: Extent) -> tuple[int, str]:
    """Return the first offset of a retry or replay topic's partition that must stay, and why.

    Raises:
        LedgerUnavailable: Redis did not answer.
    """
    committed = extent.committed or 0
    log = LogHistory(ledger).log_id(extent.topic, topic_ids.get(extent.topic, ""), extent.partition)
    account = Account(RETRY_RECORD, extent.topic, log, extent.partition)
    runs = ledger.runs(account, UNSETTLED, extent.first, committed - 1) if committed > extent.first else iter(())
    first = next((run.start for run in runs), None)
    if first is not None:
        return first, f"{extent.topic}-{extent.partition}-{first} has not ended"
    return committed, f"bridges have read it up to {extent.topic}-{extent.partition}-{committed}"


def find_first_foreign(searched: SearchedTopic, place: Place) -> Iterator[tuple[int, str]]:
    """Yield the first record that this group did not write, which is not ours to delete."""
    first = next((offset for offset, origin in searched.others.get(place, ()) if origin is None), None)
    if first is not None:
        yield first, f"{place[0]}-{place[1]}-{first} is of another group or program"


def find_first_dead(searched: SearchedTopic, place: Place, fates: Any) -> Iterator[tuple[int, str]]:
    """Yield the first record of others whose delivery is dead: its dead letter must stay.

    Parameters:
        fates: the ledgers (`LedgerFates`).
    """
    others = [(offset, origin) for offset, origin in searched.others.get(place, ()) if origin is not None]
    known = fates.read_fates([origin for _, origin in others])
    first = next((offset for (offset, _), fate in zip(others, known, strict=True) if fate is Fate.DEAD), None)
    if first is not None:
        yield first, f"{place[0]}-{place[1]}-{first} is the dead letter of another delivery that has not ended"
