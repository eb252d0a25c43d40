"""JSON that is read and written without changing what nobody edited (pure).

Numbers keep their digits and objects their order; a key that occurs twice is refused.
"""

import json
from collections.abc import Iterable
from decimal import Decimal, DecimalException
from json.encoder import encode_basestring, encode_basestring_ascii
from typing import Any, NoReturn

from bridge.errors import NoJson


class ExactNumber(Decimal):
    """A number with its text, equal to others by its value.

    Attributes:
        text: as it was written.
    """

    text: str

    def __new__(cls, text: str) -> "ExactNumber":
        """Return the number of a text."""
        made = super().__new__(cls, text)
        made.text = text
        return made

    def __copy__(self) -> "ExactNumber":
        """Return itself, because it is immutable."""
        return self

    def __deepcopy__(self, memo: Any) -> "ExactNumber":
        """Return itself, because it is immutable."""
        return self


def parse_json(value: bytes | str) -> Any:
    """Return the value of a JSON text: numbers as `ExactNumber`, all else as Python's own types.

    Parameters:
        value: bytes in UTF-8, UTF-16 or UTF-32, as JSON may be.

    Raises:
        NoJson: it is invalid, or could not be written again without a loss; the message has no part of the value.
    """
    try:
        return json.loads(
            value,
            parse_int=ExactNumber,
            parse_float=ExactNumber,
            parse_constant=_refuse_constant,
            object_pairs_hook=_refuse_duplicates,
        )
    except json.JSONDecodeError as error:
        raise NoJson(f"{error.msg.lower()}, in line {error.lineno}") from None
    except UnicodeDecodeError:
        raise NoJson("it is no text") from None
    except DecimalException:
        raise NoJson("it has a number that is too large") from None
    except RecursionError:
        raise NoJson("it is nested too deeply") from None


def write_json(value: Any, like: bytes = b"") -> bytes:
    """Return the JSON text of a value of `parse_json`, in UTF-8 and without spaces.

    Parameters:
        like: the original text: if that is all ASCII, the result is too.

    Raises:
        NoJson: it is nested too deeply.
    """
    try:
        if not like.isascii():
            try:
                return _write_text(value, encode_basestring).encode()
            except UnicodeEncodeError:
                # Half a surrogate pair, which only an escape can write.
                pass
        return _write_text(value, encode_basestring_ascii).encode()
    except RecursionError:
        raise NoJson("it is nested too deeply") from None


def write_json_lines(value: Any, indent: str = "") -> list[str]:
    """Return the JSON text for people, a member a line."""
    deeper = indent + "  "
    if isinstance(value, dict) and value:
        return _write_block("{", [(f"{encode_basestring(name)}: ", each) for name, each in value.items()], "}", deeper)
    if isinstance(value, list) and value:
        return _write_block("[", [("", each) for each in value], "]", deeper)
    return [_write_text(value, encode_basestring)]


def _write_block(begin: str, members: list[tuple[str, Any]], end: str, indent: str) -> list[str]:
    found = [begin]
    for at, (name, value) in enumerate(members):
        first, *rest = write_json_lines(value, indent)
        some = [f"{indent}{name}{first}", *rest]
        some[-1] += "," if at < len(members) - 1 else ""
        found += some
    return [*found, indent[:-2] + end]


def _write_text(value: Any, text: Any) -> str:
    match value:
        case None:
            return "null"
        case bool():
            return "true" if value else "false"
        case str():
            return str(text(value))
        case ExactNumber():
            return value.text
        case dict():
            return "{" + ",".join(f"{text(name)}:{_write_text(each, text)}" for name, each in value.items()) + "}"
        case list():
            return "[" + ",".join(_write_text(each, text) for each in value) + "]"
    raise TypeError(f"{type(value).__name__} is nothing that JSON was read as")


def _refuse_duplicates(pairs: Iterable[tuple[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, value in pairs:
        if name in found:
            raise NoJson("an object of it has a key twice, of which one would go")
        found[name] = value
    return found


def _refuse_constant(_constant: str) -> NoReturn:
    raise NoJson("it has a number that JSON does not know (NaN or Infinity)")
