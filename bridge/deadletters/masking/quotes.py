"""What others' texts (errors, tracebacks, keys) quote of what is hidden: taken out of them (pure).

It is found as it was written, whole or cut, in either case, and as JSON, Python and addresses escape it. What was made
of it (a hash, a sum, base64) is not known for that, nor is what is shorter than `SHORTEST`.
"""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from json.encoder import encode_basestring, encode_basestring_ascii
from typing import Final
from urllib.parse import quote, quote_plus

from bridge.deadletters.masking.hidden import MASK

#: Characters from which on a hidden text is looked for in others' texts; by itself, as a word, or cut anywhere.
SHORTEST: Final = 3
ANYWHERE: Final = 6
#: Of what is longer, so many characters that follow each other are enough: errors cut what they quote.
PART: Final = 8
#: Most characters of hidden texts that are looked for; of a letter with more, no error text is shown.
MOST: Final = 200_000
#: In the place of a text that cannot be gone through.
NOT_SHOWN: Final = "[masked: this text may quote what your role does not see]"


@dataclass(frozen=True, slots=True)
class Quotes:
    """What is looked for.

    Attributes:
        unknown: whether what is hidden is not known, or is too much: then no text is shown.
    """

    words: re.Pattern[str] | None
    parts: frozenset[str]
    unknown: bool = False

    def masked(self, text: str) -> str:
        """A text without what is hidden."""
        if not text:
            return text
        if self.unknown:
            return NOT_SHOWN
        return "".join(self._without_words(part) if not cut else MASK for part, cut in self._runs(text))

    def _without_words(self, text: str) -> str:
        return text if self.words is None else self.words.sub(MASK, text)

    def _runs(self, text: str) -> Iterator[tuple[str, bool]]:
        """The text in runs: what has a part of something hidden in it, and what has not."""
        if not self.parts:
            yield text, False
            return
        small = _lower(text)
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


#: Nothing is looked for.
NOTHING: Final = Quotes(None, frozenset())
UNKNOWN: Final = Quotes(None, frozenset(), unknown=True)


def quotes(hidden: Iterable[str]) -> Quotes:
    """What to look for, of what is hidden."""
    wanted = {_lower(way) for text in dict.fromkeys(hidden) if len(text) >= SHORTEST for way in _ways(text)}
    if sum(map(len, wanted)) > MOST:
        return UNKNOWN
    if not wanted:
        return NOTHING
    longest = sorted(wanted, key=len, reverse=True)
    words = "|".join(
        re.escape(each) if len(each) >= ANYWHERE else rf"(?<!\w){re.escape(each)}(?!\w)" for each in longest
    )
    parts = frozenset(each[at : at + PART] for each in wanted for at in range(len(each) - PART + 1))
    return Quotes(re.compile(words, re.IGNORECASE), parts)


def _ways(text: str) -> Iterator[str]:
    """A text as it may be written: as it is, and as JSON, Python and an address escape it."""
    yield text
    yield encode_basestring(text)[1:-1]
    yield encode_basestring_ascii(text)[1:-1]
    yield repr(text)[1:-1]
    yield ascii(text)[1:-1]
    plain = text.encode("utf-8", "replace")
    yield quote(plain, safe="")
    yield quote_plus(plain)
    yield repr(plain)[2:-1]


def _lower(text: str) -> str:
    """In lower case, as long as it was: characters of which that is not so stay."""
    small = text.lower()
    if len(small) == len(text):
        return small
    return "".join(low if len(low := each.lower()) == 1 else each for each in text)
