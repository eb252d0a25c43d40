"""Letters as somebody is shown them who does not see every field (pure)."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import Final, NamedTuple

from bridge.deadletters.letters.filters import Filter
from bridge.deadletters.masking.hidden import MASK, Hidden, hidden, masked
from bridge.deadletters.masking.quotes import MOST, NOTHING, UNKNOWN, Quotes, quotes
from bridge.deadletters.questions.shown import Act, Failed, Listed, Shown
from bridge.errors import FilterFault
from bridge.records.message import Headers
from bridge.settings.masks import Fields, Rules


class View(NamedTuple):
    """A letter as it is shown.

    Attributes:
        letter: with masks in the places of what is hidden.
        value: what is hidden of its value.
        quotes: for other texts that may quote it: what its handler says of it, what `bridge find` knows of it.
        parts: how many parts of value, key and headers are hidden.
    """

    letter: Shown
    value: Hidden
    quotes: Quotes
    parts: int


@dataclass(frozen=True, slots=True)
class Masks:
    """What somebody does not see."""

    rules: Rules

    def __bool__(self) -> bool:
        """Whether there is anything."""
        return bool(self.rules)

    def of(self, topic: str) -> Fields:
        """What they do not see of a source topic's letters."""
        return self.rules.of(topic)

    def letter(self, letter: Shown) -> View:
        """A letter in full: this is the one way by which it leaves the desk.

        A value that cannot be parsed is not shown where its topic has masked fields, and no text that may quote it is.
        """
        fields = self.of(letter.listed.topic)
        found = hidden(letter.value, fields)
        if not fields:
            return View(letter, found, NOTHING, 0)
        known = _of_letter(letter, fields, found)
        shown = replace(
            letter,
            listed=line(letter.listed, fields, known),
            value=masked(letter.value, found),
            headers=headers(letter.headers, fields, known),
            traceback=known.masked(letter.traceback),
            history=tuple(_failed(each, fields, known) for each in letter.history),
            # What its handler said when a plan left it out.
            plans=tuple(replace(each, said=known.masked(each.said)) for each in letter.plans),
            edits=tuple(_edit(each, fields) for each in letter.edits),
        )
        parts = len(found.found) or int(found.is_any)
        parts += int(fields.key and letter.listed.key is not None)
        return View(shown, found, known, parts + sum(fields.has_header(name) for name, _ in letter.headers))

    def check(self, asked: Filter) -> Filter:
        """A filter that somebody asks for: what they do not see is not searched.

        Raises:
            FilterFault: the letters that it finds would tell what is hidden; says which topics can be searched so.
        """
        tests: dict[str, Callable[[Fields], bool]] = {}
        if asked.text:
            tests["text"] = bool
        if asked.key is not None:
            tests["key"] = lambda fields: fields.key
        if asked.headers:
            tests["header"] = lambda fields: any(fields.has_header(name) for name, _ in asked.headers)
        for named, test in tests.items():
            if any(map(test, self._of(asked.topics))):
                raise FilterFault(
                    f"Your role does not see every field of these letters, so they are not searched by {named}: name "
                    "topics of which you see all (topic), or search by handler, exception, reason or time."
                )
        return asked

    def whole(self, topics: Sequence[str], what: str) -> None:
        """Refuse what shows, or moves elsewhere, more of letters than somebody sees.

        Parameters:
            topics: that the letters are of; empty: any.
            what: "patch", "copy": what is refused.

        Raises:
            FilterFault: something is hidden of one of these topics.
        """
        if any(self._of(topics)):
            raise FilterFault(
                f"Your role does not see every field of these letters, so it cannot {what} them: name topics of which "
                "you see all (topic), or ask somebody who sees them."
            )

    def searches_keys(self, topics: Sequence[str] = ()) -> bool:
        """Whether letters and records of topics, or of all, may be looked for by their keys."""
        return not any(fields.key for fields in self._of(topics))

    def _of(self, topics: Sequence[str]) -> Iterator[Fields]:
        """What is hidden of topics; without one, of any."""
        return map(self.of, topics) if topics else map(self.rules.of_rule, range(len(self.rules.rules)))


#: Nothing is hidden.
NO_MASKS: Final = Masks(Rules())


def line(it: Listed, fields: Fields, known: Quotes) -> Listed:
    """A line of a list."""
    return replace(it, key=key(it.key, fields, known), error_message=known.masked(it.error_message))


def key(data: bytes | None, fields: Fields, known: Quotes) -> bytes | None:
    """A key: masked, or without what it has of a masked field."""
    return MASK.encode() if fields.key and data is not None else _data(data, known)


def headers(found: Headers, fields: Fields, known: Quotes) -> Headers:
    """Headers, likewise."""
    return tuple(
        (name, MASK.encode() if fields.has_header(name) and value is not None else _data(value, known))
        for name, value in found
    )


def quoted(
    fields: Fields,
    values: Iterable[Hidden],
    data: bytes | None,
    found: Headers,
    *,
    whole: bool = True,
    most: int = MOST,
) -> Quotes:
    """What texts of a letter may quote of what is hidden.

    Parameters:
        values: that it has, or had.
        data: its key.
        whole: whether these are all values that it had.
        most: characters of hidden texts that are looked for.
    """
    some = list(values)
    if fields.of_value and not (whole and all(each.readable for each in some)):
        return UNKNOWN
    said = [data] if fields.key else []
    said += [value for name, value in found if fields.has_header(name)]
    of_bytes = (each.decode("utf-8", "surrogateescape") for each in said if each is not None)
    return quotes(chain(_texts(some), of_bytes), most)


def _texts(some: Iterable[Hidden]) -> Iterator[str]:
    for each in some:
        yield from each.texts()


def _of_letter(letter: Shown, fields: Fields, found: Hidden) -> Quotes:
    before = [*(each.value for each in letter.history), *(each.value for each in letter.edits)]
    values = [found, *(hidden(each, fields) for each in before)]
    whole = letter.kept and all(each.kept for each in letter.history)
    return quoted(fields, values, letter.listed.key, letter.headers, whole=whole)


def _failed(each: Failed, fields: Fields, known: Quotes) -> Failed:
    return replace(
        each,
        error_message=known.masked(each.error_message),
        traceback=known.masked(each.traceback),
        value=masked(each.value, hidden(each.value, fields)),
    )


def _edit(each: Act, fields: Fields) -> Act:
    return replace(each, value=masked(each.value, hidden(each.value, fields)))


def _data(data: bytes | None, known: Quotes) -> bytes | None:
    """A key or a header that is not masked, and may have what is."""
    if data is None or (known.unknown and not known.too_much):
        return data
    return known.masked(data.decode("utf-8", "surrogateescape")).encode("utf-8", "surrogateescape")
