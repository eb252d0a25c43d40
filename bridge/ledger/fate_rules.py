"""The fates of a delivery, which fate may overwrite which, and operations on many fates as bytes (pure).

In Redis a fate is half a byte; in Python many fates are a ``bytes`` with one byte per offset, so that
counting, searching and comparing a million of them runs in C. duplicate_check.py decides which deliveries are skipped.
"""

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from enum import IntEnum
from functools import lru_cache


class Fate(IntEnum):
    """The fate of a delivery. The numbers are stored: never renumber them."""

    OPEN = 0
    HANDED = 1
    DONE = 2
    PARKED = 3
    DEAD = 4
    DISCARDED = 5
    GAP = 6
    """No record lies at this offset (compaction, a transaction marker): nothing to handle, or missing."""


SETTLED = frozenset({Fate.DONE, Fate.PARKED, Fate.DEAD, Fate.DISCARDED})
UNSETTLED = frozenset({Fate.OPEN, Fate.HANDED})

OVERWRITES: Mapping[Fate, frozenset[Fate]] = {
    # Only a bridge that found a delivery stuck opens it again; a person reopens others (Ledger.forget).
    Fate.OPEN: frozenset({Fate.HANDED}),
    Fate.HANDED: frozenset({Fate.OPEN, Fate.GAP}),
    # Work that happened has happened: done may follow anything, nothing may follow done.
    Fate.DONE: frozenset({Fate.OPEN, Fate.HANDED, Fate.PARKED, Fate.DEAD, Fate.DISCARDED, Fate.GAP}),
    # Not dead: a worker that was frozen between Kafka's acknowledgement and this mark may resume after the parked
    # record came due and died (tests/model found it); the delivery would be parked without a record.
    Fate.PARKED: frozenset({Fate.OPEN, Fate.HANDED, Fate.GAP}),
    # Its dead letter is written by then: were it discarded, a replay of the letter would be skipped.
    Fate.DEAD: frozenset({Fate.OPEN, Fate.HANDED, Fate.PARKED, Fate.DISCARDED, Fate.GAP}),
    Fate.DISCARDED: frozenset({Fate.OPEN, Fate.HANDED, Fate.PARKED, Fate.DEAD, Fate.GAP}),
    # A gap is inferred from what Kafka left out: a record that does turn up overwrites it.
    Fate.GAP: frozenset({Fate.OPEN}),
}
"""For each fate, the ones that it may overwrite. The ledger's Lua script is generated from this table."""

_KNOWN = bytes(Fate)
_FROM_HEX = bytes(int(chr(c), 16) if chr(c) in "0123456789abcdef" else 0 for c in range(256))
_TO_HEX = bytes(b"0123456789abcdef"[c] if c < 16 else ord("?") for c in range(256))
_FLAGS = {
    wanted: bytes(old in [int(fate) for fate in allowed] for old in range(256))
    for wanted, allowed in OVERWRITES.items()
}


def follow_fate(old: Fate, wanted: Fate) -> Fate:
    """Return the fate of a delivery with fate `old` after `wanted` was written to it."""
    return wanted if old in OVERWRITES[wanted] else old


def flag_changes(before: bytes, wanted: Fate) -> bytes:
    """Return 1 for each fate in `before` that `wanted` may overwrite, else 0."""
    return before.translate(_FLAGS[wanted])


def unpack_fates(halves: bytes) -> bytes:
    """Return one byte per fate for bytes of a page (two fates each, the lower offset in the high half)."""
    return halves.hex().encode().translate(_FROM_HEX)


def find_unknown_fate(fates: bytes) -> int:
    """Return the index of the first fate that no version up to this one writes, or -1."""
    strange = fates.translate(None, _KNOWN)
    return fates.index(strange[0]) if strange else -1


def pack_fates(fates: bytes) -> bytes:
    """Return the stretch of a page for an even number of fates, one byte each.

    Raises:
        ValueError: a fate above 15, or an odd number of fates.
    """
    return bytes.fromhex(fates.translate(_TO_HEX).decode())


def count_fates(fates: bytes) -> dict[Fate, int]:
    """Return the number of fates of each kind."""
    return {fate: fates.count(fate) for fate in Fate}


def find_fate(fates: bytes | bytearray, wanted: Collection[Fate], start: int = 0) -> int:
    """Return the index of the first fate at or after `start` that is one of `wanted`, or -1."""
    match = _any_of(frozenset(wanted)).search(fates, start)
    return match.start() if match else -1


def find_fate_runs(fates: bytes, wanted: Collection[Fate]) -> Iterator[range]:
    """Yield the indexes of each unbroken run of fates that are among `wanted`."""
    for match in _any_of(frozenset(wanted)).finditer(fates):
        yield range(*match.span())


def find_fate_stretches(fates: bytes | bytearray, wanted: Collection[Fate], gap: int) -> Iterator[range]:
    """Yield the indexes of each stretch of fates that begins and ends with one of `wanted`.

    Parameters:
        gap: how many others may lie between two of them.
    """
    flags = fates.translate(_flags_of(frozenset(wanted)))
    apart, start = bytes(gap + 1), flags.find(1)
    while start >= 0:
        end = flags.find(apart, start)
        end = len(flags) if end < 0 else end
        yield range(start, flags.rfind(1, start, end) + 1)
        start = flags.find(1, end)


def choose_offsets(offsets: Sequence[int], fates: bytes, wanted: Collection[Fate]) -> set[int]:
    """Return those of these offsets whose fates, one byte each, are among `wanted`."""
    return {offsets[index] for run in find_fate_runs(fates, wanted) for index in run}


@lru_cache(maxsize=64)
def _any_of(wanted: frozenset[Fate]) -> re.Pattern[bytes]:
    return re.compile(b"[" + b"".join(re.escape(bytes([fate])) for fate in sorted(wanted)) + b"]+")


@lru_cache(maxsize=64)
def _flags_of(wanted: frozenset[Fate]) -> bytes:
    return bytes(fate in wanted for fate in range(256))
