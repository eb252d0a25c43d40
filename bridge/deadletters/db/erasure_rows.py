"""The rows of a person: letters that are found by key, field or coordinates and deleted, and texts that quote them."""

from collections import Counter
from collections.abc import Collection, Iterable, Iterator
from typing import Any, Final, NamedTuple

from sqlalchemy import Column, ColumnElement, Connection, String, cast, delete, or_, select, update

from bridge.deadletters.db import kind_rows, search_index
from bridge.deadletters.db.filter_sql import is_one_of
from bridge.deadletters.db.letter_rows import split_into_batches
from bridge.deadletters.db.letter_transfer import fit_in_memory
from bridge.deadletters.db.sql import is_among
from bridge.deadletters.db.table_definitions import (
    alarms,
    deliveries,
    edits,
    failures,
    items,
    kinds,
    letters,
    plans,
    positions,
    requests,
    saved_views,
    tracebacks,
    trail,
)
from bridge.deadletters.model.bulk_plan import UNDER_WAY
from bridge.deadletters.model.digest import key_digest
from bridge.deadletters.model.erasure_subject import ERASED, ErasureSubject
from bridge.deadletters.model.payload_codec import PayloadCodec
from bridge.deadletters.model.search_words import find_letter_words
from bridge.deadletters.model.stored_letter import LetterStatus, unpack_headers
from bridge.formats.delivery import Headers
from bridge.formats.delivery_identity import Origin

#: Letters whose values are read at once.
_AT_ONCE: Final = 500
#: The statuses of letters whose records may be needed in Kafka.
_NEEDED: Final = (LetterStatus.OPEN, LetterStatus.REPLAYING, LetterStatus.ARCHIVED)
#: A source record: topic, partition, offset.
SourceRecord = tuple[str, int, int]


class PersonLetter(NamedTuple):
    """A letter of the person.

    Attributes:
        is_ours: whether the bridge wrote it, so that its delivery has a fate.
        in_flight: whether a plan has it in flight.
    """

    id: int
    status: LetterStatus
    delivery: Origin
    is_ours: bool
    in_flight: bool

    @property
    def source(self) -> SourceRecord:
        """Return its source record."""
        return self.delivery.topic, self.delivery.partition, self.delivery.offset


def find_person_letters(
    connection: Connection, subject: ErasureSubject, payloads: PayloadCodec, sources: Collection[SourceRecord]
) -> list[PersonLetter]:
    """Return the person's letters, by id.

    Parameters:
        sources: source records that are known to be the person's.
    """
    ids = {*_find_by_key(connection, subject), *_find_by_source(connection, sources)}
    if subject.fields:
        ids.update(_find_by_field(connection, subject, payloads))
    in_flight = select(items.c.position).where(items.c.letter_id == letters.c.id, items.c.state.in_(UNDER_WAY)).exists()
    delivery = (kinds.c.topic, letters.c.topic_id, letters.c.partition, letters.c.offset, kinds.c.handler)
    query = select(letters.c.id, letters.c.status, kinds.c.origin, in_flight, *delivery, kinds.c.consumer_group)
    query = query.join(kinds, kinds.c.id == letters.c.kind_id)
    found = [
        PersonLetter(id_, LetterStatus(status), Origin(*whose), program == "bridge", bool(flying))
        for some in split_into_batches(sorted(ids))
        for id_, status, program, flying, *whose in connection.execute(query.where(is_among(letters.c.id, some)))
    ]
    return sorted((letter for letter in found if subject.covers(letter.delivery.topic)), key=lambda letter: letter.id)


def _find_by_key(connection: Connection, subject: ErasureSubject) -> Iterator[int]:
    digests = [key_digest(key) for key in subject.keys]
    query = select(letters.c.id, letters.c.key).where(letters.c.key_digest.in_(digests))
    return (id_ for id_, key in connection.execute(query) if bytes(key or b"") in subject.keys)


def _find_by_source(connection: Connection, sources: Collection[SourceRecord]) -> Iterator[int]:
    query = select(letters.c.id, kinds.c.topic, letters.c.partition, letters.c.offset)
    query = query.join(kinds, kinds.c.id == letters.c.kind_id)
    for some in split_into_batches(sorted({offset for _, _, offset in sources})):
        for id_, *source in connection.execute(query.where(is_one_of(letters.c.offset, list(some)))):
            if tuple(source) in sources:
                yield id_


def _find_by_field(connection: Connection, subject: ErasureSubject, payloads: PayloadCodec) -> Iterator[int]:
    """Yield the letters with a field in their value, in that of an earlier failure, or in an edit."""
    for id_, headers, values in _read_values(connection):
        if any(subject.owns(None, payloads.read(value, headers).value) for value in values):
            yield id_


def _read_values(connection: Connection) -> Iterator[tuple[int, Headers, list[bytes]]]:
    """Yield each letter with its values: its own, those of earlier failures, and its edits."""
    last = 0
    while True:
        query = select(letters.c.id).where(letters.c.id > last).order_by(letters.c.id).limit(_AT_ONCE)
        if not (ids := fit_in_memory(connection, list(connection.execute(query).scalars()))):
            return
        own = select(letters.c.id, letters.c.headers, letters.c.value).where(is_among(letters.c.id, ids))
        found = {
            id_: (unpack_headers(bytes(headers)), [bytes(value or b"")])
            for id_, headers, value in connection.execute(own)
        }
        for table in (failures, edits):
            more = select(table.c.letter_id, table.c.value).where(is_among(table.c.letter_id, ids))
            for id_, value in connection.execute(more):
                if value is not None and id_ in found:
                    found[id_][1].append(bytes(value))
        yield from ((id_, *each) for id_, each in sorted(found.items()))
        last = ids[-1]


def find_quoting_letters(connection: Connection, subject: ErasureSubject, own: Collection[int]) -> list[int]:
    """Return the letters of others whose key, headers or value quote the person, by id."""
    if not subject.quotes:
        return []
    found = {id_ for id_, _, values in _read_values(connection) if any(map(subject.is_quoted_in, values))}
    last = 0
    query = select(letters.c.id, letters.c.key, letters.c.headers).order_by(letters.c.id).limit(_AT_ONCE)
    while rows := connection.execute(query.where(letters.c.id > last)).all():
        found |= {row.id for row in rows if any(map(subject.is_quoted_in, (row.key, row.headers)))}
        last = rows[-1].id
    return sorted(found - set(own))


class QuotingColumn(NamedTuple):
    """A column of texts that may quote a person.

    Attributes:
        key: the columns that name a row.
        is_json: whether its texts are JSON.
    """

    column: Column[Any]
    key: tuple[Column[Any], ...]
    is_json: bool = False


#: The columns whose texts people or handlers wrote.
QUOTING_COLUMNS: Final = (
    QuotingColumn(trail.c.said, (trail.c.id,)),
    QuotingColumn(plans.c.why, (plans.c.id,)),
    QuotingColumn(plans.c.stopped, (plans.c.id,)),
    QuotingColumn(plans.c.asked, (plans.c.id,), is_json=True),
    QuotingColumn(plans.c.counts, (plans.c.id,), is_json=True),
    QuotingColumn(items.c.why, (items.c.plan_id, items.c.position)),
    QuotingColumn(letters.c.error_message, (letters.c.id,)),
    QuotingColumn(letters.c.attempt_history, (letters.c.id,)),
    QuotingColumn(failures.c.error_message, (failures.c.letter_id, failures.c.number)),
    QuotingColumn(failures.c.attempt_history, (failures.c.letter_id, failures.c.number)),
    QuotingColumn(tracebacks.c.text, (tracebacks.c.id,)),
    QuotingColumn(requests.c.answer, (requests.c.digest,), is_json=True),
    QuotingColumn(deliveries.c.text, (deliveries.c.id,)),
    QuotingColumn(deliveries.c.page, (deliveries.c.id,)),
    QuotingColumn(deliveries.c.data, (deliveries.c.id,), is_json=True),
    QuotingColumn(deliveries.c.said, (deliveries.c.id,)),
    QuotingColumn(alarms.c.data, (alarms.c.key,), is_json=True),
    QuotingColumn(saved_views.c.name, (saved_views.c.id,)),
    QuotingColumn(saved_views.c.fields, (saved_views.c.id,), is_json=True),
)
#: The tables of which an erasure changes rows, for the databases that keep the bytes of earlier versions.
CHANGED_TABLES: Final = tuple(
    dict.fromkeys(["letters", "failures", "edits", "words", *(each.column.table.name for each in QUOTING_COLUMNS)])
)


def find_quoting_texts(
    connection: Connection, subject: ErasureSubject, own: Collection[int] = ()
) -> Iterator[tuple[QuotingColumn, tuple[Any, ...], str]]:
    """Yield the texts that quote the person, each with its column and row; not those of the person's letters."""
    if not subject.quotes:
        return
    for quoting in QUOTING_COLUMNS:
        query = select(*quoting.key, quoting.column).where(_may_quote(quoting.column, subject))
        for *key, text in connection.execute(query).all():
            of_letter = quoting.column.table in (letters, failures) and key[0] in own
            if not of_letter and subject.is_quoted(text):
                yield quoting, tuple(key), text


def _may_quote(column: Column[Any], subject: ErasureSubject) -> ColumnElement[bool]:
    return or_(*(column.icontains(spelling, autoescape=True) for spelling in subject.spellings))


def redact_texts(connection: Connection, subject: ErasureSubject) -> int:
    """Redact the texts that quote the person, and return how many."""
    found = list(find_quoting_texts(connection, subject))
    for quoting, key, text in found:
        redacted = subject.redact_json(text) if quoting.is_json else subject.redact(text)
        where = [column == value for column, value in zip(quoting.key, key, strict=True)]
        connection.execute(update(quoting.column.table).where(*where).values({quoting.column.name: redacted}))
    changed = {key[0] for quoting, key, _ in found if quoting.column.table is letters}
    _index_again(connection, changed)
    return len(found)


def _index_again(connection: Connection, ids: Collection[int]) -> None:
    query = select(letters.c.id, letters.c.error_message, letters.c.key, letters.c.headers, letters.c.value)
    for some in split_into_batches(sorted(ids)):
        rows = connection.execute(query.where(is_among(letters.c.id, some))).all()
        words = ((row.id, _find_words(row)) for row in rows)
        search_index.index_letters(connection, words)


def _find_words(row: Any) -> tuple[str, ...]:
    key, value = (None if part is None else bytes(part) for part in (row.key, row.value))
    return find_letter_words(row.error_message, key, unpack_headers(bytes(row.headers)), value)


def count_notes(connection: Connection, ids: Collection[int]) -> int:
    """Return how many notes people wrote on these letters that are not erased."""
    return len(_read_notes(connection, ids))


def erase_notes(connection: Connection, ids: Collection[int]) -> int:
    """Erase the notes on these letters, and return how many; author and time stay."""
    found = _read_notes(connection, ids)
    for some in split_into_batches(found):
        connection.execute(update(trail).where(is_among(trail.c.id, some)).values(said=ERASED))
    return len(found)


def _read_notes(connection: Connection, ids: Collection[int]) -> list[int]:
    query = select(trail.c.id).where(trail.c.what == "note", trail.c.said != ERASED)
    return [
        id_
        for some in split_into_batches(sorted(ids))
        for id_ in connection.execute(query.where(is_among(trail.c.letter_id, some))).scalars()
    ]


def delete_letters(connection: Connection, ids: Iterable[int]) -> int:
    """Delete ended letters with their earlier failures, edits and search words, and return how many."""
    gone = 0
    for some in split_into_batches(sorted(ids)):
        query = select(letters.c.id, letters.c.kind_id, letters.c.status).where(
            is_among(letters.c.id, some), letters.c.status.not_in((LetterStatus.OPEN, LetterStatus.REPLAYING))
        )
        found = connection.execute(query.order_by(letters.c.id).with_for_update()).all()
        connection.execute(delete(letters).where(is_among(letters.c.id, [row.id for row in found])))
        counts = Counter((row.kind_id, row.status) for row in found)
        kind_rows.add_to_tallies(connection, {pair: -count for pair, count in counts.items()})
        gone += len(found)
    return gone


def find_first_needed(connection: Connection, topic: str, partition: int, own: Collection[int]) -> int | None:
    """Return the first offset of a dead-letter topic's partition that the database may still need: the record of a
    letter of others that has not ended, or one that is not recorded; `None`: it was never recorded from there.
    """
    at = select(positions.c.next).where(positions.c.topic == topic, positions.c.partition == partition)
    ends = list(connection.execute(at).scalars())
    if not ends:
        return None
    query = select(letters.c.id, letters.c.letter_offset).where(
        letters.c.letter_topic == topic,
        letters.c.letter_partition == partition,
        cast(letters.c.status, String).in_([str(status) for status in _NEEDED]),
    )
    needed = [offset for id_, offset in connection.execute(query) if id_ not in own]
    return int(min([*ends, *needed]))


def read_topics(connection: Connection) -> list[str]:
    """Return the dead-letter topics that were recorded, and the source topics of letters."""
    queries = (select(positions.c.topic).distinct(), select(kinds.c.topic).distinct())
    return sorted({topic for query in queries for topic in connection.execute(query).scalars()})


def read_erasures(connection: Connection, subject: str) -> list[tuple[int, str, str]]:
    """Return time, actor and words of the audit entries of erasures of a person, oldest first."""
    query = select(trail.c.at, trail.c.by, trail.c.said).where(trail.c.what == "erase", trail.c.said.contains(subject))
    return [(at, by, said) for at, by, said in connection.execute(query.order_by(trail.c.id))]


def read_exports(connection: Connection) -> list[tuple[int, str]]:
    """Return time and actor of the exports of letters, oldest first: their files are outside of the database."""
    query = select(trail.c.at, trail.c.by).where(trail.c.what == "export").order_by(trail.c.id)
    return [(at, by) for at, by in connection.execute(query)]
