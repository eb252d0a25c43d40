"""The edit of a letter's value: the text of a browser's form, the new value that the handler accepts, and the plan
that sends it.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from celery import Celery

from bridge.deadletters.db import (
    audit_rows,
    letter_payload,
    plan_counts,
    plan_item_rows,
    plan_order_rows,
    plan_rows,
    sql,
)
from bridge.deadletters.db.database import Database
from bridge.deadletters.db.filter_sql import select_matching_letters
from bridge.deadletters.db.letter_payload import LetterValue, PlanEdit
from bridge.deadletters.db.plan_item_rows import PlanItem
from bridge.deadletters.db.value_search import find_among
from bridge.deadletters.editing.handler_check import HandlerCheck, HandlerVerdict, ask_handler
from bridge.deadletters.editing.json_patch import PatchRun, ValuePatch
from bridge.deadletters.editing.value_diff import count_changes, diff_values
from bridge.deadletters.model import exact_json
from bridge.deadletters.model.bulk_plan import BulkPlan, PlanCounts, PlanItemState, PlanKind, PlanOptions, PlanState
from bridge.deadletters.model.letter_filter import LetterFilter
from bridge.deadletters.model.letter_view import LetterView
from bridge.deadletters.model.stored_letter import LetterStatus
from bridge.deadletters.replay.plan_action import explain_lateness, find_plan_makers
from bridge.deadletters.replay.plan_progress import require_plan
from bridge.errors import EditRefused, NoJson, NoSuchLetter
from bridge.formats.delivery import Headers
from bridge.jobs.group_facts import format_letter_count as letters_said

#: Most bytes that a form edits.
LARGEST: Final = 400_000
#: The advice for all other values.
ELSEWHERE: Final = "edit it in a terminal: bridge deadletters edit LETTER --file FILE"


class OfferedText(NamedTuple):
    """A value as text to be edited.

    Attributes:
        is_json: whether it is JSON, indented for the form only.
    """

    text: str
    is_json: bool


def offer_text(value: bytes | None) -> OfferedText:
    """Return a value as text that a form preserves.

    Raises:
        EditRefused: a form would not preserve it; the message says what to do.
    """
    if value is None:
        return OfferedText("", False)
    if len(value) > LARGEST:
        raise EditRefused(f"A value of {len(value):,} bytes is too large for a form: {ELSEWHERE}.")
    try:
        return OfferedText(
            "".join(map(_escape_character, "\n".join(exact_json.write_json_lines(exact_json.parse_json(value))))), True
        )
    except (NoJson, RecursionError):
        pass
    try:
        text = value.decode()
    except UnicodeDecodeError:
        raise EditRefused(f"This value is no text: {ELSEWHERE}.") from None
    if any(not _is_kept_by_browser(each) for each in text):
        raise EditRefused(f"This value has characters that a browser does not keep: {ELSEWHERE}.")
    return OfferedText(text, False)


def read_typed_text(text: str, before: bytes | None) -> bytes:
    """Return the value of a form's text.

    Parameters:
        before: the value that was offered. If both are JSON, the result is written as a patch writes it.
    """
    text = text.replace("\r\n", "\n").replace("\r", "\n")
    if before is not None:
        try:
            exact_json.parse_json(before)
            return exact_json.write_json(exact_json.parse_json(text), before)
        except NoJson:
            pass
    return text.encode("utf-8", "replace")


def _is_kept_by_browser(character: str) -> bool:
    return character.isprintable() or character in "\n\t"


def _escape_character(character: str) -> str:
    """Return a character of a JSON text, as an escape if a browser would not show it; only strings can have one."""
    if _is_kept_by_browser(character):
        return character
    number = ord(character)
    if number < 0x10000:
        return f"\\u{number:04x}"
    number -= 0x10000
    return f"\\u{0xD800 + (number >> 10):04x}\\u{0xDC00 + (number & 0x3FF):04x}"


#: Letters that are read at once, with their values in memory.
AT_ONCE: Final = 500


class LetterDifference(NamedTuple):
    """The change of a letter's value by a plan, as a unified diff."""

    letter_id: int
    text: str


class PatchSample(NamedTuple):
    """The result of a patch for a letter.

    Attributes:
        difference: from the current value, as a unified diff; "": it gets no new value.
        why: the reason if it gets no new value.
    """

    letter_id: int
    difference: str
    why: str


class TriedValue(NamedTuple):
    """The preview of a new value of a letter.

    Attributes:
        value: byte for byte.
        said: the verdict of its handler.
        difference: from the current value, as a unified diff; "" if they are equal.
        changes: the number of changed places.
        shown: a digest of the value, so that only the value that was shown is sent.
    """

    value: bytes
    said: HandlerVerdict
    difference: str
    changes: int
    shown: bytes


@dataclass(frozen=True)
class LetterEditor:
    """The editor of letters' values. Every method raises DeskUnavailable if the database does not answer."""

    app: Celery
    database: Database

    def edit(self, letter_id: int, value: bytes | None, by: str, why: str = "", *, force: bool = False) -> BulkPlan:
        """Return a plan that sends a letter back with another value. Key and headers stay: they say which record it is.

        Parameters:
            value: byte for byte as it is to be sent, or JSON if a schema wrote the value; `None` is a tombstone.
            force: whether the value is sent even if the handler refuses it, or is unknown here.

        Raises:
            NoSuchLetter: there is no such letter.
            EditRefused: it is not open, the value is unchanged or does not fit its schema, or its handler refuses it;
                the message says why.
        """
        letter, failures = self._open(letter_id)
        value = self.database.payloads.write(value, letter.in_kafka, letter.headers)
        if letter.is_kept and letter.in_kafka == value:
            raise EditRefused(f"Letter {letter_id} has this value already: replay it as it is.")
        said = ask_handler(self.app, letter.handler, value, letter.headers)
        if not said.ok and not force:
            refusal = "refuses this value" if said.ok is False else "cannot be asked about this value"
            raise EditRefused(f"Nothing was sent. Its handler {refusal}: {said.why}. To send it anyway: --force.")
        filter_ = LetterFilter(ids=(letter_id,)).to_data()
        with self.database.writing() as connection:
            plan_id, at = plan_rows.add_plan(connection, PlanKind.REPLAY, by, why, filter_, PlanOptions())
            plan_item_rows.add_items(connection, plan_id, [PlanItem(1, letter_id, None, failures)], canary=False)
            letter_payload.add_edits(connection, [PlanEdit(letter_id, plan_id, at, by, "edit", value)])
            handlers = plan_counts.count_letters_by_handler(connection, plan_id)
            counts = PlanCounts(letters=1, handlers=handlers, edits=PatchRun(changed=1).to_data())
            plan_rows.note_plan_counts(connection, plan_id, counts)
            words = f"a value of {len(value):,} bytes" if value is not None else "a tombstone"
            audit_rows.write_entry(
                connection, at, by, "edit", f"{words}; {why}".rstrip("; "), letter_id=letter_id, plan_id=plan_id
            )
            return require_plan(connection, plan_id)

    def patch(
        self,
        filter_: LetterFilter,
        patch: ValuePatch,
        options: PlanOptions,
        by: str,
        why: str = "",
        *,
        force: bool = False,
    ) -> BulkPlan:
        """Return a plan that sends the open letters of a filter back, each with the value that a JSON Patch makes.

        Letters are left out, with the reason, if the value is no JSON, the patch does not apply or changes nothing, or
        the handler would refuse the result. Nothing is sent yet.

        Parameters:
            force: whether values that handlers would refuse are sent too.

        Raises:
            FilterFault: the filter selects letters that are not open.
        """
        chosen = filter_.only_open()
        said = {"filter": chosen.to_data(), "patch": patch.text}
        among = find_among(self.database, chosen)
        with self.database.writing() as connection:
            plan_id, at = plan_rows.add_plan(connection, PlanKind.REPLAY, by, why, said, options)
            plan_rows.change_plan_state(connection, plan_id, [PlanState.PLANNED], PlanState.MAKING)
            these = select_matching_letters(chosen, among)
            count = plan_item_rows.freeze_letters(connection, plan_id, these, canary=False)
            words = f"plan {plan_id}: to patch {letters_said(count)}" + (f": {why}" if why else "")
            audit_rows.write_entry(connection, at, by, "patch", words, plan_id=plan_id)
        done = PatchRun()
        for found in self._of_plan(plan_id):
            self._change(plan_id, found, patch, done, by, force)
        with self.database.writing() as connection:
            handlers = plan_counts.count_letters_by_handler(connection, plan_id)
            plan_rows.note_plan_counts(
                connection, plan_id, PlanCounts(letters=count, handlers=handlers, edits=done.to_data())
            )
            if options.canary:
                plan_order_rows.cut_waves(connection, plan_id)
            plan_rows.change_plan_state(connection, plan_id, [PlanState.MAKING], PlanState.PLANNED)
            return require_plan(connection, plan_id)

    def samples(self, letters: Iterable[int], patch: ValuePatch) -> list[PatchSample]:
        """Return the results of a patch for some letters, without those that are gone; nothing is stored."""
        with self.database.reading() as connection:
            found = [letter for id_ in letters if (letter := letter_payload.read_letter_value(connection, id_))]
        made = []
        for letter in found:
            letter = self._read(letter)
            patched = PatchRun().one(self.app, self.database.payloads, letter, patch, force=False)
            changed = "" if patched.value is None else diff_values(letter.value, patched.value)
            made.append(PatchSample(letter.id, changed, patched.why))
        return made

    def check(self, filter_: LetterFilter) -> HandlerCheck:
        """Return the check of a filter's letters against their handlers, with and without `upgrade`; nothing is
        sent.
        """
        found, after = HandlerCheck(), 0
        among = find_among(self.database, filter_)
        while some := self._after(filter_, after, among):
            found.check_values(self.app, some)
            after = some[-1].id
        return found

    def differences(self, plan_id: int, count: int = 10) -> list[LetterDifference]:
        """Return how a plan changes the first of its letters that it changes."""
        with self.database.reading() as connection:
            found = letter_payload.read_edited_values(connection, plan_id, count)
        read = self.database.payloads.read
        return [
            LetterDifference(
                letter.id, diff_values(read(letter.value, letter.headers).value, read(value, letter.headers).value)
            )
            for letter, value in found
        ]

    def text(self, letter_id: int) -> str:
        """Return a letter's value as text to be edited.

        Raises:
            NoSuchLetter: there is none of that number.
            EditRefused: it is not open, or its value is no text.
        """
        letter, _ = self._open(letter_id)
        try:
            return "" if not letter.is_kept or letter.value is None else letter.value.decode()
        except UnicodeDecodeError:
            raise EditRefused(f"The value of letter {letter_id} is no text: give the new one as a file.") from None

    def offered(self, letter_id: int) -> OfferedText:
        """Return a letter's value as text for a form.

        Raises:
            NoSuchLetter: there is none of that number.
            EditRefused: it is not open, or its value is not for a form; says what to do.
        """
        letter, _ = self._open(letter_id)
        if not letter.is_kept:
            raise EditRefused(f"A value of {letter.size:,} bytes is too large for a form: {ELSEWHERE}.")
        return offer_text(letter.value)

    def tried(self, letter_id: int, text: str) -> TriedValue:
        """Return the preview of a form's text as the letter's value; nothing is sent.

        Raises:
            NoSuchLetter, EditRefused: as `offered`.
        """
        letter, _ = self._open(letter_id)
        return self.tried_value(letter_id, read_typed_text(text, letter.value))

    def tried_value(self, letter_id: int, value: bytes) -> TriedValue:
        """Return the preview of a value; nothing is sent.

        Raises:
            NoSuchLetter, EditRefused: as `offered`.
        """
        before = self.offered(letter_id)
        letter, _ = self._open(letter_id)
        found = diff_values(letter.value, value)
        # A changed line break at the end of a text shows in no line of the diff.
        count = count_changes(found) or int(value != letter.value and not before.is_json)
        said = self._judge(letter.handler, letter.in_kafka, letter.headers, value)
        return TriedValue(value, said, found, count, value)

    def takes(self, letter: LetterView, value: bytes | None) -> HandlerVerdict:
        """Return the verdict of a letter's handler on a value for people, by the code that is here."""
        return self._judge(letter.listed.handler, letter.in_kafka, letter.headers, value)

    def judge_as_it_is(self, letter: LetterView) -> HandlerVerdict:
        """Return the verdict of a letter's handler on its own value."""
        return ask_handler(self.app, letter.listed.handler, letter.in_kafka, letter.headers)

    def _judge(self, handler: str, before: bytes | None, headers: Headers, value: bytes | None) -> HandlerVerdict:
        try:
            sent = self.database.payloads.write(value, before, headers)
        except EditRefused as error:
            return HandlerVerdict(False, str(error).rstrip("."))
        return ask_handler(self.app, handler, sent, headers)

    def _read(self, letter: LetterValue) -> LetterValue:
        """Return a letter with its value for people."""
        found = self.database.payloads.read(letter.value, letter.headers)
        return letter._replace(value=found.value, encoded=letter.value) if found.is_decoded else letter

    def _open(self, letter_id: int) -> tuple[LetterValue, int]:
        """Return a letter that may be sent back, and how often it has died."""
        with self.database.reading() as connection:
            letter = letter_payload.read_letter_value(connection, letter_id)
            standing = letter_payload.read_letter_standings(connection, [letter_id]).get(letter_id)
            by = find_plan_makers(connection, [standing] if standing else [])
        if letter is None or standing is None:
            raise NoSuchLetter(f"There is no letter {letter_id}.")
        if standing.status is not LetterStatus.OPEN:
            raise EditRefused(f"Letter {letter_id}: {explain_lateness(standing, by)}: only what is open is sent back.")
        return self._read(letter), standing.failures

    def _after(self, filter_: LetterFilter, after: int, among: Sequence[int] | None) -> list[LetterValue]:
        with self.database.reading() as connection:
            return letter_payload.read_matching_values(connection, filter_, after, AT_ONCE, among)

    def _of_plan(self, plan_id: int) -> Iterator[list[tuple[int, LetterValue]]]:
        after = 0
        while True:
            with self.database.reading() as connection:
                found = letter_payload.read_plan_values(connection, plan_id, after, AT_ONCE)
            if not found:
                return
            yield found
            after = found[-1][0]

    def _change(
        self,
        plan_id: int,
        found: Iterable[tuple[int, LetterValue]],
        patch: ValuePatch,
        done: PatchRun,
        by: str,
        force: bool,
    ) -> None:
        """Give letters of a plan their new values, and leave out those that get none."""
        made, left = [], {}
        for position, letter in found:
            patched = done.one(self.app, self.database.payloads, self._read(letter), patch, force=force)
            if patched.value is None:
                left[position] = patched.why
            else:
                made.append((letter.id, patched.sent))
        with self.database.writing() as connection:
            at = sql.read_clock(connection)
            letter_payload.add_edits(
                connection, (PlanEdit(id_, plan_id, at, by, "patch", value) for id_, value in made)
            )
            plan_item_rows.end_items(connection, plan_id, left, PlanItemState.SKIPPED, at)
