"""Who did what, when and why: the audit log, a page at a time."""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from bridge.deadletters.questions.shown import moment
from bridge.deadletters.store import clock, trail
from bridge.deadletters.store.database import Database
from bridge.deadletters.store.trail import Entry

#: Entries of one question, where all are asked for.
AT_ONCE: Final = 500


class Done(NamedTuple):
    """A part of the audit log, newest first.

    Attributes:
        next: behind which entry it goes on; `None`: there is no more.
    """

    entries: tuple[Entry, ...]
    next: int | None


@dataclass(frozen=True)
class Trail:
    """What people did, and plans. Every method raises DeskUnavailable where the database does not answer."""

    database: Database

    def page(self, by: str = "", what: Sequence[str] = (), before: int | None = None, limit: int = 50) -> Done:
        """What was done, newest first.

        Parameters:
            by: who, as they are named; empty: anybody.
            what: "replay", "note", …; empty: anything.
            before: `next` of the page that it follows.
        """
        with self.database.reading() as connection:
            found = trail.page(connection, by, what, before, limit + 1)
        more = len(found) > limit
        return Done(tuple(found[:limit]), found[limit - 1].id if more else None)

    def lines(self, to: str, by: str = "", what: Sequence[str] = ()) -> Iterator[str]:
        """All of it as lines of JSON, newest first; what is done meanwhile is not in it.

        Parameters:
            to: who is given them: it has that itself before a line leaves, with what of it, and how many.
            by, what: as `page`.
        """
        of = "".join([" of the audit log", f", by {by}" if by else "", f", {' or '.join(what)}" if what else ""])
        with self.database.writing() as connection:
            count = trail.count(connection, by, what)
            said = f"{count:,} line{'' if count == 1 else 's'}{of}"
            before = trail.write(connection, clock.now(connection), to, "export", said)
        while True:
            found = self.page(by, what, before, AT_ONCE)
            for each in found.entries:
                yield json.dumps(each._asdict() | {"at": moment(each.at)})
            if found.next is None:
                return
            before = found.next

    def add(self, by: str, what: str, said: str) -> None:
        """Write down what somebody did that is not the database's: halted a topic, changed a policy."""
        with self.database.writing() as connection:
            trail.write(connection, clock.now(connection), by, what, said)
