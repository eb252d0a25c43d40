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

#: Most different words of a letter, and most characters of a word, to bound the cost of recording.
MOST: Final = 100
LONGEST: Final = 40
#: Most bytes of a value that are indexed.
LOOKED_AT: Final = 2_048
#: The prefix of a word that stands for a header.
MARK: Final = "§"
#: The first characters of JSON that may contain text.
_JSON: Final = ("{", "[", '"')

_WORD: Final = re.compile(r"\w+")
#: Maps ASCII characters to lower case, and separators to spaces: five times as fast as a search.
_PLAIN: Final = bytes(ord(chr(at).lower()) if _WORD.match(chr(at)) else ord(" ") for at in range(128)) + bytes(128)
#: The escapes of JSON: units of UTF-16 in a row, or one character after a backslash.
_ESCAPE: Final = re.compile(r"((?:\\u[0-9a-fA-F]{4})+)|\\.?", re.DOTALL)


def split_words(text: str) -> list[str]:
    """Return the words of a text as they are compared: in lower case, cut to `LONGEST` characters."""
    if text.isascii():
        found = text.encode().translate(_PLAIN).decode().split()
    else:
        found = _WORD.findall(unicodedata.normalize("NFKC", text).casefold())
    return found if max(map(len, found), default=0) <= LONGEST else [word[:LONGEST] for word in found]


def find_letter_words(error_message: str, key: bytes | None, headers: Headers, value: bytes | None) -> tuple[str, ...]:
    """Return the distinct words of a letter, at most `MOST`: its headers' marks first, its value's last."""
    # The marks of headers come first, so that a long message does not crowd them out.
    found = [*map(mark_header, headers)]
    texts = [_decode_beginning(key), error_message, *_mark_headers(headers), _decode_beginning(value)]
    # In one call, if no text can change the meaning of the next: separate calls take half as long again.
    for text in [" ".join(texts)] if all(map(str.isascii, texts)) else texts:
        found += split_words(text)
    return tuple(dict.fromkeys(found))[:MOST]


def mark_header(header: Header) -> str:
    """Return a word that stands for a header, name and value, and occurs in no text."""
    name, value = header
    made = hashlib.blake2b(name.encode("utf-8", "surrogateescape"), digest_size=8, person=b"header")
    made.update(b"\0" if value is None else b"=" + value)
    return f"{MARK}{made.hexdigest()}"


def _mark_headers(headers: Headers) -> Iterator[str]:
    for name, said in headers:
        yield name
        yield _decode_beginning(said)


def find_spellings(word: str) -> list[list[str]]:
    """Return the index words for a word: itself, or the words stored for its JSON escape.

    Letters that were recorded before JSON was decoded have `zo` and `u00eb` for `Zo\\u00eb`, by the case of the value.
    """
    if word.isascii() or word.startswith(MARK):
        return [[word]]
    cases = (word, word[0].upper() + word[1:], word.upper())
    escaped = [split_words(json.dumps(each)) for each in cases]
    return [[word], *(each for at, each in enumerate(escaped) if each not in escaped[:at])]


def _decode_beginning(data: bytes | None) -> str:
    """Return the beginning of a text, with JSON escapes decoded: `Zo\\u00eb` is Zoë."""
    text = _read_text(data)
    if "\\" not in text or text.lstrip()[:1] not in _JSON:
        return text
    # Other escapes are quotes, slashes or control characters, which are in no word.
    return _ESCAPE.sub(lambda found: _decode_escapes(found[1]) if found[1] else " ", text)


def _decode_escapes(units: str) -> str:
    """Return the characters of `\\u00eb\\u00ef`, which may be halves of a pair."""
    return bytes.fromhex(units.replace("\\u", "")).decode("utf-16-be", "replace")


def _read_text(data: bytes | None) -> str:
    """Return the beginning of a UTF-8 text; "" if it is none."""
    beginning = (data or b"")[:LOOKED_AT]
    if b"\0" in beginning:
        return ""
    try:
        return beginning.decode()
    except UnicodeDecodeError as error:
        # The cut may split a character.
        cut = len(beginning) == LOOKED_AT and error.start > LOOKED_AT - 4
        return beginning[: error.start].decode() if cut else ""
