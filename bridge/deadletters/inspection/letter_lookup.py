"""Dead letters by filter, by source record or by id, how many there are, and why a filter finds none."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, fields
from difflib import get_close_matches
from typing import Any, Final

from bridge.deadletters.db import audit_rows, letter_payload, letter_query, letter_rows
from bridge.deadletters.db.database import Database
from bridge.deadletters.db.letter_query import LetterWeight
from bridge.deadletters.db.value_search import find_among
from bridge.deadletters.model.letter_filter import HIGHEST, LetterCursor, LetterFilter
from bridge.deadletters.model.letter_view import (
    LetterAct,
    LetterCount,
    LetterFailure,
    LetterLine,
    LetterPage,
    LetterView,
)
from bridge.deadletters.model.stored_letter import OTHER_CAUSE, REASONS, UNKNOWN_CAUSE, LetterStatus, unpack_headers
from bridge.deadletters.model.traceback_parts import restore_message
from bridge.errors import NoSuchLetter
from bridge.formats.attempt_history import read_history
from bridge.formats.delivery import Attempts
from bridge.formats.foreign_dead_letter import CONFLUENT, CONNECT, KARAFKA, SHARE_GROUP, SMALLRYE, SPRING, UNKNOWN
from bridge.handler_routes import Routes


@dataclass(frozen=True)
class LetterLookup:
    """The lookup of letters. Every method raises DeskUnavailable if the database does not answer."""

    database: Database

    def page(self, filter_: LetterFilter, limit: int = 50, before: LetterCursor | None = None) -> LetterPage:
        """Return a page of a filter's letters, newest first by the last failure.

        It takes bounded time, so a page may be short or empty and not the last.
        """
        with self.database.reading() as connection:
            found = letter_query.find_letter_page(connection, filter_, limit, before)
            rows = letter_rows.read_letter_lines(connection, [letter.id for letter in found.letters])
        return LetterPage(tuple(map(_build_line, rows)), found.next, found.unread)

    def newer(self, filter_: LetterFilter, limit: int, after: LetterCursor) -> LetterPage:
        """Return the letters of a filter just newer than a cursor, newest first; `next` continues to newer ones.

        Like `page`, it takes bounded time, so it may be empty and not the last.
        """
        with self.database.reading() as connection:
            found = letter_query.find_newer_letters(connection, filter_, limit, after)
            rows = letter_rows.read_letter_lines(connection, [letter.id for letter in reversed(found.letters)])
        return LetterPage(tuple(map(_build_line, rows)), found.next, found.unread)

    def each(self, filter_: LetterFilter, unread: Callable[[int], None] = lambda count: None) -> Iterator[LetterLine]:
        """Yield all letters of a filter, newest first, page by page.

        Parameters:
            unread: called with the number of letters of a page that could not be searched by value.
        """
        before: LetterCursor | None = None
        while True:
            page = self.page(filter_, 200, before)
            yield from page.letters
            if page.unread:
                unread(page.unread)
            if page.next is None:
                return
            before = page.next

    def count(self, filter_: LetterFilter) -> LetterCount:
        """Return the number of a filter's letters: exact if counts are kept or few match, else a lower bound."""
        with self.database.reading() as connection:
            return LetterCount(*letter_query.count_letters(connection, filter_))

    def weight(self, filter_: LetterFilter, most: int) -> LetterWeight:
        """Return the exact number of a filter's letters and the bytes of their values, of at most `most` + 1
        letters.
        """
        among = find_among(self.database, filter_)
        with self.database.reading() as connection:
            return letter_query.weigh_letters(connection, filter_, most, among)

    def one(self, id_: int) -> LetterView:
        """Return a letter in full.

        Raises:
            NoSuchLetter: there is no such letter (any more).
        """
        with self.database.reading() as connection:
            row = letter_rows.read_letter(connection, id_) if id_ <= HIGHEST else None
            if row is None:
                raise NoSuchLetter(
                    f"There is no dead letter {id_}: it was never there, or was cleaned up after its end."
                )
            letter = LetterView(
                **_letter_fields(row),
                history=tuple(map(_build_failure, letter_rows.read_letter_history(connection, id_))),
                plans=tuple(map(_build_plan_act, letter_rows.read_plans_of_letter(connection, id_))),
                edits=tuple(map(_build_edit_act, letter_payload.read_letter_edits(connection, id_))),
                trail=tuple(map(_build_entry_act, audit_rows.read_history(connection, letter_id=id_))),
            )
        return self.database.payloads.read_letter(letter)

    def at(self, topic: str, partition: int, offset: int, handler: str | None = None) -> list[LetterLine]:
        """Return the letters of a source record, one for each handler."""
        with self.database.reading() as connection:
            found = map(_build_line, letter_rows.read_letters_of_record(connection, topic, partition, offset))
            return [each for each in found if handler in (None, each.handler)]


#: The columns of a line with another name than its field, and the names of all its fields.
_COLUMNS: Final = {"group": "group_id", "plan": "plan_id"}
_LINE_FIELDS: Final = [(each.name, _COLUMNS.get(each.name, each.name)) for each in fields(LetterLine)]


def _build_line(row: Any) -> LetterLine:
    found = {name: getattr(row, column) for name, column in _LINE_FIELDS}
    return LetterLine(**found | {"status": LetterStatus(row.status)})


def _letter_fields(row: Any) -> dict[str, Any]:
    same = ("status_at", "topic_id", "timestamp", "value", "number", "first_failed_at", "recorded_at")
    return {name: getattr(row, name) for name in same} | {
        "listed": _build_line(row),
        "kept": row.value is not None or row.value_size == -1,
        "headers": unpack_headers(row.headers),
        "trace": row.trace or "",
        "made": read_history(row.attempt_history or ""),
        "attempts": Attempts(row.failed, row.lost, row.postponed, row.replayed),
        "traceback": restore_message(row.traceback or "", row.error_message),
        "where": _locate_record(row),
    }


def _build_failure(row: Any) -> LetterFailure:
    same = ("number", "failed_at", "reason", "error_class", "error_message", "version", "runs")
    return LetterFailure(
        **{name: getattr(row, name) for name in same},
        traceback=restore_message(row.traceback or "", row.error_message),
        where=_locate_record(row),
        plan=row.plan_id,
        mended=row.value_size is not None,
        value=None if row.value is None else bytes(row.value),
        kept=row.value is not None or (row.value_size or -1) < 0,
        made=read_history(row.attempt_history or ""),
    )


def _build_plan_act(row: Any) -> LetterAct:
    said = "; ".join(filter(None, (row.reason, row.why)))
    return LetterAct(row.at, row.by, row.what, said, plan=row.id, state=row.state, state_at=row.state_at)


def _build_edit_act(edit: letter_payload.PlanEdit) -> LetterAct:
    return LetterAct(edit.at, edit.by, edit.how, "", plan=edit.plan_id, value=edit.value)


def _build_entry_act(entry: audit_rows.AuditEntry) -> LetterAct:
    return LetterAct(entry.at, entry.by, entry.what, entry.said, plan=entry.plan_id)


def _locate_record(row: Any) -> str:
    return f"{row.letter_topic}-{row.letter_partition}-{row.letter_offset}"


#: The programs that write letters, by their labels.
ORIGINS: Final = ("bridge", SPRING, CONNECT, CONFLUENT, SHARE_GROUP, SMALLRYE, KARAFKA, UNKNOWN)
NOTHING_RECORDED: Final = (
    "nothing was recorded here yet ({}): run `bridge deadletters record`, or look without a database: "
    "bridge deadletters list --from-topic"
)
NO_CAUSE: Final = "No letter has the cause {!r}: `bridge deadletters groups --group N` lists the causes of a group."


@dataclass(frozen=True)
class AbsentNames:
    """The check for names of a filter that do not exist. Every method raises DeskUnavailable if the database does
    not answer.
    """

    routes: Routes
    database: Database

    def describe_absent(self, filter_: LetterFilter) -> list[str]:
        """Return a sentence for each name of a filter that does not exist; a single one if nothing is recorded.

        A handler, topic, reason, origin or consumer group exists if a letter had it, or the app or this version has it.
        """
        with self.database.reading() as connection:
            if not letter_rows.is_anything_recorded(connection):
                return [NOTHING_RECORDED.format(self.database.name)]
            ids, groups = letter_rows.find_missing_ids(connection, filter_)
            found = [f"There is no dead letter {id_}." for id_ in ids]
            found += [f"There is no group {id_}." for id_ in groups]
            ours: dict[str, Iterable[str]] = {
                "handlers": self.routes.handlers,
                "topics": self.routes.topics,
                "reasons": REASONS,
                "origins": ORIGINS,
                "consumer_groups": (),
                "causes": (UNKNOWN_CAUSE, OTHER_CAUSE),
            }
            for field, names in filter_.given():
                if field.name in ours:
                    known = {*letter_rows.read_known_names(connection, field), *ours[field.name]}
                    if field.name == "causes":
                        found += [NO_CAUSE.format(cause) for cause in names if cause not in known]
                    else:
                        found += explain_unknown_names(field.word, names, known)
        return found


def explain_unknown_names(what: str, asked: Iterable[str], known: Iterable[str]) -> Iterator[str]:
    """Yield a sentence for each unknown name, with the nearest known one (pure)."""
    there = sorted(filter(None, known))
    for name in asked:
        if name not in there:
            near = get_close_matches(name, there, 1)
            meant = f": is {near[0]!r} meant?" if near else f", of: {', '.join(there)}." if there else "."
            yield f"No letter has the {what} {name!r}{meant}"
