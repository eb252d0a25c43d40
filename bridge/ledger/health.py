"""Whether the ledger's Redis has memory left, keeps what it has, and brings it to disk."""

from typing import NamedTuple

from bridge.errors import ClusteredRedis, EvictingRedis
from bridge.ledger.client import Ledger


class Health(NamedTuple):
    """Bytes used and allowed (0: without limit), why data do not come to disk, and what Redis drops when it is full.

    Attributes:
        evicts: the maxmemory-policy, if it is one that evicts.
        evicted: keys of any kind that this server has evicted since its start.
    """

    used: int
    allowed: int
    disk: str | None
    evicts: str | None = None
    evicted: int = 0


def health(ledger: Ledger) -> Health:
    """Ask Redis how it is.

    Raises:
        LedgerUnavailable: Redis did not answer, or refuses INFO.
    """
    with ledger.asking("say how it is") as pipe:
        pipe.info("memory")
        pipe.info("persistence")
        pipe.info("stats")
        memory, persistence, stats = pipe.execute()
    failed = [
        f"{name} is {persistence[name]!r}"
        for name in ("aof_last_write_status", "aof_last_bgrewrite_status", "rdb_last_bgsave_status")
        if persistence.get(name, "ok") != "ok"
    ]
    policy = str(memory.get("maxmemory_policy", "noeviction"))
    return Health(
        int(memory["used_memory"]),
        int(memory.get("maxmemory", 0)),
        ", ".join(failed) or None,
        policy if policy != "noeviction" else None,
        int(stats.get("evicted_keys", 0)),
    )


def check_fit(ledger: Ledger) -> None:
    """Raise if Redis may drop fates to make room, or cannot do the ledger's steps.

    Raises:
        ClusteredRedis: it is a node of Redis Cluster.
        EvictingRedis: its maxmemory-policy is another than noeviction.
        LedgerUnavailable: Redis did not answer, or refuses INFO.
    """
    with ledger.asking("say of which kind it is") as pipe:
        pipe.info("server")
        (server,) = pipe.execute()
    if "cluster" in (server.get("redis_mode"), server.get("server_mode")):  # Valkey's name for it is the second
        raise ClusteredRedis(
            f"Redis at {ledger.where} is Redis Cluster, which is not supported: a step of the ledger writes several "
            "keys at once. Use one Redis, or one with replicas and Sentinel (a managed Redis: cluster mode disabled)."
        )
    if policy := health(ledger).evicts:
        raise EvictingRedis(
            f"Redis at {ledger.where} evicts keys when it is full (maxmemory-policy {policy}), the ledger's pages "
            "first: what was done would run again, and what was queued would be lost. Set maxmemory-policy noeviction "
            "there (in the parameter group of a managed Redis)."
        )
