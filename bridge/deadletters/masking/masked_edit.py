"""The edit of a value by a person who may not see all of it: hidden parts are tokens in the text and stay unchanged. A
token stays in its place: elsewhere it would reveal what it hides.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from bridge.deadletters.db import letter_payload
from bridge.deadletters.db import letter_payload as stored
from bridge.deadletters.db.database import Database
from bridge.deadletters.editing import exact_json
from bridge.deadletters.editing.handler_check import HandlerVerdict
from bridge.deadletters.editing.letter_edit import LetterDifference, LetterEditor, OfferedText, TriedValue, offer_text
from bridge.deadletters.editing.value_diff import diff_values
from bridge.deadletters.inspection.letter_lookup import LetterLookup
from bridge.deadletters.masking.hidden_fields import (
    UNREADABLE,
    HiddenParts,
    Path,
    find_hidden_parts,
    list_path_names,
    mask_value,
    replace_parts,
)
from bridge.deadletters.masking.letter_mask import LetterMasks, MaskedView
from bridge.deadletters.model.bulk_plan import BulkPlan
from bridge.errors import EditRefused, NoJson

#: Where a name stands: at no field's place.
NO_PLACE: Final = ("", "")


def insert_tokens(found: HiddenParts, value: bytes) -> bytes:
    """A value as it is edited: JSON with a token, `[masked 1]`, in the place of each part that is hidden."""
    said = dict(zip((path for path, _ in found.found), _make_tokens(found, value), strict=True))
    return exact_json.write_json(replace_parts(found.tree, said), value)


def replace_tokens(text: str, found: HiddenParts, value: bytes) -> bytes:
    """The value that an edited text means: with what is hidden, unchanged.

    Parameters:
        value: that was edited.

    Raises:
        EditRefused: the text is no JSON, or a token does not stand where it stood.
    """
    try:
        typed = exact_json.parse_json(text)
    except NoJson as error:
        raise EditRefused(f"This is no JSON, and so it cannot be told what of it is masked: {error}.") from None
    stood = dict(zip(_make_tokens(found, value), found.found, strict=True))
    parts: dict[Path, Any] = {}
    left = set(stood)
    for path, said in _list_text_paths(typed):
        for token in [each for each in stood if each in said]:
            before, part = stood[token]
            if said != token or list_path_names(path) != list_path_names(before):
                raise EditRefused(f"{token} stands at another place: it hides a field, which stays where it is.")
            if token not in left:
                raise EditRefused(f"{token} stands there twice: what your role does not see goes along unchanged.")
            left.remove(token)
            parts[path] = part
    if left:
        raise EditRefused(f"{min(left)} is gone: what your role does not see goes along unchanged.")
    return exact_json.write_json(replace_parts(typed, parts), value)


def _make_tokens(found: HiddenParts, value: bytes) -> list[str]:
    """A token for each part that is hidden, of a word that the value has nowhere."""
    seen = exact_json.write_json(replace_parts(found.tree, {path: None for path, _ in found.found}), value).decode()
    word = "masked"
    while f"[{word} " in seen:
        word += "'"
    return [f"[{word} {number}]" for number in range(1, len(found.found) + 1)]


def _list_text_paths(tree: Any, at: Path = ()) -> Iterator[tuple[Path, str]]:
    """Each text of a value with its path; of a name, one that no field has."""
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
    """What is said of a value; nothing is sent.

    Attributes:
        difference: from the letter's own, as a unified diff.
    """

    said: HandlerVerdict
    difference: str


@dataclass(frozen=True)
class MaskedEditor:
    """Every method raises DeskUnavailable where the database does not answer."""

    letters: LetterLookup
    mending: LetterEditor
    masks: LetterMasks

    def offered(self, letter_id: int) -> OfferedText:
        """A letter's value, to be edited in a form: with a token in the place of each part that is hidden.

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
        """What a form's text would be as the letter's value; nothing is sent.

        Raises:
            NoSuchLetter, EditRefused: as `offered`; or a token is not where it stood.
        """
        found, before = self._hidden(letter_id)
        if not found.is_any or before is None:
            return self._told(letter_id, self.mending.tried(letter_id, text))
        value = replace_tokens(text, _require_editable(found), before)
        view = self._view(letter_id)
        after = mask_value(value, find_hidden_parts(value, self.masks.of(view.letter.listed.topic))) or b""
        tried = self._told(letter_id, self.mending.tried_value(letter_id, value))
        # No hash of what is hidden: one could guess it.
        return tried._replace(difference=diff_values(view.letter.value, after), shown=after + b"\0" + text.encode())

    def tokened(self, letter_id: int) -> bytes | None:
        """A letter's value as a program edits it: with a token in the place of each part that is hidden.

        Raises:
            NoSuchLetter: there is none of that number.
            EditRefused: what is hidden of it cannot be told, or all of it is.
        """
        found, value = self._of_program(letter_id)
        return insert_tokens(_require_editable(found), value) if found.is_any and value is not None else value

    def filled(self, letter_id: int, value: bytes | None) -> bytes | None:
        """What a program's value means: with what is hidden in the places of its tokens; else byte for byte.

        Raises:
            NoSuchLetter, EditRefused: as `tokened`; or a token is not where it stood.
        """
        found, before = self._of_program(letter_id)
        if not found.is_any or before is None:
            return value
        try:
            return replace_tokens((value or b"").decode(), _require_editable(found), before)
        except UnicodeDecodeError:
            raise EditRefused("This is no text, and so it cannot be told what of it is masked.") from None

    def judged(self, letter_id: int, value: bytes | None) -> JudgedValue:
        """What its handler says of a program's value.

        Raises:
            NoSuchLetter, EditRefused: as `filled`.
        """
        new, view = self.filled(letter_id, value), self._view(letter_id)
        said = self.mending.takes(view.letter.listed.handler, new)
        after = mask_value(new, find_hidden_parts(new, self.masks.of(view.letter.listed.topic)))
        return JudgedValue(said._replace(why=view.quotes.masked(said.why)), diff_values(view.letter.value, after))

    def edit(self, letter_id: int, value: bytes | None, by: str, why: str, *, force: bool) -> BulkPlan:
        """A plan that sends the letter back with this value (Mending.edit).

        Raises:
            NoSuchLetter, EditRefused: as that.
        """
        try:
            return self.mending.edit(letter_id, value, by, why, force=force)
        except EditRefused as error:
            raise EditRefused(self._view(letter_id).quotes.masked(str(error))) from None

    def _hidden(self, letter_id: int) -> tuple[HiddenParts, bytes | None]:
        letter = self.letters.one(letter_id)
        return find_hidden_parts(letter.value, self.masks.of(letter.listed.topic)), letter.value

    def _of_program(self, letter_id: int) -> tuple[HiddenParts, bytes | None]:
        letter = self.letters.one(letter_id)
        fields = self.masks.of(letter.listed.topic)
        if fields.of_value and not letter.kept:
            raise EditRefused(
                "This value is too large for the database, so what your role does not see of it cannot go along. "
                "An admin who sees it edits it, or bridge deadletters edit."
            )
        return find_hidden_parts(letter.value, fields), letter.value

    def _view(self, letter_id: int) -> MaskedView:
        return self.masks.letter(self.letters.one(letter_id))

    def _told(self, letter_id: int, tried: TriedValue) -> TriedValue:
        """What its handler says may quote the value."""
        said = tried.said
        return tried._replace(said=said._replace(why=self._view(letter_id).quotes.masked(said.why)))


def _require_editable(found: HiddenParts) -> HiddenParts:
    if found.whole or not found.readable:
        raise EditRefused(f"{UNREADABLE} An admin who sees it edits it, or bridge deadletters edit.")
    return found


class DifferencePage(NamedTuple):
    """Some of the differences of a plan.

    Attributes:
        next: behind which letter it goes on; `None`: there are no more.
    """

    differences: list[LetterDifference]
    next: int | None


@dataclass(frozen=True)
class MaskedDifferences:
    """Raises DeskUnavailable where the database does not answer."""

    database: Database
    masks: LetterMasks

    def page(self, plan_id: int, count: int, after: int = 0) -> DifferencePage:
        """Of the next letters of a plan that it changes, by their ids: so many, or fewer where their values are large.

        What is hidden is hidden on both sides.

        Parameters:
            after: the letter behind which it goes on.
        """
        with self.database.reading() as connection:
            found = letter_payload.read_edited_values(connection, plan_id, count, after)
            more = bool(found) and letter_payload.has_edits_after(connection, plan_id, found[-1][0].id)
            known = (
                stored.read_quotable_contents(connection, [letter.id for letter, _ in found], 0) if self.masks else {}
            )
        told = []
        for letter, value in found:
            sides = [letter.value, value]
            if self.masks:
                if letter.id not in known:
                    # It was cleaned up this moment: nobody knows any more what of it is hidden.
                    continue
                fields = self.masks.of(known[letter.id].topic)
                sides = [mask_value(each, find_hidden_parts(each, fields)) for each in sides]
            told.append(LetterDifference(letter.id, diff_values(*sides)))
        return DifferencePage(told, found[-1][0].id if more else None)
