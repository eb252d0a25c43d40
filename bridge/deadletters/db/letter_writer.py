"""The writer of recorded letters: new letters, and new failures of known ones, counted in the same transaction."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

from sqlalchemy import Connection, and_, bindparam, insert, select, update

from bridge.deadletters.db import kind_rows, plan_item_rows, search_index, sql
from bridge.deadletters.db.kind_rows import DIGESTS_AT_ONCE, IdCache
from bridge.deadletters.db.letter_rows import IS_UNKNOWN
from bridge.deadletters.db.table_definitions import failures, letters
from bridge.deadletters.model.bulk_plan import PlanItemState
from bridge.deadletters.model.digest import key_digest
from bridge.deadletters.model.letter_deduplication import DeathKind, KnownLetter, classify_death
from bridge.deadletters.model.stored_letter import LetterStatus, StoredLetter, pack_headers
from bridge.deadletters.model.traceback_parts import strip_message
from bridge.formats.attempt_history import write_history

#: The columns of a known letter that are read: for its history, and to classify the record.
_READ: Final = (
    *(letters.c.id, letters.c.digest, letters.c.kind_id, letters.c.status, letters.c.status_at, letters.c.number),
    *(letters.c.failed_at, letters.c.error_message, letters.c.traceback_id, letters.c.runs, letters.c.letter_topic),
    *(letters.c.letter_partition, letters.c.letter_offset, letters.c.failures, letters.c.plan_id),
    and_(letters.c.status == LetterStatus.REPLAYING, IS_UNKNOWN).label("is_unknown"),
)
_ADD_FAILURE: Final = insert(failures)
_COUNT: Final = (
    update(letters).where(letters.c.id == bindparam("of")).values(occurrences=letters.c.occurrences + bindparam("more"))
)


class LetterWriter:
    """The writer of the letters of one transaction.

    Parameters:
        connection: a transaction that writes.
        at: ms since the epoch.
        largest_value: bytes; of a larger value only the size is stored.
    """

    def __init__(self, connection: Connection, ids: IdCache, at: int, largest_value: int) -> None:
        self._connection, self._ids, self._at, self._largest = connection, ids, at, largest_value
        self._tallies: Counter[tuple[int, str]] = Counter()
        self._hours: Counter[tuple[int, int]] = Counter()
        self._seen: dict[int, tuple[int, int]] = {}

    def record(self, found: Sequence[StoredLetter]) -> list[DeathKind]:
        """Write letters in their order; return how each was classified."""
        told = [each for some in _split_rounds(found) for each in self._round(some)]
        kind_rows.add_to_tallies(self._connection, self._tallies)
        kind_rows.add_failure_hours(self._connection, self._hours)
        kind_rows.widen_group_times(self._connection, self._seen)
        return told

    def _round(self, found: Mapping[bytes, StoredLetter]) -> list[DeathKind]:
        """Write letters of different deliveries."""
        rows = _lock_known_letters(self._connection, found)
        told = {each: _classify_letter(rows.get(each), letter) for each, letter in found.items()}
        deaths = {each: found[each] for each, what in told.items() if what in (DeathKind.NEW, DeathKind.AGAIN)}
        written = dict(zip(deaths, self._rows(deaths), strict=True))
        sql.insert_rows(
            self._connection, letters, [row for each, row in written.items() if told[each] is DeathKind.NEW]
        )
        self._add_again([(rows[each], row) for each, row in written.items() if told[each] is DeathKind.AGAIN])
        self._index(deaths)
        again = sorted(rows[each]["id"] for each, what in told.items() if what is DeathKind.DUPLICATE)
        if again:
            self._connection.execute(_COUNT, [{"of": id_, "more": 1} for id_ in again])
        return list(told.values())

    def _rows(self, found: Mapping[bytes, StoredLetter]) -> Iterator[dict[str, Any]]:
        """Yield a row for each letter that died, and count it."""
        connection = self._connection
        kinds = self._ids.of_kinds(connection, {letter.kind: letter.failed_at for letter in found.values()})
        texts = [strip_message(letter.traceback, letter.error_message) for letter in found.values()]
        text_ids = self._ids.of_texts(connection, sorted({text for text in texts if text}))
        for (each, letter), text in zip(found.items(), texts, strict=True):
            kind_id, group_id = kinds[letter.kind]
            self._count(kind_id, group_id, letter.failed_at)
            yield _build_letter_row(letter, each, kind_id, text_ids.get(text), self._at, self._largest)

    def _count(self, kind_id: int, group_id: int, failed_at: int) -> None:
        self._tallies[kind_id, str(LetterStatus.OPEN)] += 1
        self._hours[kind_id, failed_at // kind_rows.HOUR_MS] += 1
        first, last = self._seen.get(group_id, (failed_at, failed_at))
        self._seen[group_id] = (min(first, failed_at), max(last, failed_at))

    def _add_again(self, pairs: Sequence[tuple[Mapping[str, Any], Mapping[str, Any]]]) -> None:
        """Add the last failure of letters that died again to their history, and open them."""
        for before, row in sorted(pairs, key=lambda pair: int(pair[0]["id"])):
            self._tallies[before["kind_id"], before["status"]] -= 1
            self._connection.execute(_ADD_FAILURE, self._failure(before, row))
            kept = {"status_at": before["status_at"]} if before["status"] == LetterStatus.OPEN else {}
            changed = {**row, **kept, "failures": before["failures"] + 1, "first_failed_at": letters.c.first_failed_at}
            changed["occurrences"] = letters.c.occurrences + 1
            del changed["recorded_at"]
            self._connection.execute(update(letters).where(letters.c.id == before["id"]).values(changed))
        # The letters that plans had replayed.
        plan_item_rows.end_items_of_letters(
            self._connection, [before["id"] for before, _ in pairs], PlanItemState.DEAD, self._at
        )

    def _index(self, deaths: Mapping[bytes, StoredLetter]) -> None:
        """Index letters by the words of their latest failure."""
        if deaths:
            query = select(letters.c.id, letters.c.digest).where(
                sql.has_one_of(self._connection, letters.c.digest, deaths)
            )
            rows = self._connection.execute(query.order_by(letters.c.id)).all()
            search_index.index_letters(self._connection, [(row.id, deaths[row.digest].words) for row in rows])

    def _failure(self, before: Mapping[str, Any], row: Mapping[str, Any]) -> dict[str, Any]:
        names = ("kind_id", "failed_at", "error_message", "traceback_id", "runs")
        where = ("letter_topic", "letter_partition", "letter_offset")
        # A plan's replay has a higher number; a delivery that began anew is no plan's.
        plan_id = before["plan_id"] if row["number"] > before["number"] else None
        had = self._connection.execute(
            select(letters.c.value, letters.c.value_size, letters.c.attempt_history).where(letters.c.id == before["id"])
        ).one()
        same = (had.value, had.value_size) == (row["value"], row["value_size"])
        return {
            **{name: before[name] for name in (*names, *where)},
            "letter_id": before["id"],
            "number": before["failures"],
            "plan_id": plan_id,
            "value": None if same else had.value,
            "value_size": None if same else had.value_size,
            "attempt_history": had.attempt_history,
        }


def _split_rounds(found: Sequence[StoredLetter]) -> Iterator[dict[bytes, StoredLetter]]:
    """Yield letters in rounds, in their order: each delivery at most once, as many as a statement takes."""
    some: dict[bytes, StoredLetter] = {}
    for letter in found:
        digest = letter.identity.digest
        if digest in some or len(some) == DIGESTS_AT_ONCE:
            yield some
            some = {}
        some[digest] = letter
    if some:
        yield some


def _lock_known_letters(connection: Connection, digests: Iterable[bytes]) -> dict[bytes, dict[str, Any]]:
    """Return the known letters by digest, locked until the transaction ends."""
    query = select(*_READ).where(sql.has_one_of(connection, letters.c.digest, digests))
    # In one order: otherwise two transactions could deadlock.
    found = connection.execute(query.order_by(letters.c.id).with_for_update())
    rows = {row["id"]: dict(row) for row in found.mappings()}
    places = {
        row["id"]: {(row["letter_topic"], row["letter_partition"], row["letter_offset"])} for row in rows.values()
    }
    if rows:
        where = failures.c.letter_id, failures.c.letter_topic, failures.c.letter_partition, failures.c.letter_offset
        for id_, *place in connection.execute(select(*where).where(failures.c.letter_id.in_(sorted(rows)))):
            places[id_].add(tuple(place))
    return {row["digest"]: {**row, "places": frozenset(places[id_])} for id_, row in rows.items()}


def _classify_letter(row: Mapping[str, Any] | None, letter: StoredLetter) -> DeathKind:
    if row is None:
        return DeathKind.NEW
    names = ("status_at", "number", "failed_at", "places", "is_unknown")
    return classify_death(KnownLetter(LetterStatus(row["status"]), *(row[name] for name in names)), letter)


def _build_letter_row(
    letter: StoredLetter, digest: bytes, kind_id: int, traceback_id: int | None, at: int, largest: int
) -> dict[str, Any]:
    size = letter.value_size
    return {
        "digest": digest,
        "kind_id": kind_id,
        "status": str(LetterStatus.OPEN),
        "status_at": at,
        "topic_id": letter.identity.topic_id,
        "partition": letter.identity.partition,
        "offset": letter.identity.offset,
        "timestamp": letter.timestamp,
        "key": letter.key,
        "key_digest": key_digest(letter.key),
        "value": letter.value if size <= largest else None,
        "value_size": size,
        "headers": pack_headers(letter.headers),
        "number": letter.number,
        "runs": letter.runs,
        **letter.attempts._asdict(),
        "error_message": letter.error_message,
        "traceback_id": traceback_id,
        "first_failed_at": letter.first_failed_at,
        "failed_at": letter.failed_at,
        "recorded_at": at,
        "letter_topic": letter.topic,
        "letter_partition": letter.partition,
        "letter_offset": letter.offset,
        "occurrences": 1,
        "failures": 1,
        "again": letter.again or None,
        "trace": letter.trace or None,
        "attempt_history": write_history(letter.history) or None,
    }
