"""Lists, plans and their progress as a role sees them that may not see every field."""

from base64 import b64encode
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from bridge.deadletters.db.database import Database
from bridge.deadletters.db.letter_payload import QuotableContent, read_quotable_contents
from bridge.deadletters.masking.hidden_fields import MASK, find_hidden_parts
from bridge.deadletters.masking.letter_mask import LetterMasks, find_quotes, mask_line
from bridge.deadletters.masking.letter_mask import mask_key as masked_key
from bridge.deadletters.masking.text_redaction import MOST, NOTHING, UNKNOWN, HiddenQuotes
from bridge.deadletters.model.bulk_plan import BulkPlan, PlanCounts
from bridge.deadletters.model.letter_filter import LetterFilter
from bridge.deadletters.model.letter_view import LetterLine
from bridge.deadletters.replay.plan_progress import ItemProgress, PlanProgress
from bridge.errors import FilterFault
from bridge.settings.mask_rules import MaskedFields

#: Bytes of a value up to which it is parsed for a list; the error of a letter with a larger one is shown on its page.
LARGEST: Final = 65_536
#: Characters of hidden texts that are looked for in all lines of a list; the other errors are shown on their pages.
MOST_OF_A_LIST: Final = 1_000_000


@dataclass(frozen=True)
class MaskedLists:
    """Every method raises DeskUnavailable where the database does not answer."""

    database: Database
    masks: LetterMasks

    def lines(self, letters: Iterable[LetterLine]) -> tuple[LetterLine, ...]:
        """Lines of a list of letters."""
        some = tuple(letters)
        known = self._quotes({each.id: self.masks.of(each.topic) for each in some})
        return tuple(
            mask_line(each, self.masks.of(each.topic), known[each.id]) if each.id in known else each for each in some
        )

    def quotes_of(self, topic: str, letters: Iterable[LetterLine]) -> HiddenQuotes:
        """What is said of a record may quote, by the letters that it has."""
        fields, some = self.masks.of(topic), tuple(letters)
        if not fields:
            return NOTHING
        if not some:
            return UNKNOWN
        with self.database.reading() as connection:
            found = read_quotable_contents(connection, [each.id for each in some], LARGEST)
        # Of several handlers' letters the record is the same.
        return _build_known_quotes(fields, next(iter(found.values()), None))

    def plans(self, plans: Iterable[BulkPlan]) -> list[BulkPlan]:
        """Plans: what of their letters was asked for, and what a patch writes, may be what is hidden."""
        return [replace(plan, asked=self._asked(plan.asked), counts=self._counts(plan.counts)) for plan in plans]

    def _counts(self, counts: PlanCounts) -> PlanCounts:
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
            self.masks.check(
                LetterFilter.from_data({name: filter_[name] for name in (*names, "topics") if name in filter_})
            )
        except FilterFault:
            asked = {name: names.get(name, value) for name, value in filter_.items()}
            return {**said, "filter": asked} if "filter" in said else asked
        return said

    def standings(self, found: Iterable[ItemProgress]) -> list[ItemProgress]:
        """How far a plan is with each of its deliveries: why one was left out, or died again."""
        return [each._replace(why=_is_own_reason(each.why)) if self.masks else each for each in found]

    def progress(self, found: PlanProgress) -> PlanProgress:
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
        left = tuple(each._replace(why=_is_own_reason(each.why)) for each in found.left_out)
        return replace(found, plan=self.plans([found.plan])[0], dead=dead, left_out=left)

    def _quotes(self, asked: Mapping[int, MaskedFields]) -> dict[int, HiddenQuotes]:
        """By letter of whose topic something is hidden, what its texts may quote."""
        wanted = {id_: fields for id_, fields in asked.items() if fields}
        if not wanted:
            return {}
        with self.database.reading() as connection:
            found = read_quotable_contents(connection, wanted, LARGEST)
        known, left = {}, MOST_OF_A_LIST
        for id_, fields in wanted.items():
            known[id_] = _build_known_quotes(fields, found.get(id_), min(left, MOST))
            left -= known[id_].size
        return known


def _is_own_reason(why: str) -> str:
    # What a handler says of many letters' values is of none of them; what stands before it is ours.
    return why.partition(": ")[0]


def _build_known_quotes(fields: MaskedFields, found: QuotableContent | None, most: int = MOST) -> HiddenQuotes:
    if found is None:
        # It was cleaned up this moment.
        return UNKNOWN
    values = [find_hidden_parts(found.value, fields)]
    return find_quotes(fields, values, found.key, found.headers, whole=found.is_whole, most=most)
