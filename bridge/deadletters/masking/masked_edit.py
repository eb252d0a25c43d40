"""The edit of a value by a person who may not see all of it: hidden parts are tokens in the text and stay unchanged.
A token must stay in its place: elsewhere it would reveal what it hides.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from bridge.deadletters.db import letter_payload
from bridge.deadletters.db.database import Database
from bridge.deadletters.editing.handler_check import HandlerVerdict
from bridge.deadletters.editing.letter_edit import LetterDifference, LetterEditor, OfferedText, TriedValue, offer_text
from bridge.deadletters.editing.value_diff import diff_values
from bridge.deadletters.inspection.letter_lookup import LetterLookup
from bridge.deadletters.masking.letter_mask import LetterMasks, MaskedView
from bridge.deadletters.masking.value_mask import (
    UNREADABLE,
    HiddenParts,
    Path,
    find_hidden_parts,
    list_path_names,
    mask_value,
    replace_parts,
)
from bridge.deadletters.model import exact_json
from bridge.deadletters.model.bulk_plan import BulkPlan
from bridge.errors import EditRefused, NoJson

#: The path of a name, which no field has.
NO_PLACE: Final = ("", "")


def insert_tokens(found: HiddenParts, value: bytes) -> bytes:
    """Return a value for the editor: JSON with a token, `[masked 1]`, in the place of each hidden part."""
    said = dict(zip((path for path, _ in found.found), _make_tokens(found, value), strict=True))
    return exact_json.write_json(replace_parts(found.tree, said), value)


def replace_tokens(text: str, found: HiddenParts, value: bytes) -> bytes:
    """Return the value of an edited text, with the hidden parts unchanged.

    Parameters:
        value: the value that was edited.

    Raises:
        EditRefused: the text is no JSON, or a token is not in its place.
    """
    try:
        typed = exact_json.parse_json(text)
    except NoJson as error:
        raise EditRefused(f"This is no JSON, so its masked parts are unknown: {error}.") from None
    stood = dict(zip(_make_tokens(found, value), found.found, strict=True))
    parts: dict[Path, Any] = {}
    left = set(stood)
    for path, said in _list_text_paths(typed):
        for token in [each for each in stood if each in said]:
            before, part = stood[token]
            if said != token or list_path_names(path) != list_path_names(before):
                raise EditRefused(f"{token} is in another place: it hides a field, and must stay where it was.")
            if token not in left:
                raise EditRefused(f"{token} occurs twice: fields that your role does not see must stay unchanged.")
            left.remove(token)
            parts[path] = part
    if left:
        raise EditRefused(f"{min(left)} is gone: fields that your role does not see must stay unchanged.")
    return exact_json.write_json(replace_parts(typed, parts), value)


def _make_tokens(found: HiddenParts, value: bytes) -> list[str]:
    """Return a token for each hidden part, with a word that the value does not contain."""
    seen = exact_json.write_json(replace_parts(found.tree, {path: None for path, _ in found.found}), value).decode()
    word = "masked"
    while f"[{word} " in seen:
        word += "'"
    return [f"[{word} {number}]" for number in range(1, len(found.found) + 1)]


def _list_text_paths(tree: Any, at: Path = ()) -> Iterator[tuple[Path, str]]:
    """Yield each text of a value with its path; names have a path that no field has."""
    match tree:
        case str():
            yield at, tree
        case dict():
            for name, each in tree.items():
                yield NO_PLACE, name
                yield from _list_text_paths(each, (*at, name))
        case list():
            for number, each in enumerate(tree):
                yield from _list_text_paths(each, (*at, number))


class JudgedValue(NamedTuple):
    """A handler's verdict on a value; nothing is sent.

    Attributes:
        difference: from the letter's value, as a unified diff.
    """

    said: HandlerVerdict
    difference: str


@dataclass(frozen=True)
class MaskedEditor:
    """The editor for a role with masks. Every method raises DeskUnavailable if the database does not answer."""

    letters: LetterLookup
    mending: LetterEditor
    masks: LetterMasks

    def offered(self, letter_id: int) -> OfferedText:
        """Return a letter's value as text for a form, with a token in the place of each hidden part.

        Raises:
            NoSuchLetter: there is none of that number.
            EditRefused: it is not open, or its value is not for a form, or all of it is hidden; says what to do.
        """
        whole = self.mending.offered(letter_id)
        found, value = self._hidden(letter_id)
        if not found.is_any or value is None:
            return whole
        return offer_text(insert_tokens(_require_editable(found), value))

    def tried(self, letter_id: int, text: str) -> TriedValue:
        """Return the preview of a form's text as the letter's value; nothing is sent.

        Raises:
            NoSuchLetter, EditRefused: as `offered`; or a token is not where it stood.
        """
        found, before = self._hidden(letter_id)
        if not found.is_any or before is None:
            return self._told(letter_id, self.mending.tried(letter_id, text))
        value = replace_tokens(text, _require_editable(found), before)
        view = self._view(letter_id)
        after = mask_value(value, find_hidden_parts(value, self.masks.find_fields(view.letter.listed.topic))) or b""
        tried = self._told(letter_id, self.mending.tried_value(letter_id, value))
        # No hash of hidden parts: they could be guessed by it.
        return tried._replace(difference=diff_values(view.letter.value, after), shown=after + b"\0" + text.encode())

    def tokened(self, letter_id: int) -> bytes | None:
        """Return a letter's value for a program, with a token in the place of each hidden part.

        Raises:
            NoSuchLetter: there is none of that number.
            EditRefused: its hidden parts are unknown, or all of it is hidden.
        """
        found, value = self._hidden(letter_id, needs_all=True)
        return insert_tokens(_require_editable(found), value) if found.is_any and value is not None else value

    def filled(self, letter_id: int, value: bytes | None) -> bytes | None:
        """Return a program's value with the hidden parts in the place of their tokens.

        Raises:
            NoSuchLetter, EditRefused: as `tokened`; or a token is not where it stood.
        """
        found, before = self._hidden(letter_id, needs_all=True)
        if not found.is_any or before is None:
            return value
        try:
            return replace_tokens((value or b"").decode(), _require_editable(found), before)
        except UnicodeDecodeError:
            raise EditRefused("This is no text, so its masked parts are unknown.") from None

    def judged(self, letter_id: int, value: bytes | None) -> JudgedValue:
        """Return the handler's verdict on a program's value.

        Raises:
            NoSuchLetter, EditRefused: as `filled`.
        """
        new, letter = self.filled(letter_id, value), self.letters.one(letter_id)
        view = self.masks.letter(letter)
        said = self.mending.takes(letter, new)
        shown = self.letters.database.payloads.read(new, letter.headers).value
        after = mask_value(shown, find_hidden_parts(shown, self.masks.find_fields(letter.listed.topic)))
        return JudgedValue(said._replace(why=view.quotes.masked(said.why)), diff_values(view.letter.value, after))

    def edit(self, letter_id: int, value: bytes | None, by: str, why: str, *, force: bool) -> BulkPlan:
        """Return a plan that sends the letter back with this value (`LetterEditor.edit`).

        Raises:
            NoSuchLetter, EditRefused: as that.
        """
        try:
            return self.mending.edit(letter_id, value, by, why, force=force)
        except EditRefused as error:
            raise EditRefused(self._view(letter_id).quotes.masked(str(error))) from None

    def _hidden(self, letter_id: int, *, needs_all: bool = False) -> tuple[HiddenParts, bytes | None]:
        letter = self.letters.one(letter_id)
        fields = self.masks.find_fields(letter.listed.topic)
        if needs_all and fields.of_value and not letter.kept:
            raise EditRefused(
                "This value is too large for the database, so its hidden fields cannot be filled in. "
                "An admin who sees it edits it, or bridge deadletters edit."
            )
        return find_hidden_parts(letter.value, fields), letter.value

    def _view(self, letter_id: int) -> MaskedView:
        return self.masks.letter(self.letters.one(letter_id))

    def _told(self, letter_id: int, tried: TriedValue) -> TriedValue:
        """Return the preview with a redacted verdict, which may quote the value."""
        said = tried.said
        return tried._replace(said=said._replace(why=self._view(letter_id).quotes.masked(said.why)))


def _require_editable(found: HiddenParts) -> HiddenParts:
    if found.whole or not found.readable:
        raise EditRefused(f"{UNREADABLE} An admin who sees it edits it, or bridge deadletters edit.")
    return found


class DifferencePage(NamedTuple):
    """A page of the differences of a plan.

    Attributes:
        next: the letter after which the next page begins; `None`: this is the last.
    """

    differences: list[LetterDifference]
    next: int | None


@dataclass(frozen=True)
class MaskedDifferences:
    """The differences of plans for a role with masks. Raises DeskUnavailable if the database does not answer."""

    database: Database
    masks: LetterMasks

    def page(self, plan_id: int, count: int, after: int = 0) -> DifferencePage:
        """Return the differences of the next letters of a plan, by id; fewer if their values are large.

        Hidden parts are masked on both sides.

        Parameters:
            after: the letter after which the page begins.
        """
        with self.database.reading() as connection:
            found = letter_payload.read_edited_values(connection, plan_id, count, after)
            more = bool(found) and letter_payload.has_edits_after(connection, plan_id, found[-1][0].id)
            known = (
                letter_payload.read_quotable_contents(connection, [letter.id for letter, _ in found], 0)
                if self.masks
                else {}
            )
        told, read = [], self.database.payloads.read
        for letter, value in found:
            sides = [read(each, letter.headers).value for each in (letter.value, value)]
            if self.masks:
                if letter.id not in known:
                    # It was just cleaned up: its hidden parts are unknown.
                    continue
                fields = self.masks.find_fields(known[letter.id].topic)
                sides = [mask_value(each, find_hidden_parts(each, fields)) for each in sides]
            told.append(LetterDifference(letter.id, diff_values(*sides)))
        return DifferencePage(told, found[-1][0].id if more else None)
