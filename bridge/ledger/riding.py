"""The ledger on its broker's Redis: it is asked as a message is taken, and told as that is acknowledged.

What the transport takes along is this ledger's own Lua, so fates follow each other by one rule, whoever writes them.
"""

from typing import Final

from bridge.ledger.client import Ledger
from bridge.ledger.fates import Fate, unknown, unpack
from bridge.ledger.pages import PAGE, Account
from bridge.ledger.script import LOOK, WRITE
from lossless.transport.riding import Rider

#: The transport option that has `RIDER` taken along.
NAME: Final = f"{__name__}:RIDER"
RIDER: Final = Rider(look=LOOK.text, step=WRITE.text)

#: The property of a message that names where the fate of its only delivery lies.
PROPERTY: Final = "look"


def place_of(ledger: Ledger, account: Account, offset: int) -> str:
    """What the property says: a page's key, and the byte of the page that has the offset's fate."""
    page, place = divmod(offset, PAGE)
    return f"{ledger.page_key(account, page)} {place >> 1}"


def fate_in(found: str, offset: int) -> Fate | None:
    """The fate in what was found in the taking; `None` where nothing was looked for, or is no fate: that is asked
    again, and told of (Ledger.fates_of).
    """
    if not found.startswith("f"):
        return None
    halves = unpack(found[1:].encode("latin-1") or b"\0")
    found_half = halves[offset & 1 : (offset & 1) + 1]
    return None if unknown(found_half) >= 0 else Fate(found_half[0])
