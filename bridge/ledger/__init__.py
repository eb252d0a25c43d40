"""The ledger: the fate of every delivery, half a byte each, in Redis."""

from bridge.ledger.accounts import Accounts, Known
from bridge.ledger.client import Ledger
from bridge.ledger.epoch import State
from bridge.ledger.fates import Fate, to_skip
from bridge.ledger.logs import Change, KnownLog, LogBook
from bridge.ledger.pages import Account
from bridge.ledger.writes import HandOff, Mark

__all__ = [
    "Account",
    "Accounts",
    "Change",
    "Fate",
    "HandOff",
    "Known",
    "KnownLog",
    "Ledger",
    "LogBook",
    "Mark",
    "State",
    "to_skip",
]
