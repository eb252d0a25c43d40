"""Lists as somebody is shown them who does not see every field: their errors may quote what is hidden."""

from base64 import b64encode
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from bridge.deadletters.letters.filters import Filter
from bridge.deadletters.masking.hidden import MASK, hidden
from bridge.deadletters.masking.masks import Masks, line, quoted
from bridge.deadletters.masking.masks import key as masked_key
from bridge.deadletters.masking.quotes import MOST, NOTHING, UNKNOWN, Quotes
from bridge.deadletters.plan.plan import Counts, Plan
from bridge.deadletters.questions.progress import Progress, Standing
from bridge.deadletters.questions.shown import Listed
from bridge.deadletters.store.database import Database
from bridge.deadletters.store.masked import Contents, contents
from bridge.errors import FilterFault
from bridge.settings.masks import Fields

#: Bytes of a value up to which it is parsed for a list; the error of a letter with a larger one is shown on its page.
LARGEST: Final = 65_536
#: Characters of hidden texts that are looked for in all lines of a list; the other errors are shown on their pages.
MOST_OF_A_LIST: Final = 1_000_000


@dataclass(frozen=True)
class Lists:
    """Every method raises DeskUnavailable where the database does not answer."""

    database: Database
    masks: Masks

    def lines(self, letters: Iterable[Listed]) -> tuple[Listed, ...]:
        """Lines of a list of letters."""
        some = tuple(letters)
        known = self._quotes({each.id: self.masks.of(each.topic) for each in some})
        return tuple(
            line(each, self.masks.of(each.topic), known[each.id]) if each.id in known else each for each in some
        )

    def quotes_of(self, topic: str, letters: Iterable[Listed]) -> Quotes:
        """What is said of a record may quote, by the letters that it has."""
        fields, some = self.masks.of(topic), tuple(letters)
        if not fields:
            return NOTHING
        if not some:
            return UNKNOWN
        with self.database.reading() as connection:
            found = contents(connection, [each.id for each in some], LARGEST)
        # Of several handlers' letters the record is the same.
        return _known(fields, next(iter(found.values()), None))

    def plans(self, plans: Iterable[Plan]) -> list[Plan]:
        """Plans: what of their letters was asked for, and what a patch writes, may be what is hidden."""
        return [replace(plan, asked=self._asked(plan.asked), counts=self._counts(plan.counts)) for plan in plans]

    def _counts(self, counts: Counts) -> Counts:
        """Without why handlers would not take what a patch makes of values: that may quote them."""
        said = counts.edits.get("not_valid_reasons", ())
        if not self.masks or not said:
            return counts
        masked = [{**each, "why": MASK} for each in said]
        return replace(counts, edits={**counts.edits, "not_valid_reasons": masked})

    def _asked(self, said: Mapping[str, Any]) -> Mapping[str, Any]:
        names = {"text": MASK, "key": b64encode(MASK.encode()).decode(), "headers": [[MASK, MASK]]}
        filter_ = said.get("filter", said)
        if self.masks and "patch" in said:
            said = {**said, "patch": MASK}
        if not self.masks or not names.keys() & filter_.keys():
            return said
        try:
            self.masks.check(Filter.from_data({name: filter_[name] for name in (*names, "topics") if name in filter_}))
        except FilterFault:
            asked = {name: names.get(name, value) for name, value in filter_.items()}
            return {**said, "filter": asked} if "filter" in said else asked
        return said

    def standings(self, found: Iterable[Standing]) -> list[Standing]:
        """How far a plan is with each of its deliveries: why one was left out, or died again."""
        return [each._replace(why=_ours(each.why)) if self.masks else each for each in found]

    def progress(self, found: Progress) -> Progress:
        """A plan with its letters that died again, and why letters were left out: their handlers' words."""
        if not self.masks:
            return found
        topics = {each.id: each.name.rsplit("-", 2)[0] for each in found.dead}
        known = self._quotes({id_: self.masks.of(topic) for id_, topic in topics.items()})
        dead = tuple(
            each._replace(
                key=masked_key(each.key, self.masks.of(topics[each.id]), known[each.id]),
                error=known[each.id].masked(each.error),
            )
            if each.id in known
            else each
            for each in found.dead
        )
        left = tuple(each._replace(why=_ours(each.why)) for each in found.left_out)
        return replace(found, plan=self.plans([found.plan])[0], dead=dead, left_out=left)

    def _quotes(self, asked: Mapping[int, Fields]) -> dict[int, Quotes]:
        """By letter of whose topic something is hidden, what its texts may quote."""
        wanted = {id_: fields for id_, fields in asked.items() if fields}
        if not wanted:
            return {}
        with self.database.reading() as connection:
            found = contents(connection, wanted, LARGEST)
        known, left = {}, MOST_OF_A_LIST
        for id_, fields in wanted.items():
            known[id_] = _known(fields, found.get(id_), min(left, MOST))
            left -= known[id_].size
        return known


def _ours(why: str) -> str:
    # What a handler says of many letters' values is of none of them; what stands before it is ours.
    return why.partition(": ")[0]


def _known(fields: Fields, found: Contents | None, most: int = MOST) -> Quotes:
    if found is None:
        # It was cleaned up this moment.
        return UNKNOWN
    values = [hidden(found.value, fields)]
    return quoted(fields, values, found.key, found.headers, whole=found.is_whole, most=most)
