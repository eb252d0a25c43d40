"""The words by which a dead letter is found: of its error, key, headers and the beginning of its value (pure).

Both databases index the same words, so both find the same letters.
"""

import hashlib
import json
import re
import unicodedata
from collections.abc import Iterator
from typing import Final

from bridge.formats.delivery import Header, Headers

#: Most different words of a letter, and characters of a word: what a letter costs to record has an end.
MOST: Final = 100
LONGEST: Final = 40
#: How many bytes of a value are read for them.
LOOKED_AT: Final = 2_048
#: How a word begins that stands for a header.
MARK: Final = "§"
#: How JSON begins that may have text in it.
_JSON: Final = ("{", "[", '"')

_WORD: Final = re.compile(r"\w+")
#: Each ASCII character in lower case, and a space for what separates words: five times as quick as to look for them.
_PLAIN: Final = bytes(ord(chr(at).lower()) if _WORD.match(chr(at)) else ord(" ") for at in range(128)) + bytes(128)
#: What JSON writes in place of a character: units of UTF-16 in a row, or one character behind a backslash.
_ESCAPE: Final = re.compile(r"((?:\\u[0-9a-fA-F]{4})+)|\\.?", re.DOTALL)


def split_words(text: str) -> list[str]:
    """The words of a text, as they are compared: without case, each cut to `LONGEST` characters."""
    if text.isascii():
        found = text.encode().translate(_PLAIN).decode().split()
    else:
        found = _WORD.findall(unicodedata.normalize("NFKC", text).casefold())
    return found if max(map(len, found), default=0) <= LONGEST else [word[:LONGEST] for word in found]


def find_letter_words(error_message: str, key: bytes | None, headers: Headers, value: bytes | None) -> tuple[str, ...]:
    """The words by which a letter is found, each once, at most `MOST`: its headers' marks first, its value's last."""
    # What a filter of headers goes by must not be crowded out by a long message.
    found = [*map(mark_header, headers)]
    texts = [_decode_beginning(key), error_message, *_mark_headers(headers), _decode_beginning(value)]
    # At once, where no character of one may change by what stands before it: one by one they take half as long again.
    for text in [" ".join(texts)] if all(map(str.isascii, texts)) else texts:
        found += split_words(text)
    return tuple(dict.fromkeys(found))[:MOST]


def mark_header(header: Header) -> str:
    """One word that stands for a header, name and value: no text has it."""
    name, value = header
    made = hashlib.blake2b(name.encode("utf-8", "surrogateescape"), digest_size=8, person=b"header")
    made.update(b"\0" if value is None else b"=" + value)
    return f"{MARK}{made.hexdigest()}"


def _mark_headers(headers: Headers) -> Iterator[str]:
    for name, said in headers:
        yield name
        yield _decode_beginning(said)


def find_spellings(word: str) -> list[list[str]]:
    """What may stand in the index for a word: itself, or the words that were kept of it as JSON escaped it.

    Letters that were recorded before JSON was decoded have `zo` and `u00eb` for `Zo\\u00eb`, by the case of the value.
    """
    if word.isascii() or word.startswith(MARK):
        return [[word]]
    cases = (word, word[0].upper() + word[1:], word.upper())
    escaped = [split_words(json.dumps(each)) for each in cases]
    return [[word], *(each for at, each in enumerate(escaped) if each not in escaped[:at])]


def _decode_beginning(data: bytes | None) -> str:
    """The beginning of a text, that of JSON as it is meant: `Zo\\u00eb` is Zoë."""
    text = _read_text(data)
    if "\\" not in text or text.lstrip()[:1] not in _JSON:
        return text
    # What stands behind a backslash otherwise is a quote, a slash or a control character, and of no word.
    return _ESCAPE.sub(lambda found: _decode_escapes(found[1]) if found[1] else " ", text)


def _decode_escapes(units: str) -> str:
    """The characters of `\\u00eb\\u00ef`, which may be halves of a pair."""
    return bytes.fromhex(units.replace("\\u", "")).decode("utf-16-be", "replace")


def _read_text(data: bytes | None) -> str:
    """The beginning of a text in UTF-8; "" where it is none."""
    beginning = (data or b"")[:LOOKED_AT]
    if b"\0" in beginning:
        return ""
    try:
        return beginning.decode()
    except UnicodeDecodeError as error:
        # What was cut may end within a character.
        cut = len(beginning) == LOOKED_AT and error.start > LOOKED_AT - 4
        return beginning[: error.start].decode() if cut else ""
