"""The epoch of the ledger's Redis: whether it was wiped, went back, was restarted or failed over."""

import secrets
import time
from collections.abc import Sequence
from typing import Any, NamedTuple

from bridge.ledger.fate_pages import ledger_key
from bridge.ledger.redis_connection import RedisConnection, raise_error_answer


class LedgerState(NamedTuple):
    """Which data set this is, how many writes it has seen, and which start of which server answers for it.

    `history` is Redis's replication id: another one from the moment on at which a replica becomes a master.
    `lost` counts the connections that the reader has lost so far.
    """

    epoch: str
    writes: int
    run_id: str
    history: str = ""
    lost: int = 0

    def doubt(self, before: "LedgerState") -> str | None:
        """Return why fates seen at `before` may be gone, or None where they cannot be.

        A new epoch: the data were wiped. Fewer writes: some were lost. Another run id: the server was started
        again or a replica took over, and writes may be lost that the count does not miss, others having
        written as many since. Another history: it was a replica meanwhile, and has another server's data. A lost
        connection: any of these, where the server hides them. Where nothing was lost, a reader in doubt finds every
        fate as it was: a doubt too many costs one more look, one too few would cost messages.
        """
        if self.epoch != before.epoch:
            return f"the ledger was wiped (its epoch was {before.epoch}, now it is {self.epoch})"
        if self.writes < before.writes:
            return f"the ledger went back (it had seen {before.writes} writes, now {self.writes})"
        if self.run_id != before.run_id:
            return "the ledger's Redis was started again or a replica took over: its last writes may be lost"
        if self.history != before.history:
            return "the ledger's Redis was a replica meanwhile: its last writes may be lost"
        if self.lost != before.lost:
            return "a connection to the ledger's Redis was lost: its last writes may be, too"
        return None


class LedgerStateReader:
    """Asks one Redis which data set it has, and how far that has come.

    Parameters:
        writes: the key of the count of writes.
    """

    def __init__(self, connection: RedisConnection, writes: str) -> None:
        self._connection, self._writes = connection, writes

    def now(self) -> LedgerState:
        """The state; a new data set is given an epoch.

        Raises:
            LedgerUnavailable: Redis did not answer.
        """
        with self._connection.asking("read the ledger's state") as pipe:
            self._ask(pipe)
            return self._state(_read_answers(pipe.execute(raise_on_error=False)))

    def on(self, pipe: Any) -> LedgerState:
        """The state on the connection on which `pipe` watches a key; without a data set, no epoch."""
        epoch, writes = pipe.get(ledger_key("epoch")) or b"", pipe.get(self._writes)
        return self._state((None, epoch, writes, pipe.info("server"), pipe.info("replication")))

    def since(self) -> float:
        """Since when nothing was forgotten (Unix time): the start of the server, or of the data set if later.

        Raises:
            LedgerUnavailable: Redis did not answer.
        """
        with self._connection.asking("read since when the ledger has all") as pipe:
            self._ask(pipe)
            _, epoch, _, server, _ = _read_answers(pipe.execute(raise_on_error=False))
        begun = epoch.rpartition(b"-")[2]
        return max(time.time() - int(server["uptime_in_seconds"]), int(begun) if begun.isdigit() else 0)

    def synced(self, seconds: float) -> LedgerState:
        """Wait until all that anyone wrote so far is on disk in the append-only file; return the state then.

        Raises:
            LedgerCannotFsync: this server never can.
            LedgerNotSynced: not within `seconds`.
            LedgerUnavailable: Redis did not answer.
            ValueError: `seconds` is not less than what any answer may take.
        """
        timeout = self._connection.timeout
        if seconds >= timeout:
            raise ValueError(f"{seconds:g} s for the disk is no less than the {timeout:g} s for any answer.")
        with self._connection.asking("wait for the append-only file") as pipe:
            # Redis syncs in order: waiting for a write of this connection waits for everybody's before it.
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
    """The answers to `_ask`; a full Redis takes no epoch, and where there is one needs none."""
    made, *rest = state
    return [None if rest[0] else raise_error_answer(made), *map(raise_error_answer, rest)]
