"""The last good record before another one: a record of the same partition that the ledger has as done for a handler, of
any key or of the same one. The search goes backwards, and ends at its limits.
"""

import time
from collections.abc import Callable, Iterator
from typing import Final, NamedTuple

from bridge.errors import LedgerUnavailable
from bridge.formats.delivery_identity import Place
from bridge.inspection.record_content import RecordContent, find_extent
from bridge.kafka.clients import Record
from bridge.kafka.partition_offsets import Extent
from bridge.kafka.record_reader import BackwardReader, ReadBudget, ReadLimits
from bridge.ledger import Account, Fate, Ledger, LogHistory
from bridge.ledger.fate_rules import find_fate_runs
from bridge.ledger.group_access import open_ledger
from bridge.ledger.ledger_layout import PAGE
from bridge.settings import Settings

#: The most that one search reads; a person may continue it.
GOOD_SEARCH: Final = ReadLimits(records=200_000, bytes=200_000_000, seconds=15)
#: The most pages of fates that one search reads, at 32 KB each.
MOST_PAGES: Final = 64


class GoodRecordSearch(NamedTuple):
    """The result of a search.

    Attributes:
        record: the last good record; `None`: none was found.
        first, end: the offsets that were searched, from the first to below the end.
        limit: the limit that ended the search, in words; empty: it reached the beginning of the partition.
    """

    record: RecordContent | None
    first: int
    end: int
    limit: str = ""

    @property
    def continues_below(self) -> int | None:
        """Return the offset below which a further search begins; `None`: there is nothing left to search."""
        return self.first if self.limit and self.record is None else None


class _DoneOffsets(NamedTuple):
    """The offsets of a page of fates that are done, within the span from the first to the last of them."""

    low: int
    fates: bytes

    def spans(self) -> range | None:
        """Return the offsets from the first done one to the last; `None` if none is."""
        runs = list(find_fate_runs(self.fates, {Fate.DONE}))
        return range(self.low + runs[0].start, self.low + runs[-1].stop) if runs else None

    def has(self, offset: int) -> bool:
        """Return whether an offset is done."""
        return 0 <= offset - self.low < len(self.fates) and self.fates[offset - self.low] == Fate.DONE


def find_last_good_record(
    settings: Settings,
    place: Place,
    below: int,
    handler: str,
    key: bytes | None = None,
    log: str = "",
    clock: Callable[[], float] = time.monotonic,
) -> GoodRecordSearch:
    """Return the last record below an offset that is done for a handler and has a value.

    Parameters:
        key: the key that it must have; `None`: any.
        log: the id of the log in which the offset is; if the partition has another one now, all of that is searched.

    Raises:
        NoSuchRecord: there is no such partition.
        KafkaUnavailable, LedgerUnavailable: one of them does not answer, or there is no ledger.
    """
    if settings.ledger_url is None:
        raise LedgerUnavailable("Fates are not known: no ledger is set, and the broker is no Redis. Set LEDGER_URL.")
    extent = find_extent(settings, *place)
    budget = ReadBudget(GOOD_SEARCH, clock)
    with open_ledger(settings, [place[0]]) as (ledger, catalog), BackwardReader(settings, budget) as reader:
        now = LogHistory(ledger).log_id(place[0], catalog.topic_ids.get(place[0], ""), place[1])
        end = max(extent.first, min(below if log in ("", now) else extent.end, extent.end))
        low = end
        for number, done in enumerate(_read_pages(ledger, Account(handler, place[0], now, place[1]), extent, end)):
            if number == MOST_PAGES:
                return GoodRecordSearch(None, low, end, f"{MOST_PAGES * PAGE:,} offsets")
            if (span := done.spans()) is not None:
                if (found := _find_latest(reader, extent, done, span, key)) is not None:
                    return GoodRecordSearch(found, found.offset, end)
                if budget.reached and reader.searched.get(place, span.stop) > span.start:
                    return GoodRecordSearch(None, reader.searched.get(place, span.stop), end, budget.reached)
            low = done.low
            if budget.reached and low > extent.first:
                return GoodRecordSearch(None, low, end, budget.reached)
    return GoodRecordSearch(None, low, end)


def _read_pages(ledger: Ledger, account: Account, extent: Extent, end: int) -> Iterator[_DoneOffsets]:
    """Yield the fates of a partition page by page, the latest page first."""
    while end > extent.first:
        low = max(extent.first, (end - 1) // PAGE * PAGE)
        yield _DoneOffsets(low, ledger.fates(account, low, end - 1))
        end = low


def _find_latest(
    reader: BackwardReader, extent: Extent, done: _DoneOffsets, span: range, key: bytes | None
) -> RecordContent | None:
    """Return the latest done record of a span with this key."""

    def is_good(record: Record) -> bool:
        return done.has(record.offset() or 0) and record.value() is not None and (key is None or record.key() == key)

    for window in reader.read_windows({extent.place: span.start}, {extent.place: span.stop}, is_good):
        if window:
            return RecordContent.from_record(max(window, key=lambda record: record.offset() or 0), extent)
    return None
