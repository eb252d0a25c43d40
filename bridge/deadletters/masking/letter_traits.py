"""The traits that the letters of a group share beside other letters, from the fields that a role may see."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal, NamedTuple

from bridge.deadletters.db import group_rows, letter_query
from bridge.deadletters.db.database import Database
from bridge.deadletters.db.letter_payload import QuotableContent, read_quotable_contents
from bridge.deadletters.editing import exact_json
from bridge.deadletters.inspection.failure_groups import GroupState
from bridge.deadletters.masking.letter_mask import LetterMasks, find_content_quotes
from bridge.deadletters.masking.text_redaction import MOST, HiddenQuotes
from bridge.deadletters.model.letter_filter import LetterFilter
from bridge.deadletters.model.stored_letter import LetterStatus
from bridge.errors import NoJson
from bridge.settings.masked_fields import MaskedFields

#: Most traits that are shown.
MOST_TRAITS: Final = 20
#: The least percentage of letters that have, or lack, a common trait.
LEAST: Final = 50

TraitKind = Literal["header", "field"]

#: The traits of a letter: kind and name → text; `None`: too long to compare.
TraitSet = Mapping[tuple[TraitKind, str], str | None]


class LetterTrait(NamedTuple):
    """A trait that many of some letters have, or lack.

    Attributes:
        says: its text; `None`: it is absent.
        letters, of: how many of these letters have it, of how many for which that is known.
        others, of_others: likewise for the other letters.
    """

    what: TraitKind
    name: str
    says: str | None
    letters: int
    of: int
    others: int
    of_others: int

    @property
    def apart(self) -> float:
        """Return the difference between the shares of these letters and of the others."""
        return self.letters / max(self.of, 1) - self.others / max(self.of_others, 1)


class TraitSide(NamedTuple):
    """A set of letters to compare.

    Attributes:
        traits: the traits of each letter.
        unread: letters without known fields: the value is no JSON object, too large, or hidden.
    """

    traits: Sequence[TraitSet] = ()
    unread: int = 0

    def known(self, what: TraitKind) -> int:
        """Return the number of letters for which a kind of trait is known."""
        return len(self.traits) - (self.unread if what == "field" else 0)


class CommonTraits(NamedTuple):
    """The common traits of letters, the most distinctive first."""

    traits: Sequence[LetterTrait]
    these: TraitSide
    others: TraitSide


def find_common_traits(these: TraitSide, others: TraitSide) -> CommonTraits:
    """Return the traits that at least half of some letters have or lack, and a smaller share of others."""
    found = [each for each in (*_having(these, others), *_lacking(these, others)) if each.apart > 0]
    many = [each for each in found if 100 * each.letters >= LEAST * each.of]
    many.sort(key=lambda each: (-each.apart, each.what, each.name, each.says or ""))
    return CommonTraits(many[:MOST_TRAITS], these, others)


def _having(these: TraitSide, others: TraitSide) -> list[LetterTrait]:
    here, there = _said(these), _said(others)
    return [
        LetterTrait(what, name, says, count, these.known(what), there[what, name, says], others.known(what))
        for (what, name, says), count in here.items()
    ]


def _lacking(these: TraitSide, others: TraitSide) -> list[LetterTrait]:
    here, there = _names(these), _names(others)
    found = []
    for (what, name), count in there.items():
        of, of_others = these.known(what), others.known(what)
        found.append(LetterTrait(what, name, None, of - here[what, name], of, of_others - count, of_others))
    return found


def _said(side: TraitSide) -> Counter[tuple[TraitKind, str, str]]:
    return Counter((*named, says) for trait in side.traits for named, says in trait.items() if says is not None)


def _names(side: TraitSide) -> Counter[tuple[TraitKind, str]]:
    return Counter(named for trait in side.traits for named in trait)


#: Number of the newest letters that are read on either side, and of those in memory at once.
LOOKED_AT: Final = 1_000
_AT_ONCE: Final = 100
#: Most bytes of a value that is parsed.
LARGEST: Final = 16_384
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

    def find_traits(self, group: GroupState) -> CommonTraits:
        """Return the common traits of a group's newest open letters, beside the newest letters of its topics in
        other groups.

        Traits are headers, and top-level fields of JSON objects. Masked fields and texts that quote them are left out;
        a letter for which that is unknown is left out entirely.
        """
        filter_ = LetterFilter(groups=(group.id,), statuses=(LetterStatus.OPEN,))
        with self.database.reading() as connection:
            these = letter_query.find_letter_page(connection, filter_, LOOKED_AT).letters
            beside = group_rows.find_groups_beside(connection, group.id)
            filter_ = LetterFilter(groups=tuple(beside), topics=group.topics)
            others = letter_query.find_letter_page(connection, filter_, LOOKED_AT).letters if beside else []
        # A field that is masked in one topic is compared in none: it would seem absent.
        fields = [self.masks.find_fields(topic) for topic in group.topics]
        return find_common_traits(
            self._side([each.id for each in these], fields), self._side([each.id for each in others], fields)
        )

    def _side(self, ids: Sequence[int], fields: Sequence[MaskedFields]) -> TraitSide:
        found: list[TraitSet] = []
        unread, left = 0, MOST_COMPARED
        for at in range(0, len(ids), _AT_ONCE):
            with self.database.reading() as connection:
                some = read_quotable_contents(connection, ids[at : at + _AT_ONCE], LARGEST)
            for content in some.values():
                each = content._replace(value=self.database.payloads.read(content.value, content.headers).value)
                known = find_content_quotes(self.masks.find_fields(each.topic), each, min(left, MOST))
                left -= known.size
                if not known.unknown:
                    tree = _tree(each.value)
                    unread += tree is None
                    found.append(_traits(each, tree, fields, known))
        return TraitSide(found, unread)


def _traits(
    letter: QuotableContent, tree: dict[str, Any] | None, fields: Sequence[MaskedFields], known: HiddenQuotes
) -> TraitSet:
    said = _headers(letter, fields)[:WIDEST]
    if tree is not None:
        said += _fields(tree, fields)[:WIDEST]
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


def _fields(tree: dict[str, Any], fields: Sequence[MaskedFields]) -> list[ScalarValue]:
    return [
        (("field", name), _scalar(value))
        for name, value in tree.items()
        if not any(each.value or each.has((name,)) for each in fields)
    ]


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


def _scalar(value: Any) -> str | None:
    match value:
        case str():
            return value
        case None | bool() | exact_json.ExactNumber():
            return exact_json.write_json(value).decode()
    return None
