"""The mask of a value: which of its parts a role may not see, and the value with `[masked]` in their places (pure)."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Final

from bridge.deadletters.model import exact_json
from bridge.errors import NoJson
from bridge.settings.masked_fields import MaskedFields

#: The text in the place of a hidden part.
MASK: Final = "[masked]"
#: The reason if a value is not shown at all.
UNREADABLE: Final = "This value cannot be shown to your role: it cannot be parsed for its masks."

#: The path of a field in a value: names of members, and indexes of list items.
Path = tuple[str | int, ...]


@dataclass(frozen=True, slots=True)
class HiddenParts:
    """A value and its hidden parts.

    Attributes:
        tree: the parsed value; `None` if it is not `readable`.
        found: the hidden parts by path, in the order of the text.
        readable: whether the hidden parts are known.
        whole: whether all of it is hidden.
    """

    tree: Any = field(default=None, repr=False)
    found: tuple[tuple[Path, Any], ...] = field(default=(), repr=False)
    readable: bool = True
    whole: bool = False

    @property
    def is_any(self) -> bool:
        """Return whether something is hidden."""
        return self.whole or not self.readable or bool(self.found)

    def texts(self) -> Iterator[str]:
        """Yield the hidden texts, which other texts might quote."""
        for _, part in self.found:
            yield from list_texts(part)


def find_hidden_parts(value: bytes | None, fields: MaskedFields) -> HiddenParts:
    """Return the hidden parts of a value."""
    if value is None or not fields.of_value:
        return HiddenParts()
    try:
        tree = exact_json.parse_json(value)
        found = ((), tree) if fields.value else None
        return HiddenParts(tree, (found,) if found else tuple(_find_paths(tree, (), (), fields)), whole=fields.value)
    except (NoJson, RecursionError):
        return HiddenParts(readable=False, whole=fields.value)


def mask_value(value: bytes | None, found: HiddenParts) -> bytes | None:
    """Return a value without its hidden parts; the very bytes if nothing is hidden.

    The result is JSON with all digits unchanged, and `[masked]` in the place of each hidden part.
    """
    if value is None or not found.is_any:
        return value
    if found.whole or not found.readable:
        return MASK.encode()
    return exact_json.write_json(replace_parts(found.tree, {path: MASK for path, _ in found.found}), value)


def replace_parts(tree: Any, parts: dict[Path, Any], at: Path = ()) -> Any:
    """Return a tree with other parts at these paths."""
    if at in parts:
        return parts[at]
    if isinstance(tree, dict):
        return {name: replace_parts(each, parts, (*at, name)) for name, each in tree.items()}
    if isinstance(tree, list):
        return [replace_parts(each, parts, (*at, number)) for number, each in enumerate(tree)]
    return tree


def list_path_names(path: Path) -> tuple[str, ...]:
    """Return the names of a path, without indexes of list items."""
    return tuple(each for each in path if isinstance(each, str))


def list_texts(part: Any) -> Iterator[str]:
    """Yield the texts of a part of a value and of its parts, names included, because a whole object may be hidden."""
    match part:
        case str():
            yield part
        case exact_json.ExactNumber():
            yield part.text
        case dict():
            for name, each in part.items():
                yield name
                yield from list_texts(each)
        case list():
            for each in part:
                yield from list_texts(each)


def _find_paths(tree: Any, at: Path, way: tuple[str, ...], fields: MaskedFields) -> Iterator[tuple[Path, Any]]:
    match tree:
        case dict():
            for name, each in tree.items():
                if fields.has((*way, name)):
                    yield (*at, name), each
                else:
                    yield from _find_paths(each, (*at, name), (*way, name), fields)
        case list():
            for number, each in enumerate(tree):
                yield from _find_paths(each, (*at, number), way, fields)
