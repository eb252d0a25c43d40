"""The match of a letter's value with the fields that a filter names (pure).

It reads values as the masks of roles do (exact_json.py), so a value that masks hide for being unreadable
matches nothing.
"""

from collections.abc import Iterator, Sequence
from typing import Any, Final

from bridge.deadletters.model import exact_json
from bridge.errors import NoJson

#: Most bytes of a value that is compared.
LARGEST: Final = 65_536
#: The reasons why a letter is not searched by its value.
UNREAD: Final = f"its value is larger than {LARGEST // 1024} KiB, or names a schema that does not read it now"


def describe_unread(count: int) -> str:
    """Return the sentence on letters that a list leaves out because they cannot be searched by value."""
    if count == 1:
        return f"1 letter was not searched: {UNREAD}."
    return f"{count:,} letters were not searched, for each of which {UNREAD}."


def has_value_fields(value: bytes | None, wanted: Sequence[tuple[str, str]]) -> bool:
    """Return whether a value is JSON that has all of these fields with these texts.

    A text is that of a string, or a number, true, false or null as the value writes it.

    Parameters:
        wanted: names with dots between those of objects within objects, and texts. Items of lists have no names: one
            item that fits is enough.
    """
    if value is None:
        return False
    try:
        tree = exact_json.parse_json(value)
        return all(any(text == found for found in _find_texts(tree, name)) for name, text in wanted)
    except (NoJson, RecursionError):
        return False


def write_scalar(value: Any) -> str | None:
    """Return the text of a string, number, true, false or null; `None` for an object or a list."""
    match value:
        case str():
            return value
        case None | bool() | exact_json.ExactNumber():
            return exact_json.write_json(value).decode()
    return None


def _find_texts(tree: Any, name: str) -> Iterator[str | None]:
    """Yield the texts of a field; a name of an object may have dots itself, so each reading is tried."""
    match tree:
        case dict():
            for member, part in tree.items():
                if member == name:
                    yield from map(write_scalar, part if isinstance(part, list) else [part])
                elif name.startswith(f"{member}."):
                    yield from _find_texts(part, name[len(member) + 1 :])
        case list():
            for part in tree:
                yield from _find_texts(part, name)
