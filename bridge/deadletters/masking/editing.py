"""Values edited by somebody who does not see all of them: what is hidden goes along unchanged."""

from dataclasses import dataclass
from typing import NamedTuple

from bridge.deadletters.masking.hidden import UNREADABLE, Hidden, hidden, masked
from bridge.deadletters.masking.masks import Masks, View
from bridge.deadletters.masking.tokens import with_tokens, without_tokens
from bridge.deadletters.mending.by_hand import Offered, offered
from bridge.deadletters.mending.differences import difference
from bridge.deadletters.mending.mending import Mending, Tried
from bridge.deadletters.mending.validating import Verdict
from bridge.deadletters.plan.plan import Plan
from bridge.deadletters.questions.letters import Letters
from bridge.errors import EditRefused


class Judged(NamedTuple):
    """What is said of a value; nothing is sent.

    Attributes:
        difference: from the letter's own, as a unified diff.
    """

    said: Verdict
    difference: str


@dataclass(frozen=True)
class Editing:
    """Every method raises DeskUnavailable where the database does not answer."""

    letters: Letters
    mending: Mending
    masks: Masks

    def offered(self, letter_id: int) -> Offered:
        """A letter's value, to be edited in a form: with a token in the place of each part that is hidden.

        Raises:
            NoSuchLetter: there is none of that number.
            EditRefused: it is not open, or its value is not for a form, or all of it is hidden; says what to do.
        """
        whole = self.mending.offered(letter_id)
        found, value = self._hidden(letter_id)
        if not found.is_any or value is None:
            return whole
        return offered(with_tokens(_editable(found), value))

    def tried(self, letter_id: int, text: str) -> Tried:
        """What a form's text would be as the letter's value; nothing is sent.

        Raises:
            NoSuchLetter, EditRefused: as `offered`; or a token is not where it stood.
        """
        found, before = self._hidden(letter_id)
        if not found.is_any or before is None:
            return self._told(letter_id, self.mending.tried(letter_id, text))
        value = without_tokens(text, _editable(found), before)
        view = self._view(letter_id)
        after = masked(value, hidden(value, self.masks.of(view.letter.listed.topic))) or b""
        tried = self._told(letter_id, self.mending.tried_value(letter_id, value))
        # No hash of what is hidden: one could guess it.
        return tried._replace(difference=difference(view.letter.value, after), shown=after + b"\0" + text.encode())

    def tokened(self, letter_id: int) -> bytes | None:
        """A letter's value as a program edits it: with a token in the place of each part that is hidden.

        Raises:
            NoSuchLetter: there is none of that number.
            EditRefused: what is hidden of it cannot be told, or all of it is.
        """
        found, value = self._of_program(letter_id)
        return with_tokens(_editable(found), value) if found.is_any and value is not None else value

    def filled(self, letter_id: int, value: bytes | None) -> bytes | None:
        """What a program's value means: with what is hidden in the places of its tokens; else byte for byte.

        Raises:
            NoSuchLetter, EditRefused: as `tokened`; or a token is not where it stood.
        """
        found, before = self._of_program(letter_id)
        if not found.is_any or before is None:
            return value
        try:
            return without_tokens((value or b"").decode(), _editable(found), before)
        except UnicodeDecodeError:
            raise EditRefused("This is no text, and so it cannot be told what of it is masked.") from None

    def judged(self, letter_id: int, value: bytes | None) -> Judged:
        """What its handler says of a program's value.

        Raises:
            NoSuchLetter, EditRefused: as `filled`.
        """
        new, view = self.filled(letter_id, value), self._view(letter_id)
        said = self.mending.takes(view.letter.listed.handler, new)
        after = masked(new, hidden(new, self.masks.of(view.letter.listed.topic)))
        return Judged(said._replace(why=view.quotes.masked(said.why)), difference(view.letter.value, after))

    def edit(self, letter_id: int, value: bytes | None, by: str, why: str, *, force: bool) -> Plan:
        """A plan that sends the letter back with this value (Mending.edit).

        Raises:
            NoSuchLetter, EditRefused: as that.
        """
        try:
            return self.mending.edit(letter_id, value, by, why, force=force)
        except EditRefused as error:
            raise EditRefused(self._view(letter_id).quotes.masked(str(error))) from None

    def _hidden(self, letter_id: int) -> tuple[Hidden, bytes | None]:
        letter = self.letters.one(letter_id)
        return hidden(letter.value, self.masks.of(letter.listed.topic)), letter.value

    def _of_program(self, letter_id: int) -> tuple[Hidden, bytes | None]:
        letter = self.letters.one(letter_id)
        fields = self.masks.of(letter.listed.topic)
        if fields.of_value and not letter.kept:
            raise EditRefused(
                "This value is too large for the database, so what your role does not see of it cannot go along. "
                "An admin who sees it edits it, or bridge deadletters edit."
            )
        return hidden(letter.value, fields), letter.value

    def _view(self, letter_id: int) -> View:
        return self.masks.letter(self.letters.one(letter_id))

    def _told(self, letter_id: int, tried: Tried) -> Tried:
        """What its handler says may quote the value."""
        said = tried.said
        return tried._replace(said=said._replace(why=self._view(letter_id).quotes.masked(said.why)))


def _editable(found: Hidden) -> Hidden:
    if found.whole or not found.readable:
        raise EditRefused(f"{UNREADABLE} An admin who sees it edits it, or bridge deadletters edit.")
    return found
