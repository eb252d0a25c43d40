"""The place of a fate in Redis: keys, pages, and the stretches of bytes that hold a set of offsets (pure).

A page is one Redis string with the fates of 65,536 offsets, half a byte each. Offset *n* of a page is the
high half of byte ``n // 2`` when *n* is even, the low half when it is odd, which is Redis's own ``BITFIELD …
u4 #n``. lua/page_expiry.lua sets the expiry of a page (`kafka_ledger_days`).
"""

from collections.abc import Iterator, Sequence
from functools import lru_cache
from itertools import compress
from typing import NamedTuple
from urllib.parse import quote

from bridge.ledger.fate_rules import unpack_fates

PAGE = 65_536
"""Offsets per page."""

RETRY_RECORD = "own"
"""The handler name of the account with the fates of a retry or replay topic's own records, for all handlers."""

_NEAR = 8
"""Maximum gap in bytes between two offsets of one stretch: beyond it a second read costs less."""


class Account(NamedTuple):
    """The owner of fates: one handler on one partition of a topic; `topic_id` tells a recreated topic from
    its predecessor.
    """

    handler: str
    topic: str
    topic_id: str
    partition: int


class PageStretch(NamedTuple):
    """A run of bytes of one page, with a mask: 0xF for each half byte that is meant, else 0x0."""

    page: int
    first_byte: int
    mask: bytes


def ledger_key(*parts: str | int) -> str:
    """Return a Redis key of `parts`, with all characters but letters, digits and ``_.-~`` escaped."""
    return ":".join(_escape(str(part)) for part in ("ledger", *parts))


@lru_cache(maxsize=16_384)
def _escape(part: str) -> str:
    return quote(part, safe="", errors="surrogatepass")


class LedgerKeys:
    """The keys of one group's fates on one Kafka cluster.

    Attributes:
        writes: the count of writes to the whole data set.
        joined, reached: the hashes of each account's first and reached offset.
    """

    def __init__(self, cluster: str, group: str) -> None:
        self._cluster, self._group = cluster, group
        self.writes = ledger_key("writes")
        self.joined, self.reached = ledger_key(cluster, group, "joined"), ledger_key(cluster, group, "reached")
        self._prefixes: dict[Account, str] = {}

    def account(self, account: Account, what: int | str) -> str:
        """Return the key of an account's page (by number) or index of hand-off times (``"handed"``)."""
        prefix = self._prefixes.get(account)
        if prefix is None:
            prefix = self._prefixes[account] = ledger_key(self._cluster, self._group, "fates", *account)
        return f"{prefix}:{what}"

    def page_notes(self, account: Account) -> str:
        """Return the key of the notes of when an account's pages expire (lua/page_expiry.lua derives it too)."""
        return ledger_key(self._cluster, self._group, "pages", *account)


def split_by_page(first: int, last: int) -> Iterator[tuple[int, int, int]]:
    """Yield (page, first place, last place) for the offsets from `first` to `last`, both included."""
    while first <= last:
        page, start = divmod(first, PAGE)
        end = min(last - page * PAGE, PAGE - 1)
        yield page, start, end
        first = (page + 1) * PAGE


def find_stretches(offsets: Sequence[int]) -> list[PageStretch]:
    """Return the stretches that hold `offsets`, in order.

    Raises:
        ValueError: the offsets are not ascending, occur twice, or begin below zero.
    """
    if not offsets:
        return []
    first, last = offsets[0], offsets[-1]
    if first < 0:
        raise ValueError(f"Offset {first} is below zero: a ledger has no place for it.")
    if _is_unbroken(offsets):
        return [_stretch_of_run(page, start, end) for page, start, end in split_by_page(first, last)]
    return _find_scattered(offsets)


def _is_unbroken(offsets: Sequence[int]) -> bool:
    if isinstance(offsets, range):
        return offsets.step == 1
    return offsets[-1] - offsets[0] + 1 == len(offsets) and list(offsets) == list(range(offsets[0], offsets[-1] + 1))


def choose_fates(halves: bytes, mask: bytes) -> bytes:
    """Return the fates, one byte each, that `mask` selects from the stretch `halves`."""
    return bytes(compress(unpack_fates(halves), unpack_fates(mask)))


def _stretch_of_run(page: int, start: int, end: int) -> PageStretch:
    first, size = start >> 1, (end >> 1) - (start >> 1) + 1
    mask = bytearray(b"\xff") * size
    if start & 1:
        mask[0] &= 0x0F
    if not end & 1:
        mask[-1] &= 0xF0
    return PageStretch(page, first, bytes(mask))


def _find_scattered(offsets: Sequence[int]) -> list[PageStretch]:
    found: list[PageStretch] = []
    page, begin, mask, before = -1, 0, bytearray(), -1
    for offset in offsets:
        if offset <= before:
            raise ValueError(
                f"Offset {offset} comes after {before}: give the ledger each offset once, in ascending order."
            )
        before = offset
        byte = (offset % PAGE) >> 1
        gap = byte - begin - len(mask)
        if offset // PAGE != page or gap > _NEAR:
            if mask:
                found.append(PageStretch(page, begin, bytes(mask)))
            page, begin, mask, gap = offset // PAGE, byte, bytearray(), 0
        if gap >= 0:
            mask += bytes(gap + 1)
        mask[-1] |= 0x0F if offset & 1 else 0xF0
    found.append(PageStretch(page, begin, bytes(mask)))
    return found
