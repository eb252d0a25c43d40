"""The health of the ledger's Redis: memory, eviction, and whether its data reach the disk.

bridge/ledger/redis_connection.py decides that Redis is unavailable, bridge/consumer/handoff_backoff.py what the bridge
does then.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

from bridge.errors import ClusteredRedis, EvictingRedis
from bridge.ledger.ledger_client import Ledger


class RedisHealth(NamedTuple):
    """The memory used and allowed in bytes (0: unlimited), why data do not reach the disk, and the risk of eviction.

    Attributes:
        evicts: the maxmemory-policy if it evicts keys and `maxmemory` is set or unknown.
        evicted: keys of any kind that this server has evicted since its start.
        would_evict: the maxmemory-policy if it evicts keys as soon as somebody sets a `maxmemory`.
        saved_at: when its last snapshot succeeded, or it started (Unix time), if a snapshot has failed since.
        unsaved: how many changes that snapshot lacks.
    """

    used: int
    allowed: int
    disk: str | None
    evicts: str | None = None
    evicted: int = 0
    would_evict: str | None = None
    saved_at: float | None = None
    unsaved: int | None = None


def read_redis_health(ledger: Ledger) -> RedisHealth:
    """Return the health of the ledger's Redis.

    Raises:
        LedgerUnavailable: Redis did not answer, or refuses INFO.
    """
    with ledger.asking("report its health") as pipe:
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
    evicting = policy if policy != "noeviction" else None
    unlimited = int(memory.get("maxmemory", -1)) == 0
    return RedisHealth(
        int(memory["used_memory"]),
        int(memory.get("maxmemory", 0)),
        ", ".join(failed) or None,
        None if unlimited else evicting,
        int(stats.get("evicted_keys", 0)),
        evicting if unlimited else None,
        *_find_unsaved(persistence),
    )


def _find_unsaved(persistence: Mapping[str, Any]) -> tuple[float | None, int | None]:
    """Return since when, and how many, changes are in no snapshot because the last one failed."""
    if persistence.get("rdb_last_bgsave_status", "ok") == "ok":
        return None, None
    at, changes = persistence.get("rdb_last_save_time"), persistence.get("rdb_changes_since_last_save")
    return None if at is None else float(at), None if changes is None else int(changes)


def check_redis_fit(ledger: Ledger) -> str | None:
    """Raise if Redis may evict fates, or cannot run the ledger's scripts; return a warning if there is one.

    Raises:
        ClusteredRedis: it is a node of Redis Cluster.
        EvictingRedis: its maxmemory-policy evicts, and its maxmemory is set or unknown.
        LedgerUnavailable: Redis did not answer, or refuses INFO.
    """
    with ledger.asking("report its mode") as pipe:
        pipe.info("server")
        (server,) = pipe.execute()
    if "cluster" in (server.get("redis_mode"), server.get("server_mode")):  # the second is Valkey's name for it
        raise ClusteredRedis(
            f"Redis at {ledger.where} is Redis Cluster, which is not supported: a step of the ledger writes several "
            "keys at once. Use one Redis, or one with replicas and Sentinel (a managed Redis: cluster mode disabled)."
        )
    found = read_redis_health(ledger)
    if found.evicts:
        raise EvictingRedis(
            f"Redis at {ledger.where} evicts keys when it is full (maxmemory-policy {found.evicts}), the ledger's "
            "pages first: done deliveries would run again, and queued ones would be lost. Set maxmemory-policy "
            "noeviction there (in the parameter group of a managed Redis)."
        )
    if found.would_evict:
        return (
            f"Redis at {ledger.where} has maxmemory-policy {found.would_evict} and no maxmemory: it evicts nothing "
            "now. Once a maxmemory is set it evicts fates when it is full, and bridge and worker refuse to start. "
            "Set maxmemory-policy noeviction."
        )
    return None
