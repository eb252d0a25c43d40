"""Letters with all their data, read for an export or archive and written by an import, each once."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from sqlalchemy import Column, Connection, Select, Table, bindparam, func, insert, select, union_all

from bridge.deadletters.db import kind_rows, search_index, sql, webhook_rows
from bridge.deadletters.db.database import remember_fact
from bridge.deadletters.db.filter_sql import select_matching_letters
from bridge.deadletters.db.kind_rows import IdCache
from bridge.deadletters.db.table_definitions import (
    edits,
    facts,
    failures,
    groups,
    kinds,
    letters,
    positions,
    tracebacks,
    trail,
)
from bridge.deadletters.model import search_words
from bridge.deadletters.model.failure_group import FailureGroup, compute_cause_fingerprint
from bridge.deadletters.model.letter_filter import LetterFilter
from bridge.deadletters.model.stored_letter import LetterKind, LetterStatus, name_delivery, unpack_headers
from bridge.deadletters.model.traceback_parts import restore_message, strip_message
from bridge.errors import NoExport

#: Most bytes of values in memory; in a file they take up to four times as much.
BYTES_AT_ONCE: Final = 8_000_000
#: The columns that letters share, by their names in a file.
_KIND_COLUMNS: Final = (
    kinds.c.handler,
    kinds.c.topic,
    kinds.c.origin,
    kinds.c.consumer_group,
    kinds.c.reason,
    kinds.c.error_class,
    kinds.c.version,
    groups.c.place,
)
#: Ids of this database, which mean nothing elsewhere.
_NOT_EXPORTED: Final = frozenset({"kind_id", "traceback_id", "letter_id"})

ExportedLetter = dict[str, Any]


def fit_in_memory(connection: Connection, ids: Sequence[int]) -> Sequence[int]:
    """Return the first of these letters whose values fit in memory together; at least one."""
    of = ((letters, letters.c.id), (failures, failures.c.letter_id), (edits, edits.c.letter_id))
    each = [select(id_, func.length(table.c.value)).where(id_.in_(ids)) for table, id_ in of]
    found = union_all(*each).subquery().c
    query = select(found[0], func.sum(found[1])).group_by(found[0])
    sizes = {id_: int(size or 0) for id_, size in connection.execute(query)}
    room = BYTES_AT_ONCE
    for count, id_ in enumerate(ids):
        room -= sizes.get(id_, 0)
        if room < 0:
            return ids[: max(1, count)]
    return ids


def read_whole_letters(connection: Connection, ids: Sequence[int]) -> list[ExportedLetter]:
    """Return letters with all their data by id, ascending; without those that are gone.

    Returns:
        for each `delivery` (its name), its columns, those of its kind and group, `traceback`, and lists: `history`
        (its earlier failures), `edits`, `trail`.
    """
    history = _read_failures(connection, ids)
    changed = _read_lists(connection, edits, ids)
    said = _read_lists(connection, trail, ids)
    columns = [each for each in letters.c if each.name not in _NOT_EXPORTED]
    statement = (
        select(*columns, *_KIND_COLUMNS, tracebacks.c.text.label("traceback"))
        .join(kinds, kinds.c.id == letters.c.kind_id)
        .join(groups, groups.c.id == kinds.c.group_id)
        .outerjoin(tracebacks, tracebacks.c.id == letters.c.traceback_id)
        .where(letters.c.id.in_(ids))
        .order_by(letters.c.id)
    )
    found = [_with_traceback(dict(row)) for row in connection.execute(statement).mappings()]
    return [
        {
            "delivery": name_delivery(*(row[name] for name in ("topic", "partition", "offset", "handler"))),
            **row,
            "history": history.get(row["id"], []),
            "edits": changed[row["id"]],
            "trail": said[row["id"]],
        }
        for row in found
    ]


def _read_failures(connection: Connection, ids: Sequence[int]) -> dict[int, list[ExportedLetter]]:
    columns = [each for each in failures.c if each.name not in _NOT_EXPORTED]
    statement = (
        select(failures.c.letter_id, *columns, *_KIND_COLUMNS, tracebacks.c.text.label("traceback"))
        .join(kinds, kinds.c.id == failures.c.kind_id)
        .join(groups, groups.c.id == kinds.c.group_id)
        .outerjoin(tracebacks, tracebacks.c.id == failures.c.traceback_id)
        .where(failures.c.letter_id.in_(ids))
        .order_by(failures.c.letter_id, failures.c.number)
    )
    return {
        id_: [_with_traceback(failure) for failure in its]
        for id_, its in _list_by_letter(connection, statement).items()
    }


def _read_lists(connection: Connection, table: Any, ids: Sequence[int]) -> dict[int, list[ExportedLetter]]:
    columns: list[Column[Any]] = [
        each for each in table.c if each.name not in (*_NOT_EXPORTED, "id", "letter", "group_id")
    ]
    statement = select(table.c.letter_id, *columns).where(table.c.letter_id.in_(ids)).order_by(table.c.id)
    return _list_by_letter(connection, statement)


def _list_by_letter(connection: Connection, statement: Select[Any]) -> dict[int, list[ExportedLetter]]:
    found: dict[int, list[ExportedLetter]] = defaultdict(list)
    for row in connection.execute(statement).mappings():
        told = dict(row)
        found[told.pop("letter_id")].append(told)
    return found


def _with_traceback(row: ExportedLetter) -> ExportedLetter:
    return {**row, "traceback": restore_message(row["traceback"] or "", row["error_message"])}


def find_letter_ids(connection: Connection, filter_: LetterFilter, among: Sequence[int] | None = None) -> Iterable[int]:
    """Return the ids of a filter's letters, ascending.

    Parameters:
        among: as in `filter_sql.build_letter_conditions`.
    """
    found = select_matching_letters(filter_, among).order_by(letters.c.id).execution_options(yield_per=10_000)
    return (row.id for row in connection.execute(found))


def read_facts_and_positions(connection: Connection) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """Return the facts of the database (its Kafka cluster), and the recorded positions of topics."""
    known = {row.name: row.value for row in connection.execute(select(facts))}
    return {"facts": known}, [dict(row) for row in connection.execute(select(positions)).mappings()]


def take_over_facts(connection: Connection, said: Mapping[str, Any]) -> None:
    """Store the facts and recorded positions of an export, if the database has none yet.

    Raises:
        NoExport: this database has another cluster's letters; or the line is invalid.
    """
    try:
        for name, value in dict(said["facts"]).items():
            if (here := remember_fact(connection, str(name), str(value))) != str(value):
                raise NoExport(
                    f"its letters are of another Kafka ({name} {value}) than those of this database ({here})."
                )
        there = {_position_key(row) for row in connection.execute(select(positions)).mappings()}
        if new := [_position_row(row) for row in said["positions"] if _position_key(row) not in there]:
            connection.execute(insert(positions), new)
    except (KeyError, TypeError, ValueError) as error:
        raise NoExport(f"a line on all its letters is not what an export says ({type(error).__name__}).") from None


def _position_key(row: Mapping[Any, Any]) -> tuple[Any, ...]:
    return tuple(row[column.name] for column in positions.primary_key)


def _position_row(row: Mapping[str, Any]) -> dict[str, Any]:
    return {column.name: row[column.name] for column in positions.c}


ImportedLetter = Mapping[str, Any]

#: The columns for which this database assigns its own ids.
_NOT_IMPORTED: Final = frozenset({"id", "kind_id", "traceback_id", "letter_id", "group_id", "letter"})
#: The lists of a letter, and their tables.
LETTER_LISTS: Final = ((failures, "history"), (edits, "edits"), (trail, "trail"))
_KIND_NAMES: Final = ("handler", "error_class", "place", "topic", "origin", "consumer_group", "reason", "version")


def check_imported_letter(row: ImportedLetter) -> None:
    """Raise if an imported letter is incomplete or invalid.

    Raises:
        NoExport: a field is missing, or has the wrong type.
    """
    _check_columns(letters, row)
    for table, name in LETTER_LISTS:
        found = row.get(name)
        if not isinstance(found, list) or not all(isinstance(each, dict) for each in found):
            raise NoExport(f"it has no {name}.")
        for each in found:
            _check_columns(table, each)
    for each in (row, *row["history"]):
        if strange := [name for name in (*_KIND_NAMES, "traceback") if not isinstance(each.get(name), str)]:
            raise NoExport(f"it has no {strange[0]}.")
    if row["status"] not in list(LetterStatus):
        raise NoExport(f"it has a status that there is not: {row['status']!r}.")


def _check_columns(table: Table, row: ImportedLetter) -> None:
    for column in table.c:
        if column.name in _NOT_IMPORTED:
            continue
        value = row.get(column.name)
        if value is None and column.nullable:
            continue
        if not isinstance(value, column.type.python_type) or isinstance(value, bool):
            raise NoExport(f"its {column.name} is none.")


def import_letters(connection: Connection, ids: IdCache, found: Sequence[ImportedLetter]) -> int:
    """Insert the letters that do not exist yet; return how many.

    A replaying letter is open here: its plan is another database's, and a replay of a delivery that is done is
    skipped. Ids of other databases' plans are stored as negative numbers.

    Parameters:
        found: letters that `check_imported_letter` accepted.
    """
    new = {row["digest"]: row for row in found}
    there = _read_ids_by_digest(connection, new)
    new = {digest: row for digest, row in new.items() if digest not in there}
    if not new:
        return 0
    rows = list(new.values())
    each_death = [death for row in rows for death in (row, *row["history"])]
    read = {id(death): _build_kind(death) for death in each_death}
    made = ids.of_kinds(connection, {read[id(death)]: death["failed_at"] for death in each_death})
    kinds = {id_: made[kind] for id_, kind in read.items()}
    # Imported groups raise no alarm.
    webhook_rows.note_told_groups(
        connection, sorted({group_id for _, group_id in kinds.values()}), sql.read_clock(connection)
    )
    texts = ids.of_texts(connection, sorted({_strip_traceback(death) for death in each_death}))
    shared = [_shared_ids(death, kinds, texts) for death in each_death]
    of = {id(death): own for death, own in zip(each_death, shared, strict=True)}
    connection.execute(
        insert(letters), [_keep_columns(letters, row) | of[id(row)] | _imported_status(row) for row in rows]
    )
    numbers = _read_ids_by_digest(connection, new)
    _add_lists(connection, rows, numbers, of)
    _count_imported(connection, rows, each_death, kinds)
    found_by = [(numbers[row["digest"]], _find_words(row)) for row in rows]
    search_index.index_letters(connection, found_by)
    return len(rows)


def _read_ids_by_digest(connection: Connection, digests: Iterable[bytes]) -> dict[bytes, int]:
    wanted = select(letters.c.digest, letters.c.id).where(letters.c.digest.in_(bindparam("digests", expanding=True)))
    return {row.digest: row.id for row in connection.execute(wanted, {"digests": list(digests)})}


def _build_kind(row: ImportedLetter) -> LetterKind:
    said = [row[name] for name in _KIND_NAMES]
    group = FailureGroup(*said[:3])
    cause = compute_cause_fingerprint(group, row["traceback"], row["error_message"])
    return LetterKind(group, *said[3:])._replace(cause=cause)


def _strip_traceback(row: ImportedLetter) -> str:
    return strip_message(row["traceback"], row["error_message"])


def _shared_ids(row: ImportedLetter, kinds: Mapping[int, tuple[int, int]], texts: Mapping[str, int]) -> dict[str, int]:
    return {"kind_id": kinds[id(row)][0], "traceback_id": texts[_strip_traceback(row)]}


def _keep_columns(table: Table, row: ImportedLetter) -> dict[str, Any]:
    found = {column.name: row.get(column.name) for column in table.c if column.name not in _NOT_IMPORTED}
    return found | {"plan_id": _foreign_plan_id(found.get("plan_id"))}


def _foreign_plan_id(plan: int | None) -> int | None:
    return None if plan is None else -abs(plan)


def _imported_status(row: ImportedLetter) -> dict[str, str]:
    return {"status": LetterStatus.OPEN if row["status"] == LetterStatus.REPLAYING else row["status"]}


def _add_lists(
    connection: Connection,
    rows: Sequence[ImportedLetter],
    numbers: Mapping[bytes, int],
    of: Mapping[int, Mapping[str, int]],
) -> None:
    for table, name in LETTER_LISTS:
        found = []
        for row in rows:
            own = {"letter_id": numbers[row["digest"]]}
            own |= {"letter": row.get("delivery", "")} if table is trail else {}
            found += [_keep_columns(table, each) | own | dict(of.get(id(each), {})) for each in row[name]]
        if found:
            connection.execute(insert(table), found)


def _count_imported(
    connection: Connection,
    rows: Sequence[ImportedLetter],
    each_death: Sequence[ImportedLetter],
    kinds: Mapping[int, tuple[int, int]],
) -> None:
    standing = Counter((kinds[id(row)][0], str(_imported_status(row)["status"])) for row in rows)
    kind_rows.add_to_tallies(connection, standing)
    kind_rows.add_failure_hours(
        connection, Counter((kinds[id(death)][0], death["failed_at"] // kind_rows.HOUR_MS) for death in each_death)
    )
    seen: dict[int, tuple[int, int]] = {}
    for death in each_death:
        group, at = kinds[id(death)][1], death["failed_at"]
        first, last = seen.get(group, (at, at))
        seen[group] = (min(first, at), max(last, at))
    kind_rows.widen_group_times(connection, seen)


def _find_words(row: ImportedLetter) -> tuple[str, ...]:
    value = row.get("readable", row["value"])
    return search_words.find_letter_words(row["error_message"], row["key"], unpack_headers(row["headers"]), value)
