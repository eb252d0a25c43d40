"""What some letters have in common, beside others: which headers and fields of values, and what they say (pure)."""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Final, Literal, NamedTuple

#: Most traits that are told.
MOST: Final = 20
#: Of a hundred letters so many have, or lack, what they are said to have in common.
LEAST: Final = 50

What = Literal["header", "field"]

#: What a letter has: by what it is and its name, what that says; `None`: more than is compared.
Traits = Mapping[tuple[What, str], str | None]


class Trait(NamedTuple):
    """What many of some letters have, or lack.

    Attributes:
        says: `None`: it is not there.
        letters, of: how many of these letters, and of how many of which that is known.
        others, of_others: likewise, of those beside them.
    """

    what: What
    name: str
    says: str | None
    letters: int
    of: int
    others: int
    of_others: int

    @property
    def apart(self) -> float:
        """How much larger the part of these is than that of the others."""
        return self.letters / max(self.of, 1) - self.others / max(self.of_others, 1)


class Side(NamedTuple):
    """Letters that were looked at.

    Attributes:
        traits: of each.
        unread: of how many of them no field of the value is known: it is no JSON object, too large, or not to be seen.
    """

    traits: Sequence[Traits] = ()
    unread: int = 0

    def known(self, what: What) -> int:
        """Of how many letters it is known which of these they have."""
        return len(self.traits) - (self.unread if what == "field" else 0)


class InCommon(NamedTuple):
    """What letters have in common: what sets them apart most comes first."""

    traits: Sequence[Trait]
    these: Side
    others: Side


def in_common(these: Side, others: Side) -> InCommon:
    """What at least half of some letters have or lack, and a smaller part of others; without others, what they have."""
    found = [each for each in (*_having(these, others), *_lacking(these, others)) if each.apart > 0]
    many = [each for each in found if 100 * each.letters >= LEAST * each.of]
    many.sort(key=lambda each: (-each.apart, each.what, each.name, each.says or ""))
    return InCommon(many[:MOST], these, others)


def _having(these: Side, others: Side) -> list[Trait]:
    here, there = _said(these), _said(others)
    return [
        Trait(what, name, says, count, these.known(what), there[what, name, says], others.known(what))
        for (what, name, says), count in here.items()
    ]


def _lacking(these: Side, others: Side) -> list[Trait]:
    here, there = _names(these), _names(others)
    found = []
    for (what, name), count in there.items():
        of, of_others = these.known(what), others.known(what)
        found.append(Trait(what, name, None, of - here[what, name], of, of_others - count, of_others))
    return found


def _said(side: Side) -> Counter[tuple[What, str, str]]:
    return Counter((*named, says) for each in side.traits for named, says in each.items() if says is not None)


def _names(side: Side) -> Counter[tuple[What, str]]:
    return Counter(named for each in side.traits for named in each)
