"""A ledger in memory, with its broker's queue, that keeps the contract of the one in Redis."""

import copy
import secrets
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any

from bridge.ledger import fate_rules
from bridge.ledger.account_progress import AccountProgress
from bridge.ledger.fate_rules import Fate, follow_fate
from bridge.ledger.ledger_client import FateCount
from bridge.ledger.ledger_epoch import LedgerState
from bridge.ledger.ledger_layout import PAGE, Account, split_by_page
from bridge.ledger.ledger_scripts import CLAIM_NAME, RELEASE_NAME, Mark, NameMark, Push, WriteResult
from lossless.lua import Script


class MemoryLedger:
    """Fates in dictionaries. `queues` holds the entries, first out first."""

    def __init__(self) -> None:
        self.queues: dict[str, list[bytes]] = defaultdict(list)
        self.cluster, self.group = "cluster", "group"
        #: Unique names: "h" and a record that runs ("r": a replay), "d" and one that is done.
        self.names: dict[str, str] = {}
        self._fates: dict[tuple[Account, int], Fate] = {}
        self._joined: dict[Account, int] = {}
        self._reached: dict[Account, int] = {}
        self._lost: dict[Account, int] = {}
        self._state = LedgerState(secrets.token_hex(8), 0, secrets.token_hex(8))

    def write(self, items: Sequence[Mark | Push | NameMark]) -> list[WriteResult]:
        for item in items:
            if isinstance(item, Push) and (not item.offsets or len(item.entries) not in (1, len(item.offsets))):
                raise ValueError("entries")
            if list(item.offsets) != sorted(set(item.offsets)):
                raise ValueError("ascending")
        return [self._write(item) for item in items]

    def run(self, doing: str, what: Script, keys: Sequence[str], args: Sequence[Any]) -> bytes | None:
        """Claim or release a unique name."""
        (key,), record, held = keys, args[0], self.names.get(keys[0])
        if what == RELEASE_NAME:
            if held in (f"h {record}", f"r {record}"):
                del self.names[key]
            return None
        assert what == CLAIM_NAME
        if held is not None and held[2:] != record:
            return held.encode()
        if held is None or held[0] != "d":
            self.names[key] = f"{args[2]} {record}"
        return None

    def page_key(self, account: Account, page: int) -> str:
        return f"{account.topic}:{account.partition}:{page}"

    def _write(self, item: Mark | Push | NameMark) -> WriteResult:
        if isinstance(item, NameMark):
            self.names[item.key] = f"d {item.record}"
            return WriteResult((), b"", Fate.DONE)
        for page in {offset // PAGE for offset in item.offsets}:
            self._refill(item.account, page)
        before = bytes(self._fates.get((item.account, offset), Fate.OPEN) for offset in item.offsets)
        written = WriteResult(item.offsets, before, item.fate, isinstance(item, Push) and item.whole)
        changed = set(written.changed)
        if isinstance(item, Push):
            entries = item.entries if changed or not item.whole else []
            carried = item.offsets if not item.whole else item.offsets[: len(entries)]
            self.queues[item.queue] += [e for e, o in zip(entries, carried, strict=True) if o in changed]
        for offset in changed:
            old = self._fates.get((item.account, offset), Fate.OPEN)
            self._fates[item.account, offset] = follow_fate(old, item.fate)
        if changed:
            self._state = self._state._replace(writes=self._state.writes + 1)
        return written

    def _refill(self, account: Account, page: int) -> None:
        """What lay on a page that expired, and was safe to commit, is no open delivery."""
        if account not in self._joined or account not in self._reached or self._there(account, page):
            return
        base = page * PAGE
        for offset in range(max(base, self._joined[account]), min(base + PAGE, self._reached[account])):
            self._fates[account, offset] = Fate.GAP

    def _there(self, account: Account, page: int) -> bool:
        return any(owner == account and offset // PAGE == page for owner, offset in self._fates)

    def expire(self, account: Account, page: int) -> None:
        """The time of a page is over."""
        for key in [key for key in self._fates if key[0] == account and key[1] // PAGE == page]:
            del self._fates[key]

    def find_expired(self, account: Account, offsets: Sequence[int]) -> set[int]:
        below = max(self._joined.get(account, 0), self._reached.get(account, 0))
        return {offset for offset in offsets if offset < below and not self._there(account, offset // PAGE)}

    def forget(self, account: Account, first: int, last: int) -> None:
        for offset in range(first, last + 1):
            if (account, offset) in self._fates:
                self._fates[account, offset] = Fate.OPEN

    def fates(self, account: Account, first: int, last: int) -> bytes:
        return bytes(self._fates.get((account, offset), Fate.OPEN) for offset in range(first, last + 1))

    def fates_of(self, questions: Sequence[tuple[Account, Sequence[int]]]) -> list[bytes]:
        return [bytes(self._fates.get((a, o), Fate.OPEN) for o in offsets) for a, offsets in questions]

    def find(self, account: Account, wanted: Collection[Fate], first: int, last: int) -> int | None:
        there = {offset // PAGE for owner, offset in self._fates if owner == account}
        for page, start, end in split_by_page(first, last):
            if page not in there and Fate.OPEN in wanted:
                return page * PAGE + start
            if page in there:
                at = fate_rules.find_fate(self.fates(account, page * PAGE + start, page * PAGE + end), wanted)
                if at >= 0:
                    return page * PAGE + start + at
        return None

    def runs(self, account: Account, wanted: Collection[Fate], first: int, last: int) -> Iterator[range]:
        for base, found in self._pages(account, first, last):
            yield from (range(base + run.start, base + run.stop) for run in fate_rules.find_fate_runs(found, wanted))

    def count(self, account: Account, first: int, last: int) -> FateCount:
        total, seen = dict.fromkeys(Fate, 0), 0
        for _, found in self._pages(account, first, last):
            seen += len(found)
            for fate, number in fate_rules.count_fates(found).items():
                total[fate] += number
        return FateCount(total, max(0, last - first + 1) - seen)

    def _pages(self, account: Account, first: int, last: int) -> Iterator[tuple[int, bytes]]:
        there = {offset // PAGE for owner, offset in self._fates if owner == account}
        for page, start, end in split_by_page(first, last):
            if page in there:
                yield page * PAGE + start, self.fates(account, page * PAGE + start, page * PAGE + end)

    def join(self, account: Account, first: int) -> int:
        joined = self._joined.setdefault(account, first)
        if joined < first and not list(self._pages(account, first - 1, first - 1)):
            self._joined[account] = first
        return self._joined[account]

    def raise_reached(self, offsets: Mapping[Account, int], since: LedgerState | None = None) -> LedgerState:
        if since is None or self._state.doubt(since) is None:
            self._reached.update(offsets)
        return self._state

    def lose(self, accounts: Iterable[Account], below: int) -> None:
        self._lost.update(dict.fromkeys(accounts, below))

    def read_progress(self, accounts: Collection[Account]) -> list[AccountProgress]:
        return [AccountProgress(self._joined.get(a), self._reached.get(a), self._lost.get(a)) for a in accounts]

    def list_accounts(self) -> list[Account]:
        return sorted(self._joined)

    def state(self) -> LedgerState:
        return self._state

    def wipe(self) -> None:
        """FLUSHALL."""
        self.__init__()  # type: ignore[misc]

    def remember(self) -> "MemoryLedger":
        """What its append-only file holds."""
        return copy.deepcopy(self)

    def go_back(self, remembered: "MemoryLedger") -> None:
        """Start again from what an append-only file held."""
        self.__dict__ = copy.deepcopy(remembered).__dict__
        self._state = self._state._replace(run_id=secrets.token_hex(8))
