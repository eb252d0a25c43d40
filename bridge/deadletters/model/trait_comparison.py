"""The comparison of some letters with handled records and with other letters: the traits that set them apart (pure)."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from math import sqrt
from typing import Final, Literal, NamedTuple

#: Most traits that are shown.
MOST_TRAITS: Final = 20
#: The least percentage of letters that have, or lack, a common trait.
LEAST: Final = 50

#: The least difference from other letters, in percent of the letters, if no handled record is known.
LEAST_APART: Final = 10
#: Standard deviations at either share. Thousands of values are compared, so few pairs may be told apart by chance.
CERTAINTY: Final = 3.5

TraitKind = Literal["header", "field", "key", "partition"]

#: The traits of a letter: kind and name → text; `None`: too long to compare.
TraitSet = Mapping[tuple[TraitKind, str], str | None]


class LetterTrait(NamedTuple):
    """A trait that many of some letters have, or lack.

    Attributes:
        name: of a header; of a field, with dots where it is in objects of objects; of a partition's topic.
        says: its text; `None`: it is absent.
        letters, of: how many of these letters have it, of how many for which that is known.
        others, of_others: likewise for the other letters.
        handled, of_handled: likewise for the records that the handler has handled.
    """

    what: TraitKind
    name: str
    says: str | None
    letters: int
    of: int
    others: int
    of_others: int
    handled: int = 0
    of_handled: int = 0

    @property
    def apart(self) -> float:
        """Return the difference between the share of these letters and that of the handled records, or of the other
        letters if no handled record is known.
        """
        there = (self.handled, self.of_handled) if self.of_handled else (self.others, self.of_others)
        return self.letters / max(self.of, 1) - there[0] / max(there[1], 1)

    @property
    def is_beyond_chance(self) -> bool:
        """Return whether the share of the handled records is smaller than chance alone would make it.

        The ranges of both shares (Wilson's score interval) do not meet. Other letters failed as well: with them, the
        difference must be one that a person would act on.
        """
        if not self.of:
            # The fields of none of these letters are known.
            return False
        if not self.of_handled:
            return 100 * self.apart >= LEAST_APART
        return _bound_share(self.letters, self.of, -1) > _bound_share(self.handled, self.of_handled, 1)


def _bound_share(count: int, of: int, side: int) -> float:
    """Return the lower (side -1) or upper (1) end of the range of a share."""
    share, square = count / of, CERTAINTY**2
    spread = CERTAINTY * sqrt(share * (1 - share) / of + square / (4 * of * of))
    return (share + square / (2 * of) + side * spread) / (1 + square / of)


class TraitSide(NamedTuple):
    """A set of letters, or of handled records, to compare.

    Attributes:
        traits: the traits of each.
        unread: those without known fields: the value is no JSON object, too large, or hidden.
    """

    traits: Sequence[TraitSet] = ()
    unread: int = 0

    def known(self, what: TraitKind) -> int:
        """Return for how many a kind of trait is known."""
        return len(self.traits) - (self.unread if what == "field" else 0)


class CommonTraits(NamedTuple):
    """The common traits of letters, the most distinctive first.

    Attributes:
        read: the number of records that were read for the handled ones.
        silent: why there are none, or fewer.
    """

    traits: Sequence[LetterTrait]
    these: TraitSide
    others: TraitSide
    handled: TraitSide
    read: int = 0
    silent: str = ""


def find_common_traits(these: TraitSide, others: TraitSide, handled: TraitSide) -> CommonTraits:
    """Return the traits that at least half of some letters have or lack, and a smaller share of the handled records, or
    of the other letters if no handled record is known (pure).
    """
    sides = (these, others, handled)
    found = [each for each in (*_having(sides), *_lacking(sides)) if each.is_beyond_chance]
    many = [each for each in found if 100 * each.letters >= LEAST * each.of]
    many.sort(key=lambda each: (-each.apart, each.what, each.name, each.says or ""))
    return CommonTraits(many[:MOST_TRAITS], these, others, handled)


def _having(sides: Sequence[TraitSide]) -> list[LetterTrait]:
    these, *beside = [Counter(_said(side)) for side in sides]
    return [
        LetterTrait(
            what,
            name,
            says,
            count,
            sides[0].known(what),
            *(
                figure
                for side, there in zip(sides[1:], beside, strict=True)
                for figure in (there[what, name, says], side.known(what))
            ),
        )
        for (what, name, says), count in these.items()
    ]


def _lacking(sides: Sequence[TraitSide]) -> list[LetterTrait]:
    counts = [Counter(named for trait in side.traits for named in trait) for side in sides]
    found = []
    # Each record has a partition: to lack one is to be of another topic.
    for what, name in sorted({named for there in counts[1:] for named in there if named[0] != "partition"}):
        figures = [
            (side.known(what) - there[what, name], side.known(what)) for side, there in zip(sides, counts, strict=True)
        ]
        found.append(LetterTrait(what, name, None, *(number for figure in figures for number in figure)))
    return found


def _said(side: TraitSide) -> Iterator[tuple[TraitKind, str, str]]:
    return ((*named, says) for trait in side.traits for named, says in trait.items() if says is not None)
