"""The state of the ledger's Redis, asked for: what `State` (epoch.py) is made of."""

import secrets
import time
from collections.abc import Sequence
from typing import Any

from bridge.ledger.connection import Connection, raised
from bridge.ledger.epoch import State
from bridge.ledger.pages import key


class States:
    """Asks one Redis which data set it has, and how far that has come.

    Parameters:
        writes: the key of the count of writes.
    """

    def __init__(self, connection: Connection, writes: str) -> None:
        self._connection, self._writes = connection, writes

    def now(self) -> State:
        """The state; a new data set is given an epoch.

        Raises:
            LedgerUnavailable: Redis did not answer.
        """
        with self._connection.asking("read the ledger's state") as pipe:
            self._ask(pipe)
            return self._state(_known(pipe.execute(raise_on_error=False)))

    def on(self, pipe: Any) -> State:
        """The state on the connection on which `pipe` watches a key; without a data set, no epoch."""
        epoch, writes = pipe.get(key("epoch")) or b"", pipe.get(self._writes)
        return self._state((None, epoch, writes, pipe.info("server"), pipe.info("replication")))

    def since(self) -> float:
        """Since when nothing was forgotten (Unix time): the start of the server, or of the data set if later.

        Raises:
            LedgerUnavailable: Redis did not answer.
        """
        with self._connection.asking("read since when the ledger has all") as pipe:
            self._ask(pipe)
            _, epoch, _, server, _ = _known(pipe.execute(raise_on_error=False))
        begun = epoch.rpartition(b"-")[2]
        return max(time.time() - int(server["uptime_in_seconds"]), int(begun) if begun.isdigit() else 0)

    def synced(self, seconds: float) -> State:
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
            return self._state(_known(state))

    def _ask(self, pipe: Any) -> None:
        pipe.set(key("epoch"), f"{secrets.token_hex(8)}-{int(time.time())}", nx=True)
        pipe.get(key("epoch"))
        pipe.get(self._writes)
        pipe.info("server")
        pipe.info("replication")

    def _state(self, answers: Sequence[Any]) -> State:
        _, epoch, writes, server, replication = answers
        history = str(replication.get("master_replid", ""))
        return State(epoch.decode(), int(writes or 0), str(server["run_id"]), history, self._connection.lost)


def _known(state: Sequence[Any]) -> list[Any]:
    """The answers to `_ask`; a full Redis takes no epoch, and where there is one needs none."""
    made, *rest = state
    return [None if rest[0] else raised(made), *map(raised, rest)]
