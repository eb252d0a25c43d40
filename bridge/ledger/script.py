"""The Lua scripts of the ledger (``lua/``), `write.lua` with the fates in front of it.

Every fate is written by WRITE alone. Another program that marks in one step with something of its own runs it with
the keys and arguments of a `Call` (writes.py).
"""

from typing import Final

from bridge.ledger.fates import SETTLED, UNSETTLED, Fate, follow
from bridge.ledger.pages import PAGE
from lossless.lua import script

#: Asked for as if it were a fate: everything, done too, becomes open.
FORGET: Final = 15
#: Asked for as if it were a fate: what is open or handed becomes discarded; what has ended meanwhile stays so.
DISCARD_UNSETTLED: Final = 14


def _row(wanted: Fate) -> str:
    """For each of 16 old fates the new one, as a letter from ``@`` on (see fates.OVERWRITES)."""
    known = set(Fate)
    return "".join(chr(64 + (follow(Fate(old), wanted) if old in known else old)) for old in range(16))


def _values() -> str:
    """What `write.lua` finds in front of it."""
    unsettled = "".join(chr(64 + (Fate.DISCARDED if old in UNSETTLED else old)) for old in range(16))
    rows = [f"[{wanted.value}]='{_row(wanted)}'" for wanted in Fate]
    rows += [f"[{FORGET}]='{'@' * 16}'", f"[{DISCARD_UNSETTLED}]='{unsettled}'"]
    ends = [f"[{int(fate)}]=true" for fate in (*sorted(SETTLED | {Fate.HANDED}), DISCARD_UNSETTLED)]
    return (
        f"local ROWS = {{{','.join(rows)}}} local ENDS = {{{','.join(ends)}}} "
        f"local PAGE, GAP = {PAGE}, {Fate.GAP.value}"
    )


WRITE: Final = script("bridge.ledger", "write", _values())
RENEW: Final = script("bridge.ledger", "renew")
NARROW: Final = script("bridge.ledger", "narrow")
#: The body of a function: see riding.py.
LOOK: Final = script("bridge.ledger", "look")
ANNOUNCE: Final = script("bridge.ledger", "announce")
TIMES: Final = script("bridge.ledger", "times")
CONTROL: Final = script("bridge.ledger", "control")
BREAKER: Final = script("bridge.ledger", "breaker")
OUTCOMES: Final = script("bridge.ledger", "outcomes")
