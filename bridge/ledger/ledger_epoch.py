"""The epoch and state of the ledger's Redis, which show whether it was wiped, lost writes, restarted or failed over."""

import secrets
import time
from collections.abc import Sequence
from typing import Any, NamedTuple

from bridge.ledger.ledger_layout import ledger_key
from bridge.ledger.redis_connection import RedisConnection, raise_error_answer


class LedgerState(NamedTuple):
    """The data set of a ledger, its count of writes, and the server run that answers for it.

    `history` is Redis's replication id, which changes when a replica becomes a master. `lost` counts the connections
    that the reader has lost so far.
    """

    epoch: str
    writes: int
    run_id: str
    history: str = ""
    lost: int = 0

    def doubt(self, before: "LedgerState") -> str | None:
        """Return why fates seen at `before` may be gone, or None if they cannot be.

        A new epoch: the data were wiped. Fewer writes: some were lost. Another run id: a restart or failover may have
        lost writes, even if others raised the count since. Another history: the data are another server's. A lost
        connection: any of these, if a proxy hides them. A false alarm costs one more read; a missed one would cost
        messages.
        """
        if self.epoch != before.epoch:
            return f"the ledger was wiped (its epoch was {before.epoch}, now it is {self.epoch})"
        if self.writes < before.writes:
            return f"the ledger lost writes (it had seen {before.writes} writes, now {self.writes})"
        if self.run_id != before.run_id:
            return "the ledger's Redis restarted or failed over to a replica: its last writes may be lost"
        if self.history != before.history:
            return "the ledger's Redis was a replica in between: its last writes may be lost"
        if self.lost != before.lost:
            return "a connection to the ledger's Redis was lost: its last writes may be lost, too"
        return None


class LedgerStateReader:
    """The reader of a Redis server's ledger state.

    Parameters:
        writes: the key of the count of writes.
    """

    def __init__(self, connection: RedisConnection, writes: str) -> None:
        self._connection, self._writes = connection, writes

    def now(self) -> LedgerState:
        """Return the state; a new data set gets an epoch.

        Raises:
            LedgerUnavailable: Redis did not answer.
        """
        with self._connection.asking("read the ledger's state") as pipe:
            self._ask(pipe)
            return self._state(_read_answers(pipe.execute(raise_on_error=False)))

    def on(self, pipe: Any) -> LedgerState:
        """Return the state on the connection on which `pipe` watches a key; a new data set gets no epoch."""
        epoch, writes = pipe.get(ledger_key("epoch")) or b"", pipe.get(self._writes)
        return self._state((None, epoch, writes, pipe.info("server"), pipe.info("replication")))

    def since(self) -> float:
        """Return since when nothing was forgotten (Unix time): the start of the server, or of the data set if later.

        Raises:
            LedgerUnavailable: Redis did not answer.
        """
        with self._connection.asking("read since when the ledger has all") as pipe:
            self._ask(pipe)
            _, epoch, _, server, _ = _read_answers(pipe.execute(raise_on_error=False))
        begun = epoch.rpartition(b"-")[2]
        return max(time.time() - int(server["uptime_in_seconds"]), int(begun) if begun.isdigit() else 0)

    def synced(self, seconds: float) -> LedgerState:
        """Wait until everything written so far is on disk in the append-only file; return the state then.

        Raises:
            LedgerCannotFsync: this server does not support it.
            LedgerNotSynced: not within `seconds`.
            LedgerUnavailable: Redis did not answer.
            ValueError: `seconds` is not less than the connection's timeout.
        """
        timeout = self._connection.timeout
        if seconds >= timeout:
            raise ValueError(f"{seconds:g} s to wait for the disk must be less than the timeout of {timeout:g} s.")
        with self._connection.asking("wait for the append-only file") as pipe:
            # Redis syncs in order: waiting for a write of this connection includes all earlier writes.
            pipe.incr(self._writes)
            pipe.execute_command("WAITAOF", 1, 0, int(seconds * 1000))
            self._ask(pipe)
            _, synced, *state = pipe.execute(raise_on_error=False)
            self._connection.check_synced(synced, seconds)
            return self._state(_read_answers(state))

    def _ask(self, pipe: Any) -> None:
        pipe.set(ledger_key("epoch"), f"{secrets.token_hex(8)}-{int(time.time())}", nx=True)
        pipe.get(ledger_key("epoch"))
        pipe.get(self._writes)
        pipe.info("server")
        pipe.info("replication")

    def _state(self, answers: Sequence[Any]) -> LedgerState:
        _, epoch, writes, server, replication = answers
        history = str(replication.get("master_replid", ""))
        return LedgerState(epoch.decode(), int(writes or 0), str(server["run_id"]), history, self._connection.lost)


def _read_answers(state: Sequence[Any]) -> list[Any]:
    """Return the answers to `_ask`; a full Redis refuses a new epoch, and needs none if it has one."""
    made, *rest = state
    return [None if rest[0] else raise_error_answer(made), *map(raise_error_answer, rest)]
