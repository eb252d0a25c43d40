"""The Lua scripts of the ledger, and the keys, arguments and answers of a write.

Only WRITE_FATES writes fates. A program that marks fates in one step with something else runs it with the keys and
arguments of a `WriteCall`.
"""

from collections.abc import Callable, Sequence
from itertools import compress
from typing import Final, NamedTuple

from bridge.ledger import fate_rules
from bridge.ledger.fate_rules import SETTLED, UNSETTLED, Fate, follow_fate
from bridge.ledger.ledger_layout import PAGE, Account, choose_fates, find_stretches
from lossless.lua import script

#: A pseudo fate to write: everything, done too, becomes open.
FORGET: Final = 15
#: A pseudo fate to write: open and handed become discarded; settled fates stay.
DISCARD_UNSETTLED: Final = 14
#: Pseudo fates to write: dead becomes discarded, or done; every other fate stays.
DISCARD_DEAD: Final = 13
FINISH_DEAD: Final = 12


_OF_DEAD: Final = {DISCARD_DEAD: Fate.DISCARDED, FINISH_DEAD: Fate.DONE}
#: By an end, the pseudo fate that writes it over dead alone.
END_DEAD: Final = {end: pseudo for pseudo, end in _OF_DEAD.items()}


def _dead_row(end: Fate) -> str:
    return "".join(chr(64 + (end if old == Fate.DEAD else old)) for old in range(16))


def _fate_row(wanted: Fate) -> str:
    """Return the new fate for each of 16 old fates, as letters from ``@`` on (see fate_rules.OVERWRITES)."""
    known = set(Fate)
    return "".join(chr(64 + (follow_fate(Fate(old), wanted) if old in known else old)) for old in range(16))


def _lua_values() -> str:
    """Return the Lua declarations that precede `write_fates.lua`."""
    unsettled = "".join(chr(64 + (Fate.DISCARDED if old in UNSETTLED else old)) for old in range(16))
    rows = [f"[{wanted.value}]='{_fate_row(wanted)}'" for wanted in Fate]
    rows += [f"[{FORGET}]='{'@' * 16}'", f"[{DISCARD_UNSETTLED}]='{unsettled}'"]
    rows += [f"[{pseudo}]='{_dead_row(end)}'" for pseudo, end in _OF_DEAD.items()]
    ends = [f"[{int(fate)}]=true" for fate in (*sorted(SETTLED | {Fate.HANDED}), DISCARD_UNSETTLED, *_OF_DEAD)]
    return (
        f"local ROWS = {{{','.join(rows)}}} local ENDS = {{{','.join(ends)}}} "
        f"local PAGE, GAP = {PAGE}, {Fate.GAP.value}"
    )


WRITE_FATES: Final = script("bridge.ledger", "write_fates", f"local run = {{}} {_lua_values()}")
#: The text of the same script as the body of a hook's step: a script has written before its steps.
WRITE_FATES_STEP: Final = script("bridge.ledger", "write_fates", f"run.wrote = true {_lua_values()}").text
RENEW_PAGES: Final = script("bridge.ledger", "renew_pages")
NARROW_HANDOFF_INDEX: Final = script("bridge.ledger", "narrow_handoff_index")
#: The body of a function: see lossless/transport/script_hook.py.
READ_FATE: Final = script("bridge.ledger", "read_fate")
ANNOUNCE_MEMBER: Final = script("bridge.ledger", "announce_member")
NOTE_HANDLER_COSTS: Final = script("bridge.ledger", "note_handler_costs")
NOTE_DECISION: Final = script("bridge.ledger", "note_decision")
BREAKER_RULES: Final = script("bridge.ledger", "breaker_rules")
NOTE_OUTCOMES: Final = script("bridge.ledger", "note_outcomes")
CLAIM_NAME: Final = script("bridge.ledger", "claim_name")
RELEASE_NAME: Final = script("bridge.ledger", "release_name")
CLAIM_LIMIT: Final = script("bridge.ledger", "claim_limit")
RELEASE_LIMIT: Final = script("bridge.ledger", "release_limit")


class Mark(NamedTuple):
    """A write of `fate` to those of `offsets` (ascending) whose fate it may overwrite (fate_rules.OVERWRITES)."""

    account: Account
    offsets: Sequence[int]
    fate: Fate


class Push(NamedTuple):
    """A push of queue entries that marks their offsets (ascending) as handed in the same step.

    `entries` is either one entry for each offset, pushed if that offset is still open; or one entry for all offsets,
    pushed only if all are. `queue` is the key of the broker's list in the same Redis.
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


class NameMark(NamedTuple):
    """A unique name whose record is done, for so many seconds (name_claims.py).

    In a write it stands behind the mark of its delivery: a full Redis takes it there.
    """

    key: str
    record: str
    seconds: float

    @property
    def offsets(self) -> Sequence[int]:
        return ()

    @property
    def fate(self) -> Fate:
        return Fate.DONE

    @property
    def value(self) -> str:
        """The value of the key."""
        return f"d {self.record}"

    @property
    def milliseconds(self) -> int:
        return int(self.seconds * 1000)


class LeaseEnd(NamedTuple):
    """The end of a delivery's lease of a limit, in the step that marks it (limit_state.py)."""

    key: str
    member: str

    @property
    def offsets(self) -> Sequence[int]:
        return ()

    @property
    def fate(self) -> Fate:
        return Fate.DONE

    @property
    def value(self) -> str:
        """The value for the script, which keeps it for no time: it removes the member."""
        return self.member

    @property
    def milliseconds(self) -> int:
        return 0


class WriteResult(NamedTuple):
    """The fates that a write found: `before` has one byte per offset."""

    offsets: Sequence[int]
    before: bytes
    fate: Fate
    whole: bool = False
    """Whether the write was for all offsets or none."""

    @property
    def free(self) -> Sequence[int]:
        """Return the offsets whose fate could be overwritten: for a hand-off, those that were still open."""
        flags = fate_rules.flag_changes(self.before, self.fate)
        return self.offsets if flags.count(1) == len(self.offsets) else list(compress(self.offsets, flags))

    @property
    def changed(self) -> Sequence[int]:
        """Return the offsets whose fate was overwritten by this write."""
        free = self.free
        return [] if self.whole and len(free) < len(self.offsets) else free


#: One thing that a write does.
WriteItem = Mark | Push | NameMark | LeaseEnd
ScriptArgument = str | int | bytes


class WriteCall:
    """The keys and arguments of one run of the script, and the reader of its answer.

    Parameters:
        fixed: the keys of the count of writes, and of the accounts' first and reached offsets.
        keep: seconds that a page is kept after its last write.
        account_key: returns the key of an account's page (by number) or index of hand-off times (``"handed"``).
    """

    def __init__(self, fixed: Sequence[str], keep: int, account_key: Callable[[Account, int | str], str]) -> None:
        self._numbers = {name: number for number, name in enumerate(fixed, 1)}
        self._account_key = account_key
        self._masks: list[list[bytes]] = []
        self._items: list[WriteItem] = []
        self.args: list[ScriptArgument] = [keep]

    @property
    def keys(self) -> list[str]:
        return list(self._numbers)

    def add(self, item: WriteItem) -> None:
        """Add one item.

        Raises:
            ValueError: offsets that are not ascending; or entries that are neither one, nor one for each offset.
        """
        self._items.append(item)
        if isinstance(item, NameMark | LeaseEnd):
            fields = ("name", self._number(item.key), 0, 0, 0, 0, 2, item.value, item.milliseconds)
            self.args += (int(item.fate), *fields)
            self._masks.append([])
            return
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
        """Add the places of `offsets` and the fate to write there, without queue entries."""
        spans = find_stretches(offsets)
        index = self._number(self._account_key(account, "handed")) if fate == Fate.HANDED else 0
        first, last = (offsets[0], offsets[-1]) if offsets else (0, 0)
        self.args += (int(fate), mode, queue, index, first, last, len(spans))
        for page, first_byte, mask in spans:
            self.args += (self._number(self._account_key(account, page)), first_byte, mask)
        self.args.append(0)
        self._masks.append([span.mask for span in spans])

    def written(self, answer: Sequence[Sequence[bytes]]) -> list[WriteResult]:
        """Return what each item found, from the script's answer."""
        return [
            WriteResult(
                item.offsets,
                b"".join(map(choose_fates, olds, masks)),
                item.fate,
                isinstance(item, Push) and item.whole,
            )
            for item, olds, masks in zip(self._items, answer, self._masks, strict=True)
        ]

    def _number(self, key: str) -> int:
        return self._numbers.setdefault(key, len(self._numbers) + 1)
