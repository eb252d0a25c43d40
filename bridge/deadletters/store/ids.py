"""The ids of what many letters share (groups, kinds, tracebacks): read or made in bulk, and remembered."""

from collections.abc import Collection, Mapping, Sequence
from typing import Any, Final

from sqlalchemy import Connection, Table, bindparam, select
from sqlalchemy.dialects import postgresql, sqlite

from bridge.deadletters.letters.letter import OTHER_CAUSE, UNKNOWN_CAUSE, Kind, digest
from bridge.deadletters.store.schema import groups, kinds, tracebacks

#: Most that are remembered of each table; with more of them everything is looked up anew.
REMEMBERED: Final = 50_000
#: Digests in one statement.
AT_ONCE: Final = 1_000
#: Causes of a group; letters with a further one have the cause "other": messages may vary without end, kinds may not.
MOST_CAUSES: Final = 50


class Ids:
    """The ids of groups, kinds and tracebacks, by their digests.

    What was read or made in a transaction counts for others once `keep` says that it was committed. Whoever's
    transaction failed must `forget`: what it has made is not there, and what it knew may have been cleaned up.
    """

    def __init__(self) -> None:
        self._known: dict[str, dict[bytes, int]] = {table.name: {} for table in (groups, kinds, tracebacks)}
        self._fresh: dict[str, dict[bytes, int]] = {name: {} for name in self._known}

    def keep(self) -> None:
        """The transaction was committed."""
        for name, fresh in self._fresh.items():
            known = self._known[name]
            if len(known) + len(fresh) > REMEMBERED:
                known.clear()
            known |= fresh
            fresh.clear()

    def forget(self) -> None:
        """The transaction was not, or that is not known."""
        for ids in (*self._known.values(), *self._fresh.values()):
            ids.clear()

    def of_kinds(self, connection: Connection, wanted: Mapping[Kind, int]) -> dict[Kind, tuple[int, int]]:
        """The ids of kinds and of their groups, made where there are none.

        Parameters:
            wanted: with each a time (ms since the epoch) at which one of it failed.
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
        rows = {kind.digest: _row(kind, group_ids[each]) for each, kind in kept.items()}
        of_kinds = self._ids(connection, kinds, rows)
        return {each: (of_kinds[kind.digest], group_ids[each]) for each, kind in kept.items()}

    def _bounded(self, connection: Connection, group_ids: Mapping[Kind, int]) -> dict[Kind, Kind]:
        """The kinds as they are kept: with the cause "other" where their group has the most causes already."""
        known, fresh = self._known[kinds.name], self._fresh[kinds.name]
        unseen = {id_ for kind, id_ in group_ids.items() if not (kind.digest in known or kind.digest in fresh)}
        if not unseen:
            return {kind: kind for kind in group_ids}
        causes = _causes(connection, unseen)
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
        """The ids of tracebacks, made where there are none."""
        digests = {text: digest(text) for text in texts}
        rows = {each: {"digest": each, "text": text} for text, each in digests.items()}
        found = self._ids(connection, tracebacks, rows)
        return {text: found[each] for text, each in digests.items()}

    def _ids(self, connection: Connection, table: Table, rows: Mapping[bytes, Mapping[str, Any]]) -> dict[bytes, int]:
        """Digest → id of each row."""
        known, fresh = self._known[table.name], self._fresh[table.name]
        found = {each: ids[each] for ids in (known, fresh) for each in rows if each in ids}
        missing = sorted(rows.keys() - found.keys())
        for some in (missing[at : at + AT_ONCE] for at in range(0, len(missing), AT_ONCE)):
            there = _read(connection, table, some)
            if new := [rows[each] for each in some if each not in there]:
                # Another may make the same at once: then it waits for that one, and finds them.
                connection.execute(_insert(connection, table), new)
                there = _read(connection, table, some)
            found |= there
            fresh |= there
        return found


def _causes(connection: Connection, group_ids: Collection[int]) -> dict[int, set[str]]:
    """The causes that these groups have."""
    asked = select(kinds.c.group_id, kinds.c.cause).where(kinds.c.group_id.in_(sorted(group_ids))).distinct()
    found: dict[int, set[str]] = {id_: set() for id_ in group_ids}
    for row in connection.execute(asked):
        found[row.group_id].add(row.cause)
    return found


def _row(kind: Kind, group_id: int) -> dict[str, Any]:
    common = {name: value for name, value in kind._asdict().items() if name != "group"}
    of_group = {"handler": kind.group.handler, "error_class": kind.group.error_class}
    return {"digest": kind.digest, "group_id": group_id, **of_group, **common}


def _read(connection: Connection, table: Table, digests: Sequence[bytes]) -> dict[bytes, int]:
    asked = select(table.c.digest, table.c.id).where(table.c.digest.in_(bindparam("digests", expanding=True)))
    return {row.digest: row.id for row in connection.execute(asked, {"digests": digests})}


def _insert(connection: Connection, table: Table) -> Any:
    insert = postgresql.insert if connection.dialect.name == "postgresql" else sqlite.insert
    return insert(table).on_conflict_do_nothing(index_elements=["digest"])
