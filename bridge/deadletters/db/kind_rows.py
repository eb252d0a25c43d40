"""Letter kinds (group, topic, reason, version, cause): their ids, and tallies by status and hour."""

from collections.abc import Collection, Mapping, Sequence
from typing import Any, Final

from sqlalchemy import Connection, Table, bindparam, func, select, text

from bridge.deadletters.db.sql import insert_missing
from bridge.deadletters.db.table_definitions import groups, hours, kinds, letters, tallies, tracebacks
from bridge.deadletters.model.digest import compute_digest
from bridge.deadletters.model.stored_letter import OTHER_CAUSE, UNKNOWN_CAUSE, LetterKind, LetterStatus

#: Most cached ids of each table; beyond that the cache is emptied.
REMEMBERED: Final = 50_000
#: Digests in one statement.
DIGESTS_AT_ONCE: Final = 1_000
#: Most causes of a group; further ones become "other": the number of kinds must have a limit.
MOST_CAUSES: Final = 50


class IdCache:
    """The ids of groups, kinds and tracebacks, by their digests.

    Ids that a transaction read or made are shared once `keep` says that it was committed. After a failed transaction
    call `forget`: its new rows do not exist, and known ones may have been cleaned up.
    """

    def __init__(self) -> None:
        self._known: dict[str, dict[bytes, int]] = {table.name: {} for table in (groups, kinds, tracebacks)}
        self._fresh: dict[str, dict[bytes, int]] = {name: {} for name in self._known}

    def keep(self) -> None:
        """Keep the ids of the transaction, which was committed."""
        for name, fresh in self._fresh.items():
            known = self._known[name]
            if len(known) + len(fresh) > REMEMBERED:
                known.clear()
            known |= fresh
            fresh.clear()

    def forget(self) -> None:
        """Drop all ids: the transaction failed, or its outcome is unknown."""
        for ids in (*self._known.values(), *self._fresh.values()):
            ids.clear()

    def of_kinds(self, connection: Connection, wanted: Mapping[LetterKind, int]) -> dict[LetterKind, tuple[int, int]]:
        """Return the ids of kinds and of their groups, which are created if missing.

        Parameters:
            wanted: kinds, each with the time of a failure (ms since the epoch).
        """
        by_group = {kind.group: at for kind, at in wanted.items()}
        of_groups = self._ids(
            connection,
            groups,
            {
                group.digest: {**group._asdict(), "digest": group.digest, "first_at": at, "last_at": at}
                for group, at in by_group.items()
            },
        )
        group_ids = {kind: of_groups[kind.group.digest] for kind in wanted}
        kept = self._bounded(connection, group_ids)
        rows = {kind.digest: _build_kind_row(kind, group_ids[each]) for each, kind in kept.items()}
        of_kinds = self._ids(connection, kinds, rows)
        return {each: (of_kinds[kind.digest], group_ids[each]) for each, kind in kept.items()}

    def _bounded(self, connection: Connection, group_ids: Mapping[LetterKind, int]) -> dict[LetterKind, LetterKind]:
        """Return each kind as it is stored: with the cause "other" if its group has the most causes already."""
        known, fresh = self._known[kinds.name], self._fresh[kinds.name]
        unseen = {id_ for kind, id_ in group_ids.items() if not (kind.digest in known or kind.digest in fresh)}
        if not unseen:
            return {kind: kind for kind in group_ids}
        causes = _read_causes(connection, unseen)
        kept = {}
        for kind, group_id in group_ids.items():
            its = causes.get(group_id)
            if its is None or kind.cause in (*its, UNKNOWN_CAUSE) or len(its) < MOST_CAUSES:
                kept[kind] = kind
                if its is not None:
                    its.add(kind.cause)
            else:
                kept[kind] = kind._replace(cause=OTHER_CAUSE)
        return kept

    def of_texts(self, connection: Connection, texts: Sequence[str]) -> dict[str, int]:
        """Return the ids of tracebacks, which are created if missing."""
        digests = {text: compute_digest(text) for text in texts}
        rows = {each: {"digest": each, "text": text} for text, each in digests.items()}
        found = self._ids(connection, tracebacks, rows)
        return {text: found[each] for text, each in digests.items()}

    def _ids(self, connection: Connection, table: Table, rows: Mapping[bytes, Mapping[str, Any]]) -> dict[bytes, int]:
        """Return the id of each row by its digest."""
        known, fresh = self._known[table.name], self._fresh[table.name]
        found = {row: ids[row] for ids in (known, fresh) for row in rows if row in ids}
        missing = sorted(rows.keys() - found.keys())
        for some in (missing[at : at + DIGESTS_AT_ONCE] for at in range(0, len(missing), DIGESTS_AT_ONCE)):
            there = _read_ids(connection, table, some)
            if new := [rows[each] for each in some if each not in there]:
                # Another transaction may insert the same rows: then this one waits for it, and finds them.
                connection.execute(insert_missing(connection, table), new)
                there = _read_ids(connection, table, some)
            found |= there
            fresh |= there
        return found


def _read_causes(connection: Connection, group_ids: Collection[int]) -> dict[int, set[str]]:
    """Return the causes of these groups."""
    query = select(kinds.c.group_id, kinds.c.cause).where(kinds.c.group_id.in_(sorted(group_ids))).distinct()
    found: dict[int, set[str]] = {id_: set() for id_ in group_ids}
    for row in connection.execute(query):
        found[row.group_id].add(row.cause)
    return found


def _build_kind_row(kind: LetterKind, group_id: int) -> dict[str, Any]:
    common = {name: value for name, value in kind._asdict().items() if name != "group"}
    of_group = {"handler": kind.group.handler, "error_class": kind.group.error_class}
    return {"digest": kind.digest, "group_id": group_id, **of_group, **common}


def _read_ids(connection: Connection, table: Table, digests: Sequence[bytes]) -> dict[bytes, int]:
    query = select(table.c.digest, table.c.id).where(table.c.digest.in_(bindparam("digests", expanding=True)))
    return {row.digest: row.id for row in connection.execute(query, {"digests": digests})}


#: Changes of tallies: (kind's id, status) → how many more, or fewer.
TallyChanges = Mapping[tuple[int, str], int]

_ADD_TALLY = text(
    "INSERT INTO tallies (kind_id, status, count) VALUES (:kind, :status, :count) "
    "ON CONFLICT (kind_id, status) DO UPDATE SET count = tallies.count + excluded.count"
)


def add_to_tallies(connection: Connection, changes: TallyChanges) -> None:
    """Update the tallies in the transaction that changes the letters.

    Rows are locked in one order: otherwise two transactions could deadlock.
    """
    rows = [{"kind": kind, "status": status, "count": count} for (kind, status), count in sorted(changes.items())]
    if rows := [row for row in rows if row["count"]]:
        connection.execute(_ADD_TALLY, rows)


#: Milliseconds of an hour.
HOUR_MS: Final = 3_600_000

_ADD_HOUR: Final = text(
    "INSERT INTO hours (kind_id, hour, count) VALUES (:kind, :hour, :count) "
    "ON CONFLICT (kind_id, hour) DO UPDATE SET count = hours.count + excluded.count"
)
_WIDEN_GROUP: Final = text(
    "UPDATE groups SET first_at = CASE WHEN first_at < :first THEN first_at ELSE :first END, "
    "last_at = CASE WHEN last_at > :last THEN last_at ELSE :last END "
    "WHERE id = :id AND (first_at > :first OR last_at < :last)"
)


def add_failure_hours(connection: Connection, failed: Mapping[tuple[int, int], int]) -> None:
    """Count failures by hour in the transaction that writes them.

    Parameters:
        failed: (kind's id, hour of Unix time) → failures.
    """
    rows = [{"kind": kind, "hour": hour, "count": count} for (kind, hour), count in sorted(failed.items())]
    if rows:
        connection.execute(_ADD_HOUR, rows)


def widen_group_times(connection: Connection, seen: Mapping[int, tuple[int, int]]) -> None:
    """Widen the times of the first and last failure of groups.

    Parameters:
        seen: group's id → the first and the last failure, ms since the epoch.
    """
    rows = [{"id": id_, "first": first, "last": last} for id_, (first, last) in sorted(seen.items())]
    if rows:
        connection.execute(_WIDEN_GROUP, rows)


#: Number of the latest resolved letters whose resolution times are read.
LATEST_RESOLVED: Final = 1_000


def count_by_handler(connection: Connection) -> list[tuple[str, str, str, int]]:
    """Return rows of handler, reason, status and number of letters, without zeros."""
    names = (kinds.c.handler, kinds.c.reason, tallies.c.status)
    counted = select(*names, func.sum(tallies.c.count)).join(kinds, kinds.c.id == tallies.c.kind_id)
    rows = connection.execute(counted.where(tallies.c.count > 0).group_by(*names).order_by(*names))
    return [(handler, reason, status, int(count)) for handler, reason, status, count in rows]


def count_failures_by_hour(connection: Connection, since: int) -> dict[int, int]:
    """Return the failures by hour of Unix time, from an hour on."""
    counted = select(hours.c.hour, func.sum(hours.c.count)).where(hours.c.hour >= since).group_by(hours.c.hour)
    return {hour: int(count) for hour, count in connection.execute(counted)}


def count_open_groups(connection: Connection) -> int:
    """Return how many groups have open letters."""
    open_ = (tallies.c.status == LetterStatus.OPEN, tallies.c.count > 0)
    groups = select(func.count(kinds.c.group_id.distinct())).join(tallies, tallies.c.kind_id == kinds.c.id)
    return int(connection.execute(groups.where(*open_)).scalar_one())


def find_oldest_open(connection: Connection) -> int | None:
    """Return the time of the oldest failure of an open letter, ms since the epoch."""
    oldest = select(letters.c.failed_at).where(letters.c.status == LetterStatus.OPEN)
    return connection.execute(oldest.order_by(letters.c.failed_at, letters.c.id).limit(1)).scalar()


def read_resolution_times(connection: Connection) -> list[int]:
    """Return the milliseconds from the last failure to the end of the letters that were resolved last; ascending."""
    took = select((letters.c.status_at - letters.c.failed_at).label("took"))
    took = (
        took.where(letters.c.status == LetterStatus.RESOLVED)
        .order_by(letters.c.status_at.desc())
        .limit(LATEST_RESOLVED)
    )
    return sorted(max(0, each) for each in connection.execute(took).scalars())
