"""Letters in files: the format of a line, export and import.

Times are ISO 8601; bytes are base64, with the text beside them if they are one, and the base64 counts.
"""

import json
import time
from array import array
from base64 import b64decode, b64encode
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any, Final, NamedTuple

from bridge.deadletters.db import audit_rows, letter_transfer, sql
from bridge.deadletters.db.database import Database, explain_error
from bridge.deadletters.db.kind_rows import IdCache
from bridge.deadletters.db.letter_transfer import (
    BYTES_AT_ONCE,
    ExportedLetter,
    find_letter_ids,
    fit_in_memory,
    read_facts_and_positions,
    read_whole_letters,
    take_over_facts,
)
from bridge.deadletters.db.value_search import find_among
from bridge.deadletters.model.letter_filter import ALL_LETTERS, LetterFilter, describe_filter_for_audit
from bridge.deadletters.model.stored_letter import pack_headers, unpack_headers
from bridge.errors import DeskRefused, NoExport
from bridge.formats.untrusted_json import parse_json
from bridge.jobs.group_facts import format_letter_count as letters_said

#: Columns with times besides those that end in `_at`: ms since the epoch in the database.
_TIMES: Final = ("timestamp", "at")
#: Columns that every letter must have.
_NEEDED: Final = (
    "digest",
    "consumer_group",
    "topic",
    "topic_id",
    "partition",
    "offset",
    "handler",
    "status",
    "failed_at",
)
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MS: Final = timedelta(milliseconds=1)


def write_letter_line(stored: Mapping[str, Any]) -> str:
    """Return the line of a letter, without a line break.

    Parameters:
        stored: columns and their values; lists have such mappings in turn (`bridge.deadletters.db.letter_transfer`).
    """
    return json.dumps(_map_fields(stored, _write_field), separators=(", ", ": "))


def read_letter_line(text: str | bytes) -> dict[str, Any]:
    """Return the columns that `write_letter_line` was given.

    Raises:
        NoExport: the text is no line of an export.
    """
    try:
        found: Any = json.loads(text)
        if not isinstance(found, dict) or any(name not in found for name in _NEEDED):
            raise NoExport("it is no dead letter of an export.")
        return _map_fields(found, _read_field)
    except NoExport:
        raise
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError, OverflowError) as error:
        raise NoExport(f"it cannot be read ({type(error).__name__}).") from None


def _map_fields(found: Mapping[str, Any], one: Callable[[str, Any], Any]) -> dict[str, Any]:
    return {
        name: [_map_fields(each, one) for each in value]
        if isinstance(value, list) and value and isinstance(value[0], dict)
        else one(name, value)
        for name, value in found.items()
    }


def _write_field(name: str, value: Any) -> Any:
    if value is None:
        return None
    if name == "headers":
        return [[header, _write_bytes(part)] for header, part in unpack_headers(value)]
    if _is_time_field(name):
        return _write_time(value)
    return _write_bytes(value) if isinstance(value, bytes | memoryview) else value


def _read_field(name: str, value: Any) -> Any:
    if value is None:
        return None
    if name == "headers":
        return pack_headers([(str(header), None if part is None else _read_bytes(part)) for header, part in value])
    if _is_time_field(name):
        return value if isinstance(value, int) else (datetime.fromisoformat(value) - _EPOCH) // _MS
    return _read_bytes(value) if isinstance(value, dict) else value


def _is_time_field(name: str) -> bool:
    return name.endswith("_at") or name in _TIMES


def _write_time(value: int) -> str | int:
    """Return a time as ISO 8601, or the number if no calendar has it."""
    try:
        return (_EPOCH + value * _MS).isoformat(timespec="milliseconds")
    except OverflowError:
        return value


def _write_bytes(value: bytes | memoryview | None) -> dict[str, str] | None:
    if value is None:
        return None
    plain = bytes(value)
    found = {"base64": b64encode(plain).decode()}
    try:
        return {"text": plain.decode(), **found}
    except UnicodeDecodeError:
        return found


def _read_bytes(value: Mapping[str, str]) -> bytes:
    return b64decode(value["base64"], validate=True)


#: Most letters of one query, and of one transaction; fewer if their values are large.
AT_ONCE: Final = 200
#: The format's name, in the first line of an export.
FORMAT: Final = "celery-kafka-bridge dead letters"
#: Most refused lines that are reported one by one.
TOLD: Final = 100


@dataclass(slots=True)
class ImportResult:
    """The result of an import.

    Attributes:
        added: new letters.
        known: letters that existed already.
        refused: invalid lines.
        why: number and fault of the first refused lines.
    """

    added: int = 0
    known: int = 0
    refused: int = 0
    why: list[tuple[int, str]] = field(default_factory=list)

    @property
    def read(self) -> int:
        """Return the number of lines that were read."""
        return self.added + self.known + self.refused

    def to_data(self) -> dict[str, Any]:
        """Return the result of the import as JSON-compatible data."""
        return {
            "added": self.added,
            "known": self.known,
            "refused": self.refused,
            "why": [{"line": number, "why": why} for number, why in self.why],
        }


class NumberedLetter(NamedTuple):
    """A letter of a file with its line number."""

    line: int
    row: dict[str, Any]


@dataclass(frozen=True)
class LetterTransfers:
    """The export and import of letters. Every method raises DeskUnavailable if the database does not answer."""

    database: Database

    def lines(
        self,
        by: str,
        filter_: LetterFilter = ALL_LETTERS,
        heard: Callable[[int, int], None] = lambda done, count: None,
        shown: Callable[[ExportedLetter], ExportedLetter] = lambda row: row,
    ) -> Iterator[str]:
        """Yield a header line, then the letters of a filter as lines of JSON, oldest first, as `take` reads them.

        The letters are selected at the beginning, and an audit entry with actor, filter and count is written before the
        first line. A letter that is deleted meanwhile is left out. The last line of an export of all letters has the
        recorded positions of the topics.

        Parameters:
            by: the reader, for the audit entry.
            heard: called with the letters so far, and all.
            shown: masks a letter for the reader.
        """
        among = find_among(self.database, filter_)
        with self.database.reading() as connection:
            # Positions first: letters that are recorded meanwhile are recorded again after an import.
            facts, positions = read_facts_and_positions(connection)
            ids = array("q", find_letter_ids(connection, filter_, among))
        with self.database.writing() as connection:
            words = f"{letters_said(len(ids))}: {describe_filter_for_audit(filter_)}"
            audit_rows.write_entry(connection, sql.read_clock(connection), by, "export", words)
        yield json.dumps({"format": FORMAT, **facts, "positions": []})
        at = 0
        while at < len(ids):
            with self.database.reading() as connection:
                some = fit_in_memory(connection, ids[at : at + AT_ONCE])
                rows = read_whole_letters(connection, some)
            yield from (write_letter_line(shown(row)) for row in rows)
            at += len(some)
            heard(at, len(ids))
        if filter_ == ALL_LETTERS:
            yield json.dumps({"format": FORMAT, **facts, "positions": positions})

    def take(
        self, lines: Iterable[bytes], by: str, source: str, heard: Callable[[ImportResult], None] = lambda taken: None
    ) -> ImportResult:
        """Import lines in transactions of `AT_ONCE`; existing letters stay as they are.

        It can be interrupted and run again: each letter is imported once. An invalid line is refused; the others are
        imported. The recorded positions of topics are taken over last, if no letter was refused.

        Parameters:
            source: the file's name, for the audit log.
            heard: called after each transaction.

        Raises:
            NoExport: the letters are of another Kafka cluster than those of this database.
        """
        taken, ids = ImportResult(), IdCache()
        batch: list[NumberedLetter] = []
        size = 0
        for number, line in enumerate(lines, 1):
            if not line.strip():
                continue
            if (all_of_it := _read_header_line(line)) is not None:
                self._add(ids, batch, taken)
                with self.database.writing() as connection:
                    take_over_facts(connection, all_of_it if not taken.refused else all_of_it | {"positions": []})
                continue
            try:
                row = read_letter_line(line)
                letter_transfer.check_imported_letter(row)
            except NoExport as error:
                _refuse_line(taken, number, str(error))
                continue
            row["readable"] = self.database.payloads.read(row["value"], unpack_headers(row["headers"])).value
            batch.append(NumberedLetter(number, row))
            size += len(line)
            if len(batch) == AT_ONCE or size > 4 * BYTES_AT_ONCE:
                self._add(ids, batch, taken)
                size = 0
                heard(taken)
        self._add(ids, batch, taken)
        if taken.added:
            words = f"{letters_said(taken.added)} from {source}"
            with self.database.writing() as connection:
                audit_rows.write_entry(connection, int(time.time() * 1000), by, "import", words)
        return taken

    def _add(self, ids: IdCache, batch: list[NumberedLetter], taken: ImportResult) -> None:
        self._add_some(ids, batch, taken)
        batch.clear()

    def _add_some(self, ids: IdCache, some: Sequence[NumberedLetter], taken: ImportResult) -> None:
        """Import letters; if the database refuses them, halve the batch until the invalid one is found."""
        if not some:
            return
        ids.forget()
        try:
            with self.database.writing() as connection:
                added = letter_transfer.import_letters(connection, ids, [each.row for each in some])
        except DeskRefused as error:
            if len(some) == 1:
                _refuse_line(
                    taken, some[0].line, f"the database does not take it ({explain_error(error.__cause__ or error)})."
                )
                return
            half = len(some) // 2
            self._add_some(ids, some[:half], taken)
            self._add_some(ids, some[half:], taken)
            return
        ids.keep()
        taken.added += added
        taken.known += len(some) - added


def _read_header_line(line: bytes) -> dict[str, Any] | None:
    """Return the header of a file; `None` if the line is a letter's."""
    if FORMAT.encode() not in line[:100]:
        return None
    try:
        found = parse_json(line)
    except ValueError:
        return None
    return found if isinstance(found, dict) and found.get("format") == FORMAT else None


def _refuse_line(taken: ImportResult, number: int, why: str) -> None:
    taken.refused += 1
    if len(taken.why) < TOLD:
        taken.why.append((number, why))
