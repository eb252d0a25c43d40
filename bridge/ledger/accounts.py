"""Whose fates a ledger has: also those of handlers that were renamed or removed."""

from urllib.parse import unquote

from bridge.ledger.client import Ledger
from bridge.ledger.pages import Account, key


def accounts(ledger: Ledger) -> list[Account]:
    """Return every account that was ever joined.

    Raises:
        LedgerUnavailable: Redis did not answer.
    """
    with ledger.asking("list whose fates it has") as pipe:
        pipe.hkeys(key(ledger.cluster, ledger.group, "joined"))
        (names,) = pipe.execute()
    found = []
    for name in names:
        parts = [unquote(part) for part in name.decode().split(":")[1:]]
        if len(parts) == 4:
            found.append(Account(parts[0], parts[1], parts[2], int(parts[3])))
    return sorted(found)
