"""The ledger: the store of the fate of every delivery, half a byte each, in Redis."""

from bridge.ledger.account_progress import AccountProgress, Accounts
from bridge.ledger.duplicate_check import is_to_skip
from bridge.ledger.fate_rules import Fate
from bridge.ledger.ledger_client import Ledger
from bridge.ledger.ledger_epoch import LedgerState
from bridge.ledger.ledger_layout import RETRY_RECORD, Account
from bridge.ledger.ledger_scripts import Mark, Push
from bridge.ledger.log_history import KafkaLogChange, KnownLog, LogHistory

__all__ = [
    "RETRY_RECORD",
    "Account",
    "AccountProgress",
    "Accounts",
    "Fate",
    "KafkaLogChange",
    "KnownLog",
    "Ledger",
    "LedgerState",
    "LogHistory",
    "Mark",
    "Push",
    "is_to_skip",
]
