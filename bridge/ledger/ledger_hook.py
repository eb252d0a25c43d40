"""The transport hook of a ledger on the broker's Redis: fates are read and written with taking and acknowledging.

The hook runs the ledger's own Lua scripts, so one set of rules decides which fate follows which.
"""

from typing import Final

from bridge.ledger.fate_rules import Fate, find_unknown_fate, unpack_fates
from bridge.ledger.ledger_client import Ledger
from bridge.ledger.ledger_layout import PAGE, Account
from bridge.ledger.ledger_scripts import READ_FATE, WRITE_FATES_STEP
from lossless.transport.script_hook import ScriptHook

#: The name of `LEDGER_HOOK` in the transport's options.
HOOK_NAME: Final = f"{__name__}:LEDGER_HOOK"
LEDGER_HOOK: Final = ScriptHook(look=READ_FATE.text, step=WRITE_FATES_STEP)

#: The message property that names the place of the fate of its only delivery.
FATE_PROPERTY: Final = "look"


def format_fate_place(ledger: Ledger, account: Account, offset: int) -> str:
    """Return the property's value: a page's key, and the byte of the page that has the offset's fate."""
    page, place = divmod(offset, PAGE)
    return f"{ledger.page_key(account, page)} {place >> 1}"


def read_found_fate(found: str, offset: int) -> Fate | None:
    """Return the fate that was read when the message was taken; `None` if none was read, or an unknown value.

    An unknown value is read again and reported by Ledger.fates_of.
    """
    if not found.startswith("f"):
        return None
    halves = unpack_fates(found[1:].encode("latin-1") or b"\0")
    found_half = halves[offset & 1 : (offset & 1) + 1]
    return None if find_unknown_fate(found_half) >= 0 else Fate(found_half[0])
