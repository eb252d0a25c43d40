"""The traits that the letters of a group share beside handled records and other letters, from the fields that a role
may see.
"""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice
from typing import Any, Final

from bridge.deadletters.db import group_rows, letter_query
from bridge.deadletters.db.database import Database
from bridge.deadletters.db.letter_payload import QuotableContent, read_quotable_contents
from bridge.deadletters.inspection.failure_groups import GroupState
from bridge.deadletters.masking.letter_mask import LetterMasks, find_content_quotes
from bridge.deadletters.masking.text_redaction import MOST, HiddenQuotes
from bridge.deadletters.model import exact_json
from bridge.deadletters.model.letter_filter import LetterFilter
from bridge.deadletters.model.stored_letter import LetterStatus
from bridge.deadletters.model.trait_comparison import CommonTraits, TraitKind, TraitSet, TraitSide, find_common_traits
from bridge.deadletters.model.value_match import write_scalar
from bridge.deadletters.replay.handled_sample import HandledRecords, HandledSample
from bridge.errors import NoJson
from bridge.kafka.clients import Record, headers_of
from bridge.settings.masked_fields import MaskedFields

#: Number of the newest letters that are read on either side, and of those in memory at once.
LOOKED_AT: Final = 1_000
_AT_ONCE: Final = 100
#: Most bytes of a value that is parsed.
LARGEST: Final = 16_384
#: Most levels of objects within objects whose fields are compared.
DEEPEST: Final = 4
#: Most headers and fields of a letter that are compared, and most characters of their texts.
WIDEST: Final = 100
LONGEST: Final = 100
#: Most characters of hidden texts that are searched in the letters of one side; further letters are left out.
MOST_COMPARED: Final = 1_000_000


@dataclass(frozen=True)
class GroupTraits:
    """The common traits of groups. Raises DeskUnavailable if the database does not answer."""

    database: Database
    masks: LetterMasks

    def find_traits(self, group: GroupState, handled: HandledRecords | None = None) -> CommonTraits:
        """Return the common traits of a group's newest open letters, beside a sample of what their handler has handled,
        and the newest letters of their topics in other groups.

        Traits are headers, fields of JSON objects, key and partition. Masked fields and texts that quote them are left
        out; a letter or record for which that is unknown is left out entirely.

        Parameters:
            handled: `None`: no handled record is looked for.
        """
        filter_ = LetterFilter(groups=(group.id,), statuses=(LetterStatus.OPEN,))
        with self.database.reading() as connection:
            these = letter_query.find_letter_page(connection, filter_, LOOKED_AT).letters
            beside = group_rows.find_groups_beside(connection, group.id)
            filter_ = LetterFilter(groups=tuple(beside), topics=group.topics)
            others = letter_query.find_letter_page(connection, filter_, LOOKED_AT).letters if beside else []
        # A field that is masked in one topic is compared in none: it would seem absent.
        fields = [self.masks.find_fields(topic) for topic in group.topics]
        ids, times = [each.id for each in these], list[int]()
        mine = self._side(self._contents(ids, times), fields)
        sample = handled.find_sample(ids, times) if handled is not None and ids else HandledSample()
        done = self._side(_build_contents(sample.records), fields)
        found = find_common_traits(mine, self._side(self._contents([each.id for each in others]), fields), done)
        return found._replace(read=sample.read, silent=sample.silent)

    def _contents(self, ids: Sequence[int], times: list[int] | None = None) -> Iterator[QuotableContent]:
        """Yield the contents of letters, a part of them in memory at once, and add their times."""
        for at in range(0, len(ids), _AT_ONCE):
            with self.database.reading() as connection:
                some = read_quotable_contents(connection, ids[at : at + _AT_ONCE], LARGEST)
            if times is not None:
                times += [each.timestamp for each in some.values() if each.timestamp is not None]
            yield from some.values()

    def _side(self, contents: Iterable[QuotableContent], fields: Sequence[MaskedFields]) -> TraitSide:
        found: list[TraitSet] = []
        unread, left = 0, MOST_COMPARED
        for content in contents:
            each = content._replace(value=self.database.payloads.read(content.value, content.headers).value)
            known = find_content_quotes(self.masks.find_fields(each.topic), each, min(left, MOST))
            left -= known.size
            if not known.unknown:
                tree = _tree(each.value)
                unread += tree is None
                found.append(_traits(each, tree, fields, known))
        return TraitSide(found, unread)


def _build_contents(records: Iterable[Record]) -> Iterator[QuotableContent]:
    """Yield the contents of records; of one whose headers cannot be read nothing is known."""
    for record in records:
        value = record.value()
        is_whole = value is None or len(value) <= LARGEST
        kept = value if is_whole else None
        with suppress(SystemError):
            headers = tuple(headers_of(record) or ())
            yield QuotableContent(record.topic() or "", record.key(), headers, kept, is_whole, record.partition() or 0)


def _traits(
    letter: QuotableContent, tree: dict[str, Any] | None, fields: Sequence[MaskedFields], known: HiddenQuotes
) -> TraitSet:
    said = _headers(letter, fields)[:WIDEST]
    if tree is not None:
        said += islice(_fields(tree, fields, ()), WIDEST)
    if letter.key is not None and not any(each.key for each in fields):
        said.append((("key", ""), _text(letter.key)))
    said.append((("partition", letter.topic), str(letter.partition)))
    return dict(_seen(said, known))


def _tree(value: bytes | None) -> dict[str, Any] | None:
    try:
        tree = None if value is None else exact_json.parse_json(value)
    except NoJson:
        return None
    return tree if isinstance(tree, dict) else None


ScalarValue = tuple[tuple[TraitKind, str], str | None]


def _headers(letter: QuotableContent, fields: Sequence[MaskedFields]) -> list[ScalarValue]:
    return [
        (("header", name), _text(value))
        for name, value in letter.headers
        if not any(each.has_header(name) for each in fields)
    ]


def _fields(tree: dict[str, Any], fields: Sequence[MaskedFields], above: tuple[str, ...]) -> Iterator[ScalarValue]:
    """Yield the fields of an object, and of objects in it, with dots in their names."""
    for name, value in tree.items():
        path = (*above, name)
        if not any(each.value or each.has(path) for each in fields):
            yield ("field", ".".join(path)), write_scalar(value)
            if isinstance(value, dict) and len(path) < DEEPEST:
                yield from _fields(value, fields, path)


def _seen(said: Sequence[ScalarValue], known: HiddenQuotes) -> Iterator[ScalarValue]:
    """Yield the names and texts that quote nothing hidden; a long text without its words."""
    for (what, name), says in said:
        if known.masked(name) == name and (says is None or known.masked(says) == says):
            yield (what, name), says if says is None or len(says) <= LONGEST else None


def _text(value: bytes | None) -> str | None:
    try:
        return "" if value is None else value.decode()
    except UnicodeDecodeError:
        return None
