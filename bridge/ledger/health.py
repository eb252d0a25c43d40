"""Whether the ledger's Redis has memory left, and brings its data to disk."""

from typing import NamedTuple

from bridge.ledger.client import Ledger


class Health(NamedTuple):
    """Bytes used and allowed (0: without limit), and why data do not come to disk."""

    used: int
    allowed: int
    disk: str | None


def health(ledger: Ledger) -> Health:
    """Ask Redis how it is.

    Raises:
        LedgerUnavailable: Redis did not answer, or refuses INFO.
    """
    with ledger.asking("say how it is") as pipe:
        pipe.info("memory")
        pipe.info("persistence")
        memory, persistence = pipe.execute()
    failed = [
        f"{name} is {persistence[name]!r}"
        for name in ("aof_last_write_status", "aof_last_bgrewrite_status", "rdb_last_bgsave_status")
        if persistence.get(name, "ok") != "ok"
    ]
    return Health(int(memory["used_memory"]), int(memory.get("maxmemory", 0)), ", ".join(failed) or None)
