"""The ledger on its broker's Redis: it is asked as a message is taken, and told as that is acknowledged.

What the transport takes along is this ledger's own Lua, so fates follow each other by one rule, whoever writes them.
"""

from typing import Final

from bridge.ledger.fate_pages import PAGE, Account
from bridge.ledger.fate_rules import Fate, find_unknown_fate, unpack_fates
from bridge.ledger.ledger_client import Ledger
from bridge.ledger.ledger_scripts import LOOK, WRITE
from lossless.transport.script_hook import ScriptHook

#: The transport option that has `LEDGER_HOOK` taken along.
HOOK_NAME: Final = f"{__name__}:LEDGER_HOOK"
LEDGER_HOOK: Final = ScriptHook(look=LOOK.text, step=WRITE.text)

#: The property of a message that names where the fate of its only delivery lies.
FATE_PROPERTY: Final = "look"


def format_fate_place(ledger: Ledger, account: Account, offset: int) -> str:
    """What the property says: a page's key, and the byte of the page that has the offset's fate."""
    page, place = divmod(offset, PAGE)
    return f"{ledger.page_key(account, page)} {place >> 1}"


def read_found_fate(found: str, offset: int) -> Fate | None:
    """The fate in what was found in the taking; `None` where nothing was looked for, or is no fate: that is asked
    again, and told of (Ledger.fates_of).
    """
    if not found.startswith("f"):
        return None
    halves = unpack_fates(found[1:].encode("latin-1") or b"\0")
    found_half = halves[offset & 1 : (offset & 1) + 1]
    return None if find_unknown_fate(found_half) >= 0 else Fate(found_half[0])
