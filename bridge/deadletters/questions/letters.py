"""Dead letters looked at: a list by filter, how many there are, one with all that is known of it."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from bridge.deadletters.letters.filters import HIGHEST, Cursor, Filter
from bridge.deadletters.letters.letter import Status, unpacked
from bridge.deadletters.letters.tracebacks import with_message
from bridge.deadletters.questions.shown import Act, Count, Failed, Listed, Page, Shown
from bridge.deadletters.store import counting, edits, newer, pages, trail
from bridge.deadletters.store import letters as stored
from bridge.deadletters.store.counting import Weight
from bridge.deadletters.store.database import Database
from bridge.errors import NoSuchLetter
from bridge.records.attempts import Attempts


@dataclass(frozen=True)
class Letters:
    """What is asked of letters. Every method raises DeskUnavailable where the database does not answer."""

    database: Database

    def page(self, asked: Filter, limit: int = 50, before: Cursor | None = None) -> Page:
        """The newest letters of a filter, or those behind another page; by the time of their last failure.

        However many letters there are, it takes a bounded time; so it may be short, or empty, and yet have a next one.
        """
        with self.database.reading() as connection:
            found = pages.page(connection, asked, limit, before)
            rows = stored.lines(connection, [each.id for each in found.letters])
        return Page(tuple(map(_listed, rows)), found.next)

    def newer(self, asked: Filter, limit: int, after: Cursor) -> Page:
        """The letters of a filter that stand just in front of one, newest first; `next` leads further in front.

        As bounded as `page`; where all that it looked at is something else, it has none and yet a next one.
        """
        with self.database.reading() as connection:
            found = newer.newer(connection, asked, limit, after)
            rows = stored.lines(connection, [each.id for each in reversed(found.letters)])
        return Page(tuple(map(_listed, rows)), found.next)

    def each(self, asked: Filter) -> Iterator[Listed]:
        """All letters of a filter, newest first, page after page: as many as the caller takes."""
        before: Cursor | None = None
        while True:
            page = self.page(asked, 200, before)
            yield from page.letters
            if page.next is None:
                return
            before = page.next

    def count(self, asked: Filter) -> Count:
        """How many letters a filter means: exactly where counts are kept or few fit, else "at least" so many."""
        with self.database.reading() as connection:
            return Count(*counting.count(connection, asked))

    def weight(self, asked: Filter, most: int) -> Weight:
        """How many letters a filter means, exactly, and the bytes of their values; one more than `most` at most."""
        with self.database.reading() as connection:
            return counting.weight(connection, asked, most)

    def one(self, id_: int) -> Shown:
        """A letter with all that is known of it.

        Raises:
            NoSuchLetter: there is none of that number (any more).
        """
        with self.database.reading() as connection:
            row = stored.one(connection, id_) if id_ <= HIGHEST else None
            if row is None:
                raise NoSuchLetter(
                    f"There is no dead letter {id_}: it was never there, or was cleaned up after its end."
                )
            return Shown(
                **_of_letter(row),
                history=tuple(map(_failed, stored.history(connection, id_))),
                plans=tuple(map(_plan, stored.in_plans(connection, id_))),
                edits=tuple(map(_edit, edits.of_letter(connection, id_))),
                trail=tuple(map(_entry, trail.of(connection, letter_id=id_))),
            )

    def at(self, topic: str, partition: int, offset: int, handler: str | None = None) -> list[Listed]:
        """The letters of a source record, one a handler: what `orders-3-1234` names."""
        with self.database.reading() as connection:
            found = map(_listed, stored.at(connection, topic, partition, offset))
            return [each for each in found if handler in (None, each.handler)]


def _listed(row: Any) -> Listed:
    return Listed(
        id=row.id,
        handler=row.handler,
        topic=row.topic,
        partition=row.partition,
        offset=row.offset,
        key=row.key,
        reason=row.reason,
        error_class=row.error_class,
        error_message=row.error_message,
        status=Status(row.status),
        runs=row.runs,
        failed_at=row.failed_at,
        group=row.group_id,
        version=row.version,
        origin=row.origin,
        consumer_group=row.consumer_group,
        place=row.place,
        failures=row.failures,
        occurrences=row.occurrences,
        value_size=row.value_size,
        plan=row.plan_id,
        lost=row.lost,
    )


def _of_letter(row: Any) -> dict[str, Any]:
    return {
        "listed": _listed(row),
        "status_at": row.status_at,
        "topic_id": row.topic_id,
        "timestamp": row.timestamp,
        "value": row.value,
        "kept": row.value is not None or row.value_size == -1,
        "headers": unpacked(row.headers),
        "number": row.number,
        "attempts": Attempts(row.failed, row.lost, row.postponed, row.replayed),
        "traceback": with_message(row.traceback or "", row.error_message),
        "first_failed_at": row.first_failed_at,
        "recorded_at": row.recorded_at,
        "where": _where(row),
    }


def _failed(row: Any) -> Failed:
    return Failed(
        number=row.number,
        failed_at=row.failed_at,
        reason=row.reason,
        error_class=row.error_class,
        error_message=row.error_message,
        traceback=with_message(row.traceback or "", row.error_message),
        version=row.version,
        runs=row.runs,
        where=_where(row),
        plan=row.plan_id,
        mended=row.value_size is not None,
        value=None if row.value is None else bytes(row.value),
        kept=row.value is not None or (row.value_size or -1) < 0,
    )


def _plan(row: Any) -> Act:
    said = "; ".join(filter(None, (row.reason, row.why)))
    return Act(row.at, row.by, row.what, said, plan=row.id, state=row.state, state_at=row.state_at)


def _edit(edit: edits.Edit) -> Act:
    return Act(edit.at, edit.by, edit.how, "", plan=edit.plan_id, value=edit.value)


def _entry(entry: trail.Entry) -> Act:
    return Act(entry.at, entry.by, entry.what, entry.said, plan=entry.plan_id)


def _where(row: Any) -> str:
    return f"{row.letter_topic}-{row.letter_partition}-{row.letter_offset}"
