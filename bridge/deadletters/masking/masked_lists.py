"""Lists, plans and their progress for a role that may not see every field."""

from base64 import b64encode
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from bridge.deadletters.db.database import Database
from bridge.deadletters.db.letter_payload import QuotableContent, read_quotable_contents
from bridge.deadletters.masking.letter_mask import LetterMasks, find_content_quotes, mask_key, mask_line
from bridge.deadletters.masking.text_redaction import MOST, NOTHING, UNKNOWN, HiddenQuotes
from bridge.deadletters.masking.value_mask import MASK
from bridge.deadletters.model.bulk_plan import BulkPlan, PlanCounts
from bridge.deadletters.model.letter_filter import LetterFilter
from bridge.deadletters.model.letter_view import LetterLine
from bridge.deadletters.replay.plan_progress import ItemProgress, PlanProgress
from bridge.errors import FilterFault
from bridge.settings.masked_fields import MaskedFields

#: Most bytes of a value that is parsed for a list; the error of a letter with a larger one is shown on its page.
LARGEST: Final = 65_536
#: Most characters of hidden texts that are searched in a list; further errors are shown on the letters' pages.
MOST_OF_A_LIST: Final = 1_000_000


@dataclass(frozen=True)
class MaskedLists:
    """The lists for a role with masks. Every method raises DeskUnavailable if the database does not answer."""

    database: Database
    masks: LetterMasks

    def lines(self, letters: Iterable[LetterLine]) -> tuple[LetterLine, ...]:
        """Return masked lines of a list of letters."""
        some = tuple(letters)
        known = self._quotes({each.id: self.masks.find_fields(each.topic) for each in some})
        return tuple(
            mask_line(each, self.masks.find_fields(each.topic), known[each.id]) if each.id in known else each
            for each in some
        )

    def quotes_of(self, topic: str, letters: Iterable[LetterLine]) -> HiddenQuotes:
        """Return the hidden texts that texts about a record may quote, from its letters."""
        fields, some = self.masks.find_fields(topic), tuple(letters)
        if not fields:
            return NOTHING
        if not some:
            return UNKNOWN
        with self.database.reading() as connection:
            found = read_quotable_contents(connection, [each.id for each in some], LARGEST)
        # Letters of several handlers have the same record.
        return _build_known_quotes(fields, self._read(next(iter(found.values()), None)))

    def _read(self, content: QuotableContent | None) -> QuotableContent | None:
        """Return a content with its value for people."""
        if content is None:
            return None
        return content._replace(value=self.database.payloads.read(content.value, content.headers).value)

    def plans(self, plans: Iterable[BulkPlan]) -> list[BulkPlan]:
        """Return masked plans: filters and patches may contain hidden texts."""
        return [replace(plan, asked=self._asked(plan.asked), counts=self._counts(plan.counts)) for plan in plans]

    def _counts(self, counts: PlanCounts) -> PlanCounts:
        """Return the counts without the handlers' reasons, which may quote patched values."""
        said = counts.edits.get("not_valid_reasons", ())
        if not self.masks or not said:
            return counts
        masked = [{**each, "why": MASK} for each in said]
        return replace(counts, edits={**counts.edits, "not_valid_reasons": masked})

    def _asked(self, said: Mapping[str, Any]) -> Mapping[str, Any]:
        key = b64encode(MASK.encode()).decode()
        names = {"text": MASK, "key": key, "headers": [[MASK, MASK]], "values": [[MASK, MASK]]}
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
        """Return the masked items of a plan, with the reasons redacted."""
        return [item._replace(why=_is_own_reason(item.why)) if self.masks else item for item in found]

    def progress(self, found: PlanProgress) -> PlanProgress:
        """Return the masked progress of a plan, with handlers' words redacted."""
        if not self.masks:
            return found
        topics = {each.id: each.name.rsplit("-", 2)[0] for each in found.dead}
        known = self._quotes({id_: self.masks.find_fields(topic) for id_, topic in topics.items()})
        dead = tuple(
            each._replace(
                key=mask_key(each.key, self.masks.find_fields(topics[each.id]), known[each.id]),
                error=known[each.id].masked(each.error),
            )
            if each.id in known
            else each
            for each in found.dead
        )
        left = tuple(each._replace(why=_is_own_reason(each.why)) for each in found.left_out)
        return replace(found, plan=self.plans([found.plan])[0], dead=dead, left_out=left)

    def _quotes(self, asked: Mapping[int, MaskedFields]) -> dict[int, HiddenQuotes]:
        """Return, by letter, the hidden texts that its texts may quote."""
        wanted = {id_: fields for id_, fields in asked.items() if fields}
        if not wanted:
            return {}
        with self.database.reading() as connection:
            found = read_quotable_contents(connection, wanted, LARGEST)
        known, left = {}, MOST_OF_A_LIST
        for id_, fields in wanted.items():
            known[id_] = _build_known_quotes(fields, self._read(found.get(id_)), min(left, MOST))
            left -= known[id_].size
        return known


def _is_own_reason(why: str) -> str:
    # The part before the handler's words is this project's own text.
    return why.partition(": ")[0]


def _build_known_quotes(fields: MaskedFields, found: QuotableContent | None, most: int = MOST) -> HiddenQuotes:
    # Without one it was just cleaned up.
    return UNKNOWN if found is None else find_content_quotes(fields, found, most)
