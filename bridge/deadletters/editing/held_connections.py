"""Connections of psycopg to PostgreSQL that a handler uses on trial: what it writes is never committed.

Each is opened before the process is sealed, in one transaction that can only be rolled back. The server holds it: the
transaction has a row that breaks a deferred constraint, so a COMMIT of any kind fails, and a transaction behind it may
only read. The driver's own commits and rollbacks become savepoints, so that the handler goes on as usual.
"""

import sys
from collections import Counter
from collections.abc import Callable, Generator, Iterable
from importlib.util import find_spec
from typing import Any, Final

#: The most connections that a handler is given for one letter to one database.
MOST: Final = 5
#: The name of the table and the savepoint.
GUARD: Final = "bridge_shadow"
_OPTIONS: Final = "-c default_transaction_read_only=on -c lock_timeout=2s -c idle_in_transaction_session_timeout=60s"
_BEGIN: Final = (
    "BEGIN READ WRITE",
    f"CREATE TEMPORARY TABLE {GUARD} (n int UNIQUE DEFERRABLE INITIALLY DEFERRED)",
    f"INSERT INTO {GUARD} VALUES (1), (1)",
    f"SAVEPOINT {GUARD}",
)
_KEEP: Final = (f"RELEASE SAVEPOINT {GUARD}".encode(), f"SAVEPOINT {GUARD}".encode())
_TAKE_BACK: Final = f"ROLLBACK TO SAVEPOINT {GUARD}".encode()

Need = Callable[[Any], None]
Refuse = Callable[[str, str], None]


class HeldConnections:
    """The connections that runs are given.

    Parameters:
        allowed: databases by their addresses, `db:5432`.

    Attributes:
        used: the addresses to which connections were opened.
    """

    def __init__(self, allowed: frozenset[str]) -> None:
        self._allowed = allowed
        self._wanted = Counter[str]()
        self.used: set[str] = set()
        self._spare: dict[str, list[Any]] = {}
        self._taken: list[tuple[str, Any]] = []
        if allowed and find_spec("psycopg") is not None:
            # A handler may import it first when it runs.
            import psycopg  # noqa: F401

    def learn(self, conninfo: str, address: str) -> bool:
        """Note that a run needs one more connection; return whether another run has it."""
        if address not in self._allowed or self._wanted[conninfo] >= MOST:
            return False
        self._wanted[conninfo] += 1
        self.used.add(address)
        return True

    def enter(self, need: Need, refuse: Refuse) -> None:
        """Open the connections that runs before needed, and have psycopg give them, in this process for good.

        Parameters:
            need: told the connection that is missing.
            refuse: told a connection that is not allowed, or not possible, and its address.
        """
        psycopg: Any = sys.modules.get("psycopg")
        if psycopg is None:
            return
        for conninfo, count in self._wanted.items():
            self._spare[conninfo] = [_open(psycopg, conninfo) for _ in range(count)]

        def connect(kind: Any, conninfo: str = "") -> Generator[Any, Any, Any]:
            yield from ()
            return kind(self._take(psycopg, conninfo, need, refuse))

        psycopg.connection.BaseConnection._connect_gen = classmethod(connect)
        self._hold_transactions(psycopg)
        for kind in (psycopg.Connection, psycopg.AsyncConnection):
            self._check_at_close(kind, refuse)

    def _hold_transactions(self, psycopg: Any) -> None:
        """Have the driver's own commits and rollbacks be savepoints."""
        base = psycopg.connection.BaseConnection
        execute = base._exec_command

        def execute_all(connection: Any, commands: Iterable[bytes]) -> Generator[Any, Any, Any]:
            result = None
            for command in commands:
                result = yield from execute(connection, command)
            return result

        def execute_held(connection: Any, command: Any, *args: Any, **options: Any) -> Generator[Any, Any, Any]:
            if not any(connection.pgconn is taken for _, taken in self._taken):
                return (yield from execute(connection, command, *args, **options))
            word = command.split(None, 1)[0].upper() if isinstance(command, bytes) else b""
            if word in (b"COMMIT", b"ROLLBACK") and command.strip().upper() == word:
                failed = connection.pgconn.transaction_status == psycopg.pq.TransactionStatus.INERROR
                is_kept = word == b"COMMIT" and not failed
                return (yield from execute_all(connection, _KEEP if is_kept else (_TAKE_BACK,)))
            result = yield from execute(connection, command, *args, **options)
            if word == b"RELEASE" and not connection._num_transactions:
                # A block that would have been the outermost one has ended: its work is committed.
                yield from execute_all(connection, _KEEP)
            return result

        def check_idle(connection: Any, attribute: str) -> Generator[Any, Any, Any]:
            # The handler has no transaction: ours is always there.
            if attribute == "autocommit":
                yield from execute_all(connection, _KEEP)

        base._exec_command, base._check_intrans_gen = execute_held, check_idle

    def _check_at_close(self, kind: Any, refuse: Refuse) -> None:
        close = kind.close

        def close_checked(connection: Any) -> Any:
            self._check(connection.pgconn, refuse)
            return close(connection)

        kind.close = close_checked

    def _check(self, connection: Any, refuse: Refuse) -> None:
        """Refuse a connection whose transaction the handler has ended by itself."""
        address = next((address for address, taken in self._taken if taken is connection), None)
        if address is not None and connection.status == 0 and connection.exec_(_TAKE_BACK).status != 1:
            refuse(f"a COMMIT or ROLLBACK that it writes as a statement of its own, in {address}", "")

    def collect(self, refuse: Refuse) -> int:
        """Return how many connections a run has used."""
        for _, connection in self._taken:
            self._check(connection, refuse)
        return len(self._taken)

    def _take(self, psycopg: Any, conninfo: str, need: Need, refuse: Refuse) -> Any:
        address = _find_address(psycopg, conninfo)
        if address not in self._allowed:
            refuse(f"a connection to {address}", address)
        elif spare := self._spare.get(conninfo):
            taken = spare.pop()
            if not isinstance(taken, str):
                self._taken.append((address, taken))
                return taken
            refuse(f"a connection to {address}, which cannot be held: {taken}", "")
        elif self._wanted[conninfo] >= MOST:
            refuse(f"more than {MOST} connections to {address}", "")
        else:
            need({"conninfo": conninfo, "address": address})
        raise PermissionError(f"a connection to {address} is refused: this run of the handler is a trial")


def _open(psycopg: Any, conninfo: str) -> Any:
    """Return a connection whose transaction can only be rolled back; or why there is none."""
    parts = psycopg.conninfo.conninfo_to_dict(conninfo)
    parts["options"] = f"{parts.get('options') or ''} {_OPTIONS}".strip()
    parts.setdefault("connect_timeout", 3)
    try:
        opened = psycopg.pq.PGconn.connect(psycopg.conninfo.make_conninfo(**parts).encode())
        if opened.status:
            return opened.error_message.decode(errors="replace").strip()
        for statement in _BEGIN:
            if (result := opened.exec_(statement.encode())).status != 1:
                return result.error_message.decode(errors="replace").strip()
        # A pooler may leave out the options of a connection: a transaction after a ROLLBACK could write.
        if opened.exec_(b"SHOW default_transaction_read_only").get_value(0, 0) != b"on":
            return "default_transaction_read_only=on was not taken (by a pooler?): name the server itself"
        opened.nonblocking = 1
    except psycopg.Error as error:
        return str(error)
    return opened


def _find_address(psycopg: Any, conninfo: str) -> str:
    parts = psycopg.conninfo.conninfo_to_dict(conninfo)
    return f"{parts.get('host') or parts.get('hostaddr') or 'localhost'}:{parts.get('port') or 5432}"
