"""What is hidden of one value, and the value as who may not see that is shown it (pure)."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Final

from bridge.deadletters.mending import json_text
from bridge.errors import NoJson
from bridge.settings.masks import Fields

#: What stands in the place of what is hidden.
MASK: Final = "[masked]"
#: Why a value is not shown at all.
UNREADABLE: Final = "This value cannot be shown to your role: it cannot be parsed for its masks."

#: Where a field stands in a value: names, and numbers of items of lists.
Path = tuple[str | int, ...]


@dataclass(frozen=True, slots=True)
class Hidden:
    """A value with what is hidden of it.

    Attributes:
        tree: what `json_text.read` made of it; `None` besides `readable` false.
        found: by its path, each part that is hidden, in the order of the text.
        readable: whether it can be told what is masked in it.
        whole: whether all of it is masked.
    """

    tree: Any = field(default=None, repr=False)
    found: tuple[tuple[Path, Any], ...] = field(default=(), repr=False)
    readable: bool = True
    whole: bool = False

    @property
    def is_any(self) -> bool:
        """Whether something is hidden."""
        return self.whole or not self.readable or bool(self.found)

    def texts(self) -> Iterator[str]:
        """What is hidden, as texts might quote it."""
        for _, part in self.found:
            yield from texts(part)


def hidden(value: bytes | None, fields: Fields) -> Hidden:
    """What is hidden of a value."""
    if value is None or not fields.of_value:
        return Hidden()
    try:
        tree = json_text.read(value)
        found = ((), tree) if fields.value else None
        return Hidden(tree, (found,) if found else tuple(_found(tree, (), (), fields)), whole=fields.value)
    except (NoJson, RecursionError):
        return Hidden(readable=False, whole=fields.value)


def masked(value: bytes | None, found: Hidden) -> bytes | None:
    """The value as who may not see what is hidden is shown it; the very bytes where nothing is.

    It is JSON, digit by digit what it was, with `[masked]` in the place of each part that is hidden.
    """
    if value is None or not found.is_any:
        return value
    if found.whole or not found.readable:
        return MASK.encode()
    return json_text.written(replaced(found.tree, {path: MASK for path, _ in found.found}), value)


def replaced(tree: Any, parts: dict[Path, Any], at: Path = ()) -> Any:
    """A tree with other parts at these paths."""
    if at in parts:
        return parts[at]
    if isinstance(tree, dict):
        return {name: replaced(each, parts, (*at, name)) for name, each in tree.items()}
    if isinstance(tree, list):
        return [replaced(each, parts, (*at, number)) for number, each in enumerate(tree)]
    return tree


def names(path: Path) -> tuple[str, ...]:
    """The names of a path: items of lists have none."""
    return tuple(each for each in path if isinstance(each, str))


def texts(part: Any) -> Iterator[str]:
    """What a part of a value says, and each part of that: names too, since what is hidden may be a whole object."""
    match part:
        case str():
            yield part
        case json_text.Number():
            yield part.text
        case dict():
            for name, each in part.items():
                yield name
                yield from texts(each)
        case list():
            for each in part:
                yield from texts(each)


def _found(tree: Any, at: Path, way: tuple[str, ...], fields: Fields) -> Iterator[tuple[Path, Any]]:
    match tree:
        case dict():
            for name, each in tree.items():
                if fields.has((*way, name)):
                    yield (*at, name), each
                else:
                    yield from _found(each, (*at, name), (*way, name), fields)
        case list():
            for number, each in enumerate(tree):
                yield from _found(each, (*at, number), way, fields)
