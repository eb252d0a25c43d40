"""Letters of an export, written into this database: each once, with its history, its edits and its trail."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from sqlalchemy import Connection, Table, bindparam, insert, select

from bridge.deadletters.letters import words
from bridge.deadletters.letters.fingerprint import cause_fingerprint
from bridge.deadletters.letters.letter import Group, Kind, Status, unpacked
from bridge.deadletters.letters.tracebacks import without_message
from bridge.deadletters.store import alarms, clock, searching, tallies, times
from bridge.deadletters.store.ids import Ids
from bridge.deadletters.store.schema import edits, failures, letters, trail
from bridge.errors import NoExport

Row = Mapping[str, Any]

#: What this database has numbers of its own for.
_OWN: Final = frozenset({"id", "kind_id", "traceback_id", "letter_id", "group_id", "letter"})
#: What a letter has many of, and the tables of these.
LISTS: Final = ((failures, "history"), (edits, "edits"), (trail, "trail"))
_KIND: Final = ("handler", "error_class", "place", "topic", "origin", "consumer_group", "reason", "version")


def check(row: Row) -> None:
    """Refuse what is no letter with all that one needs.

    Raises:
        NoExport: it lacks something, or something of it is of another kind than it must be.
    """
    _check(letters, row)
    for table, name in LISTS:
        found = row.get(name)
        if not isinstance(found, list) or not all(isinstance(each, dict) for each in found):
            raise NoExport(f"it has no {name}.")
        for each in found:
            _check(table, each)
    for each in (row, *row["history"]):
        if strange := [name for name in (*_KIND, "traceback") if not isinstance(each.get(name), str)]:
            raise NoExport(f"it has no {strange[0]}.")
    if row["status"] not in list(Status):
        raise NoExport(f"it has a status that there is not: {row['status']!r}.")


def _check(table: Table, row: Row) -> None:
    for column in table.c:
        if column.name in _OWN:
            continue
        value = row.get(column.name)
        if value is None and column.nullable:
            continue
        if not isinstance(value, column.type.python_type) or isinstance(value, bool):
            raise NoExport(f"its {column.name} is none.")


def add(connection: Connection, ids: Ids, found: Sequence[Row]) -> int:
    """Write the letters that are not there yet; return how many.

    One that was on its way back is open here: the plan that sent it is another database's, and a replay of what is
    done by then is skipped. Numbers of other databases' plans are kept as negative ones.

    Parameters:
        found: checked.
    """
    new = {row["digest"]: row for row in found}
    there = _ids(connection, new)
    new = {digest: row for digest, row in new.items() if digest not in there}
    if not new:
        return 0
    rows = list(new.values())
    each_death = [death for row in rows for death in (row, *row["history"])]
    read = {id(death): _kind(death) for death in each_death}
    made = ids.of_kinds(connection, {read[id(death)]: death["failed_at"] for death in each_death})
    kinds = {id_: made[kind] for id_, kind in read.items()}
    # What is brought from elsewhere is no news.
    alarms.told(connection, sorted({group_id for _, group_id in kinds.values()}), clock.now(connection))
    texts = ids.of_texts(connection, sorted({_text(death) for death in each_death}))
    shared = [_shared(death, kinds, texts) for death in each_death]
    of = {id(death): own for death, own in zip(each_death, shared, strict=True)}
    connection.execute(insert(letters), [_columns(letters, row) | of[id(row)] | _standing(row) for row in rows])
    numbers = _ids(connection, new)
    _add_lists(connection, rows, numbers, of)
    _count(connection, rows, each_death, kinds)
    found_by = [(numbers[row["digest"]], _words(row)) for row in rows]
    searching.add(connection, found_by)
    return len(rows)


def _ids(connection: Connection, digests: Iterable[bytes]) -> dict[bytes, int]:
    wanted = select(letters.c.digest, letters.c.id).where(letters.c.digest.in_(bindparam("digests", expanding=True)))
    return {row.digest: row.id for row in connection.execute(wanted, {"digests": list(digests)})}


def _kind(row: Row) -> Kind:
    said = [row[name] for name in _KIND]
    group = Group(*said[:3])
    cause = cause_fingerprint(group, row["traceback"], row["error_message"])
    return Kind(group, *said[3:])._replace(cause=cause)


def _text(row: Row) -> str:
    return without_message(row["traceback"], row["error_message"])


def _shared(row: Row, kinds: Mapping[int, tuple[int, int]], texts: Mapping[str, int]) -> dict[str, int]:
    return {"kind_id": kinds[id(row)][0], "traceback_id": texts[_text(row)]}


def _columns(table: Table, row: Row) -> dict[str, Any]:
    found = {column.name: row.get(column.name) for column in table.c if column.name not in _OWN}
    return found | {"plan_id": _elsewhere(found.get("plan_id"))}


def _elsewhere(plan: int | None) -> int | None:
    return None if plan is None else -abs(plan)


def _standing(row: Row) -> dict[str, str]:
    return {"status": Status.OPEN if row["status"] == Status.REPLAYING else row["status"]}


def _add_lists(
    connection: Connection, rows: Sequence[Row], numbers: Mapping[bytes, int], of: Mapping[int, Mapping[str, int]]
) -> None:
    for table, name in LISTS:
        found = []
        for row in rows:
            own = {"letter_id": numbers[row["digest"]]}
            own |= {"letter": row.get("delivery", "")} if table is trail else {}
            found += [_columns(table, each) | own | dict(of.get(id(each), {})) for each in row[name]]
        if found:
            connection.execute(insert(table), found)


def _count(
    connection: Connection, rows: Sequence[Row], each_death: Sequence[Row], kinds: Mapping[int, tuple[int, int]]
) -> None:
    standing = Counter((kinds[id(row)][0], str(_standing(row)["status"])) for row in rows)
    tallies.add(connection, standing)
    times.add(connection, Counter((kinds[id(death)][0], death["failed_at"] // times.HOUR) for death in each_death))
    seen: dict[int, tuple[int, int]] = {}
    for death in each_death:
        group, at = kinds[id(death)][1], death["failed_at"]
        first, last = seen.get(group, (at, at))
        seen[group] = (min(first, at), max(last, at))
    times.see(connection, seen)


def _words(row: Row) -> tuple[str, ...]:
    return words.of(row["error_message"], row["key"], unpacked(row["headers"]), row["value"])
