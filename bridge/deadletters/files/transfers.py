"""Letters go into files and come back: out of one database into another, or out of an archive."""

import json
import time
from array import array
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from bridge.deadletters.files import exported
from bridge.deadletters.letters.filters import EVERYTHING, Filter
from bridge.deadletters.letters.meant import noted
from bridge.deadletters.store import clock, importing, trail
from bridge.deadletters.store.database import Database, said
from bridge.deadletters.store.exporting import facts_and_positions, ids_of, take_over
from bridge.deadletters.store.ids import Ids
from bridge.deadletters.store.whole import BYTES, Row, fitting, whole
from bridge.errors import DeskRefused, NoExport
from bridge.upkeep.facts import letters as letters_said

#: Most letters of one question, and of one transaction; fewer where their values are large.
AT_ONCE: Final = 200
#: The first line of an export has it.
FORMAT: Final = "celery-kafka-bridge dead letters"
#: Most lines that are told one by one that were refused.
TOLD: Final = 100


@dataclass(slots=True)
class Taken:
    """What became of the lines of a file.

    Attributes:
        added: letters that are in the database now, and were not.
        known: letters that were there already.
        refused: lines that could not be taken.
        why: of the first of them, the line's number and what is wrong with it.
    """

    added: int = 0
    known: int = 0
    refused: int = 0
    why: list[tuple[int, str]] = field(default_factory=list)

    @property
    def read(self) -> int:
        """How many lines were read."""
        return self.added + self.known + self.refused

    def to_data(self) -> dict[str, Any]:
        """As JSON."""
        return {
            "added": self.added,
            "known": self.known,
            "refused": self.refused,
            "why": [{"line": number, "why": why} for number, why in self.why],
        }


class Numbered(NamedTuple):
    """A letter of a file, and the line that it is."""

    line: int
    row: dict[str, Any]


@dataclass(frozen=True)
class Transfers:
    """Letters out of the database, and into it. Every method raises DeskUnavailable where it does not answer."""

    database: Database

    def lines(
        self,
        by: str,
        asked: Filter = EVERYTHING,
        heard: Callable[[int, int], None] = lambda done, count: None,
        shown: Callable[[Row], Row] = lambda row: row,
    ) -> Iterator[str]:
        """The letters of a filter as lines of JSON, oldest first, as `take` reads them; before them a line on them all.

        Which they are is decided at the beginning, and the trail has it before the first line is given: who, of what
        filter, and how many. One that has gone by its turn is left out. The last line of an export of everything says
        how far topics are recorded: who reads it has all that was recorded.

        Parameters:
            by: to whom they are given.
            heard: is told how many are done, and of how many.
            shown: a letter as who asks is shown it.
        """
        with self.database.reading() as connection:
            # In this order: what is recorded meanwhile may be in the export, and is recorded once more.
            facts, positions = facts_and_positions(connection)
            ids = array("q", ids_of(connection, asked))
        self._told(by, asked, len(ids))
        yield json.dumps({"format": FORMAT, **facts, "positions": []})
        at = 0
        while at < len(ids):
            with self.database.reading() as connection:
                some = fitting(connection, ids[at : at + AT_ONCE])
                rows = whole(connection, some)
            yield from (exported.line(shown(row)) for row in rows)
            at += len(some)
            heard(at, len(ids))
        if asked == EVERYTHING:
            yield json.dumps({"format": FORMAT, **facts, "positions": positions})

    def take(
        self, lines: Iterable[bytes], by: str, source: str, heard: Callable[[Taken], None] = lambda taken: None
    ) -> Taken:
        """Read lines into the database, in transactions of `AT_ONCE`; what is there already stays as it is.

        It can be interrupted and done again: each letter is taken once. A line that cannot be taken is refused, and the
        others are taken all the same. How far topics are recorded is taken over last, where every letter was taken.

        Parameters:
            source: the file's name, for the trail.
            heard: is told how far it is after each transaction.

        Raises:
            NoExport: the letters are of another Kafka than those of this database.
        """
        taken, ids = Taken(), Ids()
        batch: list[Numbered] = []
        size = 0
        for number, line in enumerate(lines, 1):
            if not line.strip():
                continue
            if (all_of_it := _said_of_all(line)) is not None:
                self._add(ids, batch, taken)
                self._take_over(all_of_it if not taken.refused else all_of_it | {"positions": []})
                continue
            try:
                row = exported.read(line)
                importing.check(row)
            except NoExport as error:
                _refuse(taken, number, str(error))
                continue
            batch.append(Numbered(number, row))
            size += len(line)
            if len(batch) == AT_ONCE or size > 4 * BYTES:
                self._add(ids, batch, taken)
                size = 0
                heard(taken)
        self._add(ids, batch, taken)
        self._note(taken, by, source)
        return taken

    def _add(self, ids: Ids, batch: list[Numbered], taken: Taken) -> None:
        self._add_some(ids, batch, taken)
        batch.clear()

    def _add_some(self, ids: Ids, some: Sequence[Numbered], taken: Taken) -> None:
        """Write these; where the database refuses them, by halves, until it is known which one it is."""
        if not some:
            return
        ids.forget()
        try:
            with self.database.writing() as connection:
                added = importing.add(connection, ids, [each.row for each in some])
        except DeskRefused as error:
            if len(some) == 1:
                _refuse(taken, some[0].line, f"the database does not take it ({said(error.__cause__ or error)}).")
                return
            half = len(some) // 2
            self._add_some(ids, some[:half], taken)
            self._add_some(ids, some[half:], taken)
            return
        ids.keep()
        taken.added += added
        taken.known += len(some) - added

    def _take_over(self, all_of_it: dict[str, Any]) -> None:
        with self.database.writing() as connection:
            take_over(connection, all_of_it)

    def _told(self, by: str, asked: Filter, count: int) -> None:
        with self.database.writing() as connection:
            words = f"{letters_said(count)}: {noted(asked)}"
            trail.write(connection, clock.now(connection), by, "export", words)

    def _note(self, taken: Taken, by: str, source: str) -> None:
        if taken.added:
            with self.database.writing() as connection:
                trail.write(
                    connection, int(time.time() * 1000), by, "import", f"{letters_said(taken.added)} from {source}"
                )


def _said_of_all(line: bytes) -> dict[str, Any] | None:
    """What a file says of all its letters; `None`: the line is a letter's."""
    if FORMAT.encode() not in line[:100]:
        return None
    try:
        found = json.loads(line)
    except ValueError:
        return None
    return found if isinstance(found, dict) and found.get("format") == FORMAT else None


def _refuse(taken: Taken, number: int, why: str) -> None:
    taken.refused += 1
    if len(taken.why) < TOLD:
        taken.why.append((number, why))
