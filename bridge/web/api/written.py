"""Letters as JSON: the one place through which they leave by the API, with masks for whoever it is that asks."""

from base64 import b64encode
from collections.abc import Iterable
from typing import Any

from bridge.deadletters.questions.shown import Act, Failed, Listed, Shown
from bridge.errors import RequestRefused
from bridge.web.api.asked import Asked
from bridge.web.api.shapes import letters as shapes
from bridge.web.api.shapes.common import Octets


def lines(asked: Asked, letters: Iterable[Listed]) -> list[shapes.Line]:
    """Letters as they stand in a list."""
    return [shapes.Line.model_validate(_line(each)) for each in asked.lists.lines(letters)]


def whole(asked: Asked, shown: Shown) -> shapes.Letter:
    """A letter with all that is known of it."""
    letter = asked.masks.letter(shown).letter
    found = letter.to_data() | _line(letter.listed)
    found["value"] = octets(letter.value)
    found["headers"] = [{"name": name, "value": octets(value)} for name, value in letter.headers]
    found["history"] = [_failed(each) for each in letter.history]
    found["edits"] = [_edit(each) for each in letter.edits]
    return shapes.Letter.model_validate(found)


def value(asked: Asked, letter: Shown, *, tokens: bool) -> bytes | None:
    """A letter's value; `None`: it has none, or not here.

    Parameters:
        tokens: with a token in the place of each part that is hidden; else it is given byte for byte or not at all.

    Raises:
        RequestRefused: something of it is hidden.
        EditRefused: it cannot have tokens.
    """
    if not asked.masks.letter(letter).value.is_any:
        return letter.value
    if tokens:
        return asked.desk.editing(asked.masks).tokened(letter.listed.id)
    raise RequestRefused(
        "forbidden",
        "This value has fields that your role does not see, so it is not given byte for byte (?tokens=true gives it "
        "with a token in the place of each, to be edited).",
    )


def octets(data: bytes | None) -> Octets | None:
    """Bytes in JSON, byte for byte: as text where they are UTF-8."""
    if data is None:
        return None
    made = bytes(data)
    try:
        return Octets(encoding="utf-8", data=made.decode(), size=len(made))
    except UnicodeDecodeError:
        return Octets(encoding="base64", data=b64encode(made).decode(), size=len(made))


def _line(letter: Listed) -> dict[str, Any]:
    return letter.to_data() | {"key": octets(letter.key), "offset": str(letter.offset)}


def _failed(failed: Failed) -> dict[str, Any]:
    return failed.to_data() | {"value": octets(failed.value)}


def _edit(edit: Act) -> dict[str, Any]:
    return edit.to_data() | {"value": octets(edit.value)}
