"""The audit log by pages, and the notes that people write on letters and groups."""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from bridge.deadletters.db import audit_rows, letter_rows, row_scope, sql
from bridge.deadletters.db.audit_rows import ALL_ENTRIES, AuditEntry, EntryFilter
from bridge.deadletters.db.database import Database
from bridge.deadletters.model.letter_view import LetterAct, format_moment
from bridge.errors import NoSuchGroup, NoSuchLetter
from bridge.formats.text_forms import format_count

#: Entries that are read at once when all are asked for.
ENTRIES_AT_ONCE: Final = 500


def describe_entry(entry: AuditEntry) -> dict[str, Any]:
    """Return an entry as programs read it."""
    return entry._asdict() | {"at": format_moment(entry.at)}


class AuditPage(NamedTuple):
    """A part of the audit log, newest first.

    Attributes:
        next: the entry after which the next page begins; `None`: this is the last page.
    """

    entries: tuple[AuditEntry, ...]
    next: int | None


@dataclass(frozen=True)
class AuditLog:
    """The audit log of people and plans. Every method raises DeskUnavailable if the database does not answer."""

    database: Database

    def page(self, wanted: EntryFilter = ALL_ENTRIES, before: int | None = None, limit: int = 50) -> AuditPage:
        """Return a page of the audit log, newest first.

        Parameters:
            before: `next` of the page before.
        """
        with self.database.reading() as connection:
            found = audit_rows.read_entries(connection, wanted, before, limit + 1)
        more = len(found) > limit
        return AuditPage(tuple(found[:limit]), found[limit - 1].id if more else None)

    def count(self, wanted: EntryFilter) -> int:
        """Return the number of entries."""
        with self.database.reading() as connection:
            return audit_rows.count_entries(connection, wanted)

    def count_by_actor(self, wanted: EntryFilter, limit: int) -> list[tuple[str, int]]:
        """Return the actors with the most entries, each with its number of entries."""
        with self.database.reading() as connection:
            return audit_rows.count_by_actor(connection, wanted, limit)

    def entries(self, to: str, wanted: EntryFilter = ALL_ENTRIES) -> Iterator[AuditEntry]:
        """Yield the entries, newest first, without later ones.

        Parameters:
            to: the reader, for an audit entry that is written before the first one is read.
        """
        with self.database.writing() as connection:
            said = f"{format_count(audit_rows.count_entries(connection, wanted), 'line')}{_describe_filter(wanted)}"
            before: int | None = audit_rows.write_entry(connection, sql.read_clock(connection), to, "export", said)
        while before is not None:
            found = self.page(wanted, before, ENTRIES_AT_ONCE)
            yield from found.entries
            before = found.next

    def lines(self, to: str, wanted: EntryFilter = ALL_ENTRIES) -> Iterator[str]:
        """Yield the entries as lines of JSON, as `entries` does."""
        return (json.dumps(describe_entry(entry)) for entry in self.entries(to, wanted))

    def add(self, by: str, what: str, said: str) -> None:
        """Add an entry for an act outside the database: a topic was halted, a policy changed."""
        with self.database.writing() as connection:
            audit_rows.write_entry(connection, sql.read_clock(connection), by, what, said)


@dataclass(frozen=True)
class LetterNotes:
    """The notes of people. Every method raises DeskUnavailable if the database does not answer."""

    database: Database

    def on_letters(self, ids: Sequence[int], said: str, by: str) -> None:
        """Add a note to all of these letters, or to none.

        Raises:
            NoSuchLetter: one of them does not exist.
        """
        with self.database.writing() as connection:
            names = letter_rows.name_letters(connection, ids)
            if missing := [id_ for id_ in ids if id_ not in names]:
                raise NoSuchLetter(f"There is no dead letter {', '.join(map(str, missing))}: nothing was noted.")
            at = sql.read_clock(connection)
            for id_ in dict.fromkeys(ids):
                audit_rows.write_entry(connection, at, by, "note", said, letter_id=id_, letter=names[id_])

    def on_group(self, id_: int, said: str, by: str, what: str = "note") -> None:
        """Add a note to a group; it is shown with each of its letters.

        Parameters:
            what: "note", or "shadow": the result of a shadow replay.

        Raises:
            NoSuchGroup: there is no such group.
        """
        with self.database.writing() as connection:
            if not letter_rows.is_group_there(connection, id_):
                raise NoSuchGroup(f"There is no group {id_}: nothing was noted.")
            row_scope.require_own_group(connection, id_)
            audit_rows.write_entry(connection, sql.read_clock(connection), by, what, said, group_id=id_)

    def of_group(self, id_: int) -> list[LetterAct]:
        """Return the notes on a group and the actions on it, oldest first."""
        with self.database.reading() as connection:
            found = audit_rows.read_history(connection, group_id=id_)
        return [LetterAct(each.at, each.by, each.what, each.said, each.plan_id) for each in found]


def _describe_filter(wanted: EntryFilter) -> str:
    """Return the words for the entries that were exported."""
    ends = ((" since ", wanted.since), (" until ", wanted.until))
    times = [f"{word}{format_moment(at)}" for word, at in ends if at is not None]
    kinds = f", {' or '.join(wanted.what)}" if wanted.what else ""
    return "".join([" of the audit log", f", by {wanted.by}" if wanted.by else "", kinds, *times])
