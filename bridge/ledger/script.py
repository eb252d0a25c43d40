"""The Lua scripts of the ledger: each in a file of its own, `write.lua` with the fates in front of it.

Every fate is written by WRITE alone. Another program that marks in one step with something of its own runs it with
the keys and arguments of a `Call` (writes.py).
"""

import hashlib
from importlib.resources import files
from typing import Final, NamedTuple

from bridge.ledger.fates import SETTLED, Fate, follow
from bridge.ledger.pages import PAGE

#: Asked for as if it were a fate: everything, done too, becomes open.
FORGET: Final = 15


class Script(NamedTuple):
    """A script, and the digest by which a Redis that has it is asked to run it (EVALSHA)."""

    text: str
    sha: str


def _script(name: str, before: str = "") -> Script:
    text = before + files(__package__).joinpath(name).read_text("utf-8")
    return Script(text, hashlib.sha1(text.encode(), usedforsecurity=False).hexdigest())


def _row(wanted: Fate) -> str:
    """For each of 16 old fates the new one, as a letter from ``@`` on (see fates.OVERWRITES)."""
    known = set(Fate)
    return "".join(chr(64 + (follow(Fate(old), wanted) if old in known else old)) for old in range(16))


def _constants() -> str:
    """What `write.lua` finds in front of it."""
    rows = [f"[{wanted.value}]='{_row(wanted)}'" for wanted in Fate] + [f"[{FORGET}]='{'@' * 16}'"]
    ends = [f"[{fate.value}]=true" for fate in sorted(SETTLED | {Fate.HANDED})]
    return (
        f"local ROWS = {{{','.join(rows)}}}\n"
        f"local ENDS = {{{','.join(ends)}}}\n"
        f"local PAGE, GAP = {PAGE}, {Fate.GAP.value}\n"
    )


WRITE: Final = _script("write.lua", _constants())
NARROW: Final = _script("narrow.lua")
ANNOUNCE: Final = _script("announce.lua")
