"""The list of masked fields: the rules of DEADLETTERS_MASK for values, keys and headers, by topic (pure)."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import cache
from typing import Final

from bridge.settings.address_values import split_list

_KEY: Final = "@key"
_VALUE: Final = "@value"
_HEADER: Final = "@header."
_TOPIC: Final = re.compile(r"[\w.*?-]{1,249}", re.ASCII)


@dataclass(frozen=True, slots=True)
class MaskedFields:
    """The masked parts of a topic's records.

    Attributes:
        paths: of values: name patterns from the outside in; a field whose path ends with them is masked.
        headers: patterns of header names.
        key, value: whether all of it is masked.
    """

    paths: tuple[tuple[str, ...], ...] = ()
    headers: tuple[str, ...] = ()
    key: bool = False
    value: bool = False

    @property
    def of_value(self) -> bool:
        """Return whether any part of values is masked."""
        return self.value or bool(self.paths)

    def __bool__(self) -> bool:
        """Return whether anything is masked."""
        return self.of_value or self.key or bool(self.headers)

    def has(self, path: Sequence[str]) -> bool:
        """Return whether a field of a value is masked.

        Parameters:
            path: the names from the outside in; items of lists have none.
        """
        names, last = _names(path), len(_names(path[-1:]))
        # A name with dots is a path too, of which an outer part may be masked.
        ends = range(len(names) - last + 1, len(names) + 1)
        return any(_ends_with(names[:end], asked) for end in ends for asked in self.paths)

    def has_header(self, name: str) -> bool:
        """Return whether a header is masked."""
        return any(fnmatchcase(name.lower(), asked) for asked in self.headers)


@dataclass(frozen=True, slots=True)
class MaskRules:
    """The rules: topic patterns with their masked fields."""

    rules: tuple[tuple[str, tuple[str, ...]], ...] = ()

    def __bool__(self) -> bool:
        """Return whether any rule exists."""
        return bool(self.rules)

    def find_fields(self, topic: str) -> MaskedFields:
        """Return the masked parts of a topic's records."""
        return _fields(tuple(field for asked, fields in self.rules if fnmatchcase(topic, asked) for field in fields))

    def of_rule(self, number: int) -> MaskedFields:
        """Return the masked parts of one rule."""
        return _fields(self.rules[number][1])


@cache
def read_mask_rules(text: str) -> MaskRules:
    """Return the rules of a setting: `orders: customer.email, card_number, @key; *: password, @header.authorization`.

    Raises:
        ValueError: a part is invalid; the message names it.
    """
    return MaskRules(tuple(_rule(part) for part in text.split(";") if part.strip()))


def _rule(part: str) -> tuple[str, tuple[str, ...]]:
    topic, colon, fields = (each.strip() for each in part.partition(":"))
    if not colon or not _TOPIC.fullmatch(topic):
        raise ValueError(f"{part.strip()!r} names no topic: write `orders: customer.email`, or `*: …` for all")
    found = split_list(fields)
    if not found:
        raise ValueError(f"{part.strip()!r} names no field")
    if wrong := [each for each in found if not _is_field(each)]:
        raise ValueError(
            f"{wrong[0]!r} is no field: write names with dots between them (`customer.email`), "
            f"{_KEY}, {_VALUE}, or {_HEADER}NAME"
        )
    return topic, found


def _is_field(text: str) -> bool:
    if text.startswith("@"):
        return text in (_KEY, _VALUE) or (len(text) > len(_HEADER) and text.startswith(_HEADER))
    return all(text.split("."))


@cache
def _fields(said: tuple[str, ...]) -> MaskedFields:
    return MaskedFields(
        paths=tuple(tuple(each.casefold().split(".")) for each in said if not each.startswith("@")),
        headers=tuple(each.removeprefix(_HEADER).lower() for each in said if each.startswith(_HEADER)),
        key=_KEY in said,
        value=_VALUE in said,
    )


def _ends_with(names: Sequence[str], asked: Sequence[str]) -> bool:
    return len(asked) <= len(names) and all(map(fnmatchcase, names[len(names) - len(asked) :], asked))


def _names(path: Sequence[str]) -> list[str]:
    return [part for name in path for part in _parts(name)]


def _parts(name: str) -> Iterator[str]:
    """Yield the parts of a name; one with dots counts as a path, too: better to mask too much than too little."""
    yield from name.casefold().split(".")
