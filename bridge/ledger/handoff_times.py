"""The times of hand-offs, and the age of deliveries in flight: an index of a few dozen bytes for each ten seconds.

With each hand-off the ledger's script widens one field of a small hash: a step of ten seconds, with the first and
last offset handed off in it. An offset that was handed off again counts in the later step. A sorted set beside it
notes which deliveries wait for their retry; a missing note only makes a delivery seem older than it is.
"""

import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Final, NamedTuple

from bridge.formats.untrusted_json import log_skipped_once
from bridge.ledger.fate_rules import Fate
from bridge.ledger.ledger_client import Ledger
from bridge.ledger.ledger_layout import Account
from bridge.ledger.ledger_scripts import NARROW_HANDOFF_INDEX

logger = logging.getLogger(__name__)

#: Seconds per step, as in write_fates.lua.
STEP_SECONDS: Final = 10


class HandoffStep(NamedTuple):
    """The hand-offs of ten seconds.

    Attributes:
        since: when they begin (Unix time by Redis's clock).
        span: from the first to the last offset handed off in them.
    """

    since: int
    span: range

    @property
    def until(self) -> int:
        """Return when the step ends: until then the span may grow."""
        return self.since + STEP_SECONDS


class StepRest(NamedTuple):
    """The unsettled rest of a step.

    Attributes:
        handed: the offsets of its span that are handed off and not settled, in runs.
        own: the offsets of these that no later step contains: they were certainly handed off in this step.
    """

    step: HandoffStep
    handed: Sequence[range]
    own: Sequence[range]


def read_steps(fields: Mapping[bytes, bytes]) -> list[HandoffStep]:
    """Return the steps of an index, the oldest first; a field that is no step is skipped and logged."""
    steps = []
    for field, value in fields.items():
        try:
            steps.append(HandoffStep(int(field) * STEP_SECONDS, _read_span(value)))
        except ValueError:
            log_skipped_once(logger, f"{field!r} of an index of hand-offs in Redis", "it is no step of ten seconds")
    return sorted(steps)


def read_step_rests(ledger: Ledger, account: Account, steps: Sequence[HandoffStep]) -> Iterator[StepRest]:
    """Yield the unsettled rest of each step, the oldest first; the ledger is read for one step at a time.

    Raises:
        LedgerUnavailable: Redis did not answer.
    """
    for number, step in enumerate(steps):
        handed = list(ledger.runs(account, {Fate.HANDED}, step.span.start, step.span.stop - 1))
        yield StepRest(step, handed, list(cut_out_ranges(handed, (later.span for later in steps[number + 1 :]))))


def narrow_steps(ledger: Ledger, account: Account, seen: Iterable[StepRest], now: float) -> None:
    """Narrow each finished step to its unsettled rest; a step without one is deleted.

    Raises:
        LedgerUnavailable: Redis did not answer.
    """
    changes = []
    for step, handed, _ in seen:
        left = _format_span(range(handed[0].start, handed[-1].stop)) if handed else ""
        if step.until <= now and left != _format_span(step.span):
            changes += [step.since // STEP_SECONDS, _format_span(step.span), left]
    if changes:
        ledger.run("drop what is settled from the index", NARROW_HANDOFF_INDEX, [ledger.index_key(account)], changes)


def find_handoff_times(ledger: Ledger, account: Account, offsets: Sequence[int]) -> dict[int, float]:
    """Return when each of these offsets was last handed off (Unix time, up to ten seconds early), if that is known.

    Raises:
        LedgerUnavailable: Redis did not answer.
    """
    with ledger.asking("read when deliveries were handed off") as pipe:
        pipe.hgetall(ledger.index_key(account))
        (fields,) = pipe.execute()
    found: dict[int, float] = {}
    for step in read_steps(fields):
        found.update({offset: float(step.since) for offset in offsets if offset in step.span})
    return found


def cut_out_ranges(runs: Iterable[range], ranges: Iterable[range]) -> Iterator[range]:
    """Yield the parts of `runs` that lie in none of `ranges`; `runs` must be ascending."""
    others = sorted(ranges, key=lambda other: other.start)
    for run in runs:
        start = run.start
        for other in others:
            if other.stop <= start:
                continue
            if other.start >= run.stop or start >= run.stop:
                break
            if other.start > start:
                yield range(start, other.start)
            start = max(start, other.stop)
        if start < run.stop:
            yield range(start, run.stop)


def _read_span(value: bytes) -> range:
    first, last = map(int, value.split(b"-"))
    return range(first, last + 1)


def _format_span(span: range) -> str:
    return f"{span.start}-{span.stop - 1}"


#: Seconds that the notes of an account are kept after the last one.
_KEPT_FOR: Final = 30 * 86_400
#: Notes on waiting deliveries that one trip reads.
_NOTES_AT_ONCE: Final = 500


class OldestDelivery(NamedTuple):
    """The delivery that has been in flight longest, and for how many seconds (up to ten too many)."""

    offset: int
    seconds: float


def note_waiting_retries(ledger: Ledger, account: Account, offsets: Sequence[int], due: float) -> None:
    """Note that deliveries wait for their retry until `due` (Unix time).

    Raises:
        LedgerUnavailable: Redis did not answer.
    """
    with ledger.asking("note what waits for its retry") as pipe:
        pipe.zadd(_waits_key(ledger, account), {str(offset): due for offset in offsets})
        pipe.expire(_waits_key(ledger, account), _KEPT_FOR)
        pipe.execute()


def find_handed_accounts(ledger: Ledger, accounts: Sequence[Account], *, waits: bool = False) -> list[Account]:
    """Return the accounts that may have deliveries in flight: those with an index of hand-offs.

    Parameters:
        waits: whether those count too of which only notes on waiting retries are left.

    Raises:
        LedgerUnavailable: Redis did not answer.
    """
    kinds = (ledger.index_key, lambda account: _waits_key(ledger, account)) if waits else (ledger.index_key,)
    existing = ledger.find_existing_keys([key_of(account) for key_of in kinds for account in accounts])
    return [account for account in accounts if any(key_of(account) in existing for key_of in kinds)]


class OldestDeliveryFinder:
    """The search for the deliveries that have been in flight longest, which a bridge repeats every few seconds.

    It remembers up to where the deliveries of a step all wait for their retry, so that a search reads little of what
    waits, however much that is. A note stays until its delivery is settled.
    """

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        #: By account and begin of a step, the offset below which all of the step's own deliveries wait.
        self._waiting: dict[Account, dict[int, int]] = {}

    def find_deliveries(self, accounts: Sequence[Account]) -> dict[Account, OldestDelivery]:
        """Return, of each account with deliveries in flight, the one that has been so longest.

        Raises:
            LedgerUnavailable: Redis did not answer.
        """
        handed = find_handed_accounts(self._ledger, accounts, waits=True)
        self._waiting = {account: self._waiting[account] for account in handed if account in self._waiting}
        found = {account: self.find_delivery(account) for account in handed}
        return {account: oldest for account, oldest in found.items() if oldest is not None}

    def find_delivery(self, account: Account) -> OldestDelivery | None:
        """Return the delivery that has been in flight longest: since its hand-off, or since its last retry was due.

        Raises:
            LedgerUnavailable: Redis did not answer.
        """
        with self._ledger.asking("read how long deliveries have been in flight") as pipe:
            pipe.time()
            pipe.hgetall(self._ledger.index_key(account))
            pipe.zrange(_waits_key(self._ledger, account), 0, _NOTES_AT_ONCE - 1, withscores=True)
            (seconds, micros), fields, noted = pipe.execute()
        now = seconds + micros / 1e6
        found = (self._find_late(account, noted, now), self._find_first(account, fields, now))
        return max((each for each in found if each is not None), key=lambda each: each.seconds, default=None)

    def _find_late(self, account: Account, noted: Sequence[tuple[bytes, float]], now: float) -> OldestDelivery | None:
        """Return the unsettled delivery whose retry has been due longest; notes of settled ones before are deleted.

        Parameters:
            noted: the first notes, by the time when they are due.
        """
        kept = 0
        while True:
            # A member that is no offset was written by another program: it is skipped.
            late = {int(offset): due for offset, due in noted if offset.isdigit() and due <= now}
            (fates,) = self._ledger.fates_of([(account, sorted(late))]) if late else (b"",)
            there = {offset for offset, fate in zip(sorted(late), fates, strict=True) if fate == Fate.HANDED}
            settled = [offset for offset, _ in noted if offset.isdigit() and int(offset) in late.keys() - there]
            if settled:
                with self._ledger.asking("drop the notes of what is settled") as pipe:
                    pipe.zrem(_waits_key(self._ledger, account), *settled)
                    pipe.execute()
            if there:
                offset = min(there, key=lambda each: (late[each], each))
                return OldestDelivery(offset, now - late[offset])
            if len(noted) < _NOTES_AT_ONCE or noted[-1][1] > now:
                return None
            kept += len(noted) - len(settled)
            with self._ledger.asking("read how long deliveries have been in flight") as pipe:
                last = kept + _NOTES_AT_ONCE - 1
                pipe.zrange(_waits_key(self._ledger, account), kept, last, withscores=True)
                (noted,) = pipe.execute()

    def _find_first(self, account: Account, fields: Mapping[bytes, bytes], now: float) -> OldestDelivery | None:
        """Return the oldest delivery that never waited for a retry; the index is narrowed on the way there."""
        steps, known = read_steps(fields), self._waiting.get(account, {})
        waiting = self._waiting[account] = {step.since: known.get(step.since, 0) for step in steps}
        rests, oldest = [], None
        for rest in read_step_rests(self._ledger, account, steps):
            rests.append(rest)
            since = rest.step.since
            offset, below = self._find_not_waiting(account, rest.own, waiting[since])
            # One that is handed off again within a step that goes on would be passed over.
            if rest.step.until <= now:
                waiting[since] = below
            if offset is not None:
                oldest = OldestDelivery(offset, max(0.0, now - since))
                break
        narrow_steps(self._ledger, account, rests, now)
        return oldest

    def _find_not_waiting(self, account: Account, own: Iterable[range], below: int) -> tuple[int | None, int]:
        """Return the first of these offsets that has no note on a retry, and below which all have one.

        Parameters:
            below: the offset below which all are known to have one.
        """
        offsets = (offset for run in own for offset in range(max(run.start, below), run.stop))
        while some := list(islice(offsets, _NOTES_AT_ONCE)):
            with self._ledger.asking("read which deliveries wait for a retry") as pipe:
                pipe.zmscore(_waits_key(self._ledger, account), list(map(str, some)))
                (notes,) = pipe.execute()
            first = next((offset for offset, due in zip(some, notes, strict=True) if due is None), None)
            if first is not None:
                return first, first
            below = some[-1] + 1
        return None, below


def _waits_key(ledger: Ledger, account: Account) -> str:
    return ledger.index_key(account) + ":waits"
