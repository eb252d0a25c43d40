"""The redaction of hidden values that errors, tracebacks and keys quote (pure).

A quote is found whole or cut, in upper or lower case, and as JSON, Python and URLs escape it. Texts computed
from a hidden value, and hidden texts shorter than `SHORTEST`, are not found.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from json.encoder import encode_basestring, encode_basestring_ascii
from typing import Final
from urllib.parse import quote, quote_plus

from bridge.deadletters.masking.value_mask import MASK

#: Least characters of a hidden text that is searched as a word; and of a part that is searched anywhere.
SHORTEST: Final = 3
ANYWHERE: Final = 6
#: Characters in a row that identify a longer hidden text: errors cut their quotes.
PART: Final = 8
#: Most characters of hidden texts that are searched; for a letter with more, no error text is shown.
MOST: Final = 200_000
#: Most characters of a text that is searched; a longer one is not shown.
LONGEST_TEXT: Final = 200_000
#: The replacement of a text that cannot be searched.
NOT_SHOWN: Final = "[masked: this text may quote what your role does not see]"
#: Lengths of the hidden texts that have no part.
_SHORT: Final = tuple(range(PART - 1, SHORTEST - 1, -1))


@dataclass(frozen=True, slots=True)
class HiddenQuotes:
    """The hidden texts to redact, searched in time linear in the length of the text.

    Attributes:
        words: hidden texts shorter than `PART`, in lower case.
        parts: each `PART` characters of the longer ones, in lower case.
        unknown: whether the hidden texts are unknown or too many: then no text is shown.
        too_much: whether they are known, but too many.
        size: the number of characters of hidden texts.
    """

    words: frozenset[str]
    parts: frozenset[str]
    unknown: bool = False
    too_much: bool = False
    size: int = 0

    def masked(self, text: str) -> str:
        """Return a redacted text; one that is too long to be searched is not shown."""
        if not text or not (self.words or self.parts or self.unknown):
            return text
        if self.unknown or len(text) > LONGEST_TEXT:
            return NOT_SHOWN
        return "".join(self._without_words(part) if not cut else MASK for part, cut in self._runs(text))

    def _without_words(self, text: str) -> str:
        """Return the text without short hidden texts: at each position the longest that begins there."""
        if not self.words:
            return text
        small, shown, begins, at = _lower_same_length(text), list[str](), 0, 0
        while at <= len(small) - SHORTEST:
            length = next((size for size in _SHORT if self._has_word(small, at, at + size)), 0)
            if not length:
                at += 1
                continue
            shown += (text[begins:at], MASK)
            begins = at = at + length
        return "".join((*shown, text[begins:]))

    def _has_word(self, small: str, begins: int, ends: int) -> bool:
        return small[begins:ends] in self.words and (
            ends - begins >= ANYWHERE
            or not (_is_word_character(small[begins - 1 : begins]) or _is_word_character(small[ends : ends + 1]))
        )

    def _runs(self, text: str) -> Iterator[tuple[str, bool]]:
        """Yield runs of the text, each with whether it has a part of a hidden text."""
        if not self.parts:
            yield text, False
            return
        small = _lower_same_length(text)
        begins, at = 0, 0
        while at <= len(small) - PART:
            if small[at : at + PART] not in self.parts:
                at += 1
                continue
            end = at + PART
            while small[end - PART + 1 : end + 1] in self.parts and end < len(small):
                end += 1
            yield text[begins:at], False
            yield text[at:end], True
            begins = at = end
        yield text[begins:], False


#: No hidden texts.
NOTHING: Final = HiddenQuotes(frozenset(), frozenset())
UNKNOWN: Final = HiddenQuotes(frozenset(), frozenset(), unknown=True)
TOO_MUCH: Final = HiddenQuotes(frozenset(), frozenset(), unknown=True, too_much=True)


def build_quotes(hidden: Iterable[str], most: int = MOST) -> HiddenQuotes:
    """Return the quotes to search for hidden texts.

    Parameters:
        most: characters of hidden texts in all spellings; with more, no text is shown.
    """
    wanted: set[str] = set()
    size = 0
    for text in hidden:
        if len(text) > most:
            return TOO_MUCH
        new = {_lower_same_length(way) for way in _list_spellings(text)} - wanted if len(text) >= SHORTEST else set()
        size += sum(map(len, new))
        if size > most:
            return TOO_MUCH
        wanted |= new
    words = frozenset(each for each in wanted if len(each) < PART)
    parts = frozenset(each[at : at + PART] for each in wanted for at in range(len(each) - PART + 1))
    return HiddenQuotes(words, parts, size=size)


def _list_spellings(text: str) -> Iterator[str]:
    """Yield the spellings of a text: itself, and as JSON, Python and a URL escape it."""
    yield text
    yield encode_basestring(text)[1:-1]
    yield encode_basestring_ascii(text)[1:-1]
    yield repr(text)[1:-1]
    yield ascii(text)[1:-1]
    plain = text.encode("utf-8", "replace")
    yield quote(plain, safe="")
    yield quote_plus(plain)
    yield repr(plain)[2:-1]


def _lower_same_length(text: str) -> str:
    """Return a text in lower case with the same length: characters that would change it stay."""
    small = text.lower()
    if len(small) == len(text):
        return small
    return "".join(low if len(low := each.lower()) == 1 else each for each in text)


def _is_word_character(character: str) -> bool:
    return character.isalnum() or character == "_"
