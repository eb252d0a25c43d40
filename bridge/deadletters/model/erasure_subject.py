"""The person whose data are erased: the keys and fields that select the person's records, and the texts that quote
them (pure).
"""

import hashlib
import json
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final, NamedTuple
from urllib.parse import quote

from bridge.errors import ErasureRefused
from bridge.formats.text_forms import write_octets

#: The replacement of a text that was erased.
ERASED: Final = "[erased]"
#: Least characters of a key or field that is searched in texts: shorter ones are words of other things too.
SHORTEST_QUOTE: Final = 4
#: Least letters and digits of a text that is given as such: a short name, never punctuation.
SHORTEST_TEXT: Final = 2
#: Numbers of our own in texts, which a key may equal: `plan 4711`; coordinates (`orders-0-4711`) have a hyphen.
_NO_OWN_NUMBER: Final = "".join(rf"(?<!\b{name} )" for name in ("plan", "letter", "group", "offset"))
#: The first name of a field of a value.
_VALUE: Final = "value"


class SubjectField(NamedTuple):
    """A field of a value, and the text that it has in the person's records.

    Attributes:
        path: names from the outside in; items of lists have none.
    """

    path: tuple[str, ...]
    text: str


def parse_subject_field(text: str) -> SubjectField:
    """Return the field of `value.customer.id=4711`.

    Raises:
        ErasureRefused: it is no field of a value, or has no text.
    """
    name, equals, wanted = text.partition("=")
    first, *path = name.split(".")
    if first != _VALUE or not path or not all(path) or not equals or not wanted:
        raise ErasureRefused(f"{name!r} is no field: write --field value.customer.id=4711.")
    return SubjectField(tuple(path), wanted)


@dataclass(frozen=True)
class ErasureSubject:
    """The person whose data are erased.

    Attributes:
        keys: record keys; a record with one of them is the person's.
        fields: fields of values; a record with one of them is the person's.
        texts: further texts that name the person, such as a mail address: they are erased where texts quote them.
        topics: only records of these source topics are the person's; empty: of all.
    """

    keys: tuple[bytes, ...] = ()
    fields: tuple[SubjectField, ...] = ()
    texts: tuple[str, ...] = ()
    topics: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if not self.keys and not self.fields:
            raise ErasureRefused("name the person: --key 4711, or --field value.customer.id=4711.")
        short = [text for text in self.texts if sum(map(str.isalnum, text)) < SHORTEST_TEXT]
        if short:
            raise ErasureRefused(
                f"--text {short[0]!r} has fewer than {SHORTEST_TEXT} letters or digits: it would "
                "be erased from texts about others."
            )

    def covers(self, topic: str) -> bool:
        """Return whether records of a source topic may be the person's."""
        return not self.topics or topic in self.topics

    def owns(self, key: bytes | None, value: bytes | None) -> bool:
        """Return whether a record is the person's.

        Parameters:
            value: for people: JSON if a schema wrote it.
        """
        return (key is not None and key in self.keys) or (bool(self.fields) and self._has_field(value))

    def _has_field(self, value: bytes | None) -> bool:
        # Without the text there is no such field: most values are not parsed. An escape may be written in many ways.
        if not value or not (b"\\" in value or any(part in value for part in self._field_parts)):
            return False
        try:
            # Numbers as they are written: 4711 and "4711" are the same field.
            data = json.loads(value, parse_int=str, parse_float=str)
        except (ValueError, RecursionError):
            return False
        return any(field.text in _read_texts(data, field.path) for field in self.fields)

    @cached_property
    def _field_parts(self) -> tuple[bytes, ...]:
        return tuple(field.text.encode("utf-8", "surrogateescape") for field in self.fields)

    @cached_property
    def quotes(self) -> tuple[str, ...]:
        """Return the texts that are erased where other texts quote them."""
        own = [write_octets(key) for key in self.keys] + [field.text for field in self.fields]
        return tuple(dict.fromkeys((*self.texts, *(text for text in own if len(text) >= SHORTEST_QUOTE))))

    @property
    def short_texts(self) -> int:
        """Return how many keys and fields are too short to be searched in texts."""
        own = [write_octets(key) for key in self.keys] + [field.text for field in self.fields]
        return len({text for text in own if len(text) < SHORTEST_QUOTE and text not in self.texts})

    @cached_property
    def spellings(self) -> tuple[str, ...]:
        """Return the quotes as they are, as JSON and as a URL escapes them."""
        found = [each for text in self.quotes for each in (text, json.dumps(text)[1:-1], quote(text, safe=""))]
        return tuple(dict.fromkeys(found))

    @cached_property
    def _pattern(self) -> re.Pattern[str]:
        words = "|".join(map(re.escape, sorted(self.spellings, key=len, reverse=True)))
        return re.compile(rf"{_NO_OWN_NUMBER}(?<![\w-])(?:{words})(?![\w-])", re.IGNORECASE)

    def is_quoted(self, text: str) -> bool:
        """Return whether a text quotes the person."""
        return bool(self.quotes) and self._pattern.search(text) is not None

    def is_quoted_in(self, data: bytes | None) -> bool:
        """Return whether bytes quote the person."""
        return bool(data) and self.is_quoted(bytes(data or b"").decode("utf-8", "replace"))

    def redact(self, text: str) -> str:
        """Return a text without quotes of the person."""
        return self._pattern.sub(ERASED, text) if self.quotes else text

    def redact_json(self, text: str) -> str:
        """Return a JSON text whose texts and names do not quote the person; its numbers stay. A text that is no JSON
        is redacted as it is.
        """
        try:
            return json.dumps(self._redact_data(json.loads(text)))
        except ValueError:
            return self.redact(text)

    def _redact_data(self, data: Any) -> Any:
        if isinstance(data, str):
            return self.redact(data)
        if isinstance(data, list):
            return [self._redact_data(item) for item in data]
        if isinstance(data, dict):
            return {self.redact(name): self._redact_data(item) for name, item in data.items()}
        return data

    def digest(self, salt: str) -> str:
        """Return the digest under which the audit log names the person.

        Parameters:
            salt: of the database: without it nobody can compare digests.
        """
        made = hashlib.blake2b(digest_size=8, key=salt.encode()[:64])
        for part in self._identify():
            made.update(len(part).to_bytes(4, "big") + part)
        return made.hexdigest()

    def _identify(self) -> Iterator[bytes]:
        yield from (b"key", *sorted(self.keys))
        fields = (".".join(field.path) + "=" + field.text for field in self.fields)
        yield from (b"field", *sorted(field.encode("utf-8", "surrogateescape") for field in fields))


def _read_texts(data: Any, path: Sequence[str]) -> set[str]:
    """Return the texts of a field: one for each item of lists on its path."""
    return set(_walk(data, path))


def _walk(data: Any, path: Sequence[str]) -> Iterable[str]:
    if isinstance(data, list):
        for item in data:
            yield from _walk(item, path)
    elif path:
        if isinstance(data, dict) and path[0] in data:
            yield from _walk(data[path[0]], path[1:])
    elif isinstance(data, bool):
        yield "true" if data else "false"
    elif isinstance(data, str):
        yield data
