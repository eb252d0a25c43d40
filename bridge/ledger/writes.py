"""What is asked of the ledger's script, and what it answered (pure)."""

from collections.abc import Callable, Sequence
from itertools import compress
from typing import NamedTuple

from bridge.ledger import fates
from bridge.ledger.fates import Fate
from bridge.ledger.pages import Account, chosen, stretches


class Mark(NamedTuple):
    """Write `fate` to those of `offsets` (ascending) whose fate it may overwrite (fates.OVERWRITES)."""

    account: Account
    offsets: Sequence[int]
    fate: Fate


class Push(NamedTuple):
    """Push queue entries and mark their offsets (ascending) handed, in one step.

    `entries` is either one entry for each offset, pushed where that offset is still open; or one entry that
    carries them all, pushed only if all are. `queue` is the key of the broker's list in the same Redis.
    """

    account: Account
    offsets: Sequence[int]
    queue: str
    entries: Sequence[bytes]

    @property
    def fate(self) -> Fate:
        return Fate.HANDED

    @property
    def whole(self) -> bool:
        return len(self.entries) == 1


class Written(NamedTuple):
    """What a write found. `before` has one byte per offset: its fate until then."""

    offsets: Sequence[int]
    before: bytes
    fate: Fate
    whole: bool = False
    """The write was for all offsets or none."""

    @property
    def free(self) -> Sequence[int]:
        """The offsets whose fate could be overwritten: for a hand-off, those that were still open."""
        flags = fates.changes(self.before, self.fate)
        return self.offsets if flags.count(1) == len(self.offsets) else list(compress(self.offsets, flags))

    @property
    def changed(self) -> Sequence[int]:
        """The offsets whose fate was overwritten now."""
        free = self.free
        return [] if self.whole and len(free) < len(self.offsets) else free


Argument = str | int | bytes


class Call:
    """The keys and arguments of one run of the script, and the way to read its answer.

    Parameters:
        fixed: the keys of the count of writes, and of where accounts begin and how far they have come.
        keep: seconds that a page is kept after its last write.
        account_key: gives the key of an account's page (by number) or index of hand-off times (``"handed"``).
    """

    def __init__(self, fixed: Sequence[str], keep: int, account_key: Callable[[Account, int | str], str]) -> None:
        self._numbers = {name: number for number, name in enumerate(fixed, 1)}
        self._account_key = account_key
        self._masks: list[list[bytes]] = []
        self._items: list[Mark | Push] = []
        self.args: list[Argument] = [keep]

    @property
    def keys(self) -> list[str]:
        return list(self._numbers)

    def add(self, item: Mark | Push) -> None:
        """Add one item.

        Raises:
            ValueError: offsets that are not ascending; or entries that are neither one, nor one for each offset.
        """
        self._items.append(item)
        if isinstance(item, Mark):
            self.add_stretches(item.account, item.offsets, item.fate, "mark", 0)
            return
        if not item.offsets or len(item.entries) not in (1, len(item.offsets)):
            raise ValueError(
                f"{len(item.entries)} queue entries for {len(item.offsets)} offsets of {item.account.topic}: "
                "give one for each, or one that carries them all."
            )
        mode = "whole" if item.whole else "each"
        self.add_stretches(item.account, item.offsets, item.fate, mode, self._number(item.queue))
        self.args[-1] = len(item.entries)
        self.args += item.entries

    def add_stretches(self, account: Account, offsets: Sequence[int], fate: int, mode: str, queue: int) -> None:
        """Add where `offsets` lie and what to write there, with no queue entry."""
        spans = stretches(offsets)
        index = self._number(self._account_key(account, "handed")) if fate == Fate.HANDED else 0
        first, last = (offsets[0], offsets[-1]) if offsets else (0, 0)
        self.args += (int(fate), mode, queue, index, first, last, len(spans))
        for page, first_byte, mask in spans:
            self.args += (self._number(self._account_key(account, page)), first_byte, mask)
        self.args.append(0)
        self._masks.append([span.mask for span in spans])

    def written(self, answer: Sequence[Sequence[bytes]]) -> list[Written]:
        """Return what each item found, from the script's answer."""
        return [
            Written(
                item.offsets,
                b"".join(map(chosen, olds, masks)),
                item.fate,
                isinstance(item, Push) and item.whole,
            )
            for item, olds, masks in zip(self._items, answer, self._masks, strict=True)
        ]

    def _number(self, key: str) -> int:
        return self._numbers.setdefault(key, len(self._numbers) + 1)
