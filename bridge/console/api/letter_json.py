"""Letters in the JSON of the API: the filter of a request body, and letters with the masks of the caller."""

from base64 import b64encode
from collections.abc import Iterable
from typing import Any

from starlette.datastructures import QueryParams

from bridge.console import filter_address as addresses
from bridge.console.api.api_operation import ApiRequest
from bridge.console.api.schemas import letters_schema as shapes
from bridge.console.api.schemas.common_schema import Octets
from bridge.deadletters.dead_letter_service import DeadLetterService
from bridge.deadletters.masking.letter_mask import LetterMasks
from bridge.deadletters.model.filter_syntax import YES
from bridge.deadletters.model.letter_filter import LetterFilter
from bridge.deadletters.model.letter_view import LetterAct, LetterFailure, LetterLine, LetterView
from bridge.errors import FilterFault, RequestRefused


def read_body_filter(wanted: shapes.Filter) -> LetterFilter:
    """Return the filter in a request body.

    Raises:
        FilterFault: a field is malformed.
    """
    fields = wanted.model_dump(include=set(shapes.Filter.model_fields), exclude_defaults=True)
    pairs = [
        # As in an address.
        (name.replace("_", "-"), YES if each is True else str(each))
        for name, said in fields.items()
        for each in (said if isinstance(said, list) else [said])
        if each is not None and each is not False
    ]
    return addresses.read_filter(QueryParams(pairs))


def require_letters(desk: DeadLetterService, masks: LetterMasks, wanted: shapes.Filter) -> LetterFilter:
    """Check that a filter for an action names letters, and that its handlers and ids exist.

    Raises:
        FilterFault: it names none, or an unknown one, or it would reveal what the caller may not see.
    """
    found = masks.check(read_body_filter(wanted))
    if found == LetterFilter():
        raise FilterFault('This means all letters: if that is what you want, say {"status": ["open"]}.')
    if unknown := desk.absent.describe_absent(found):
        raise FilterFault(" ".join(unknown))
    return found


def write_letter_lines(asked: ApiRequest, letters: Iterable[LetterLine]) -> list[shapes.Line]:
    """Return letters as entries of a list."""
    return [shapes.Line.model_validate(_write_line(each)) for each in asked.lists.lines(letters)]


def write_letter(asked: ApiRequest, shown: LetterView) -> shapes.Letter:
    """Return a letter with all its details."""
    letter = asked.masks.letter(shown).letter
    found = letter.to_data() | _write_line(letter.listed)
    found["value"] = encode_octets(letter.value)
    found["headers"] = [{"name": name, "value": encode_octets(value)} for name, value in letter.headers]
    found["history"] = [_write_failure(each) for each in letter.history]
    found["edits"] = [_write_edit(each) for each in letter.edits]
    return shapes.Letter.model_validate(found)


def write_letter_value(asked: ApiRequest, letter: LetterView, *, tokens: bool) -> bytes | None:
    """Return a letter's value; `None` if it has none, or not here.

    Parameters:
        tokens: as it is edited, with a token for each hidden part; else the value is given byte for byte or not at
            all.

    Raises:
        RequestRefused: a part of it is hidden.
        EditRefused: its hidden parts cannot be replaced by tokens.
    """
    if not asked.masks.letter(letter).value.is_any:
        return letter.value if tokens else letter.in_kafka
    if tokens:
        return asked.desk.editing(asked.masks).tokened(letter.listed.id)
    raise RequestRefused(
        "forbidden",
        "This value has fields that your role does not see, so it is not given byte for byte (?tokens=true gives it "
        "with a token in the place of each, to be edited).",
    )


def encode_octets(data: bytes | None) -> Octets | None:
    """Return bytes in JSON without loss: as text if they are UTF-8."""
    if data is None:
        return None
    made = bytes(data)
    try:
        return Octets(encoding="utf-8", data=made.decode(), size=len(made))
    except UnicodeDecodeError:
        return Octets(encoding="base64", data=b64encode(made).decode(), size=len(made))


def _write_line(letter: LetterLine) -> dict[str, Any]:
    return letter.to_data() | {"key": encode_octets(letter.key), "offset": str(letter.offset)}


def _write_failure(failed: LetterFailure) -> dict[str, Any]:
    return failed.to_data() | {"value": encode_octets(failed.value)}


def _write_edit(edit: LetterAct) -> dict[str, Any]:
    return edit.to_data() | {"value": encode_octets(edit.value)}
