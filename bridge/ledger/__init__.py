"""The ledger: the fate of every delivery, half a byte each, in Redis."""

from bridge.ledger.accounts import Accounts, Known
from bridge.ledger.client import Ledger
from bridge.ledger.epoch import State
from bridge.ledger.fates import Fate, to_skip
from bridge.ledger.log_book import Change, KnownLog, LogBook
from bridge.ledger.pages import OWN, Account
from bridge.ledger.writes import Mark, Push

__all__ = [
    "OWN",
    "Account",
    "Accounts",
    "Change",
    "Fate",
    "Known",
    "KnownLog",
    "Ledger",
    "LogBook",
    "Mark",
    "Push",
    "State",
    "to_skip",
]
