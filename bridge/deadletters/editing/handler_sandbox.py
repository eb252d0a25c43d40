"""A run of a handler on a value in a process of its own, which changes nothing outside and ends in time.

On Linux a kernel filter (`system_call_filter.py`) ends the process if it connects, listens, starts a program, or opens,
renames or deletes a file to change it. Python's own audit events refuse the same before that and say what it was;
elsewhere they alone do.
"""

import errno
import gc
import json
import logging
import os
import resource
import select
import signal
import sys
import threading
import time
import warnings
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any, Final, NamedTuple, NoReturn, Protocol

from bridge.deadletters.editing.system_call_filter import filter_system_calls
from bridge.formats.delivery import Message
from bridge.formats.failure import Failure
from bridge.formats.inherited_connections import find_engines, leave_connections

#: Memory that a run may take beyond what the process has, in bytes; the longest time of one run, in seconds.
MEMORY: Final = 1 << 30
SECONDS: Final = 5.0
#: How often a run is repeated because its surroundings have learnt what it needs.
REPEATS: Final = 10

#: Python's audit events of what leaves the process or changes files, with words for them and what they are done to: the
#: numbers of arguments.
_REFUSED_EVENTS: Final[Mapping[str, tuple[str, int]]] = {
    "socket.bind": ("a socket that listens at", 1),
    "socket.gethostbyname": ("a connection to", 0),
    "sqlite3.connect": ("the SQLite database", 0),
    "subprocess.Popen": ("the program", 0),
    "os.system": ("the program", 0),
    "os.exec": ("the program", 0),
    "os.posix_spawn": ("the program", 0),
    "pty.spawn": ("the program", 0),
    "os.fork": ("another process", -1),
    "os.forkpty": ("another process", -1),
    "os.kill": ("a signal to process", 0),
    "os.killpg": ("a signal to processes of group", 0),
    "os.remove": ("the deletion of", 0),
    "os.rmdir": ("the deletion of", 0),
    "os.rename": ("another name for", 0),
    "os.mkdir": ("the folder", 0),
    "os.truncate": ("a change of", 0),
    "os.link": ("a link to", 0),
    "os.symlink": ("a link to", 0),
    "os.chmod": ("a change of", 0),
    "os.chown": ("a change of", 0),
    "os.utime": ("a change of", 0),
    "os.setxattr": ("a change of", 0),
    "os.removexattr": ("a change of", 0),
}
#: Events whose last argument is an address.
_CONNECTING: Final = ("socket.connect", "socket.sendto", "socket.sendmsg")
_WRITES: Final = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
#: A database in memory is no file.
_IN_MEMORY: Final = ":memory:"
#: Errors of connections that were made before the run, which has none of them.
_LOST_CONNECTION: Final = frozenset({errno.EBADF, errno.ENOTSOCK, errno.EPIPE, errno.ENOTCONN, errno.ECONNRESET})
_CONNECTION_ERRORS: Final = frozenset({"OperationalError", "InterfaceError", "ConnectionError"})
#: Errors of PostgreSQL for a statement that runs in a transaction, or after a failed one, though it had its own.
_TRANSACTION_ERRORS: Final = frozenset(
    {"ActiveSqlTransaction", "InFailedSqlTransaction", "InvalidTransactionTermination", "ReadOnlySqlTransaction"}
)

Tell = Callable[[Mapping[str, Any]], None]


class Surroundings(Protocol):
    """The things of the outside world that a run is given, none of which it can change."""

    def begin(self) -> Collection[int]:
        """Prepare a run, in the parent; return the files that its process keeps."""

    def finish(self) -> None:
        """End a run, in the parent."""

    def enter(self, tell: Tell) -> None:
        """Put them up in the process of the run, before that is sealed.

        Parameters:
            tell: tells the parent what the run is refused (`refused`, `address`) or would need (`needs`).
        """

    def collect(self, message: Message, tell: Tell) -> Mapping[str, Any]:
        """Return what a run has used and would have sent, as JSON-compatible data."""

    def learn(self, need: Any) -> bool:
        """Note in the parent what a run needs; return whether it is worth another run."""


class SandboxRun(NamedTuple):
    """The end of one run.

    Attributes:
        failure: what the handler raised; `None`: it succeeded, or did not end by itself.
        refused: what it wanted outside, and was not allowed; empty: nothing.
        ended_by: why the process did not end by itself; empty: it did.
        address: of the connection that was refused, `db:5432`; empty: it was none, or is not known.
        died: whether its process ended of itself, without an end of the handler.
        lost_connection: whether the failure is one of a connection or its transaction, which differ in a trial.
        collected: what its surroundings have collected.
    """

    failure: Failure | None = None
    refused: str = ""
    ended_by: str = ""
    address: str = ""
    died: bool = False
    lost_connection: bool = False
    collected: Mapping[str, Any] = {}


class HandlerSandbox:
    """Runs of a handler, each in a forked process.

    Parameters:
        run: runs the handler on a message.

    Attributes:
        runs: how many there were.
    """

    def __init__(
        self, run: Callable[[Message], object], seconds: float = SECONDS, surroundings: Surroundings | None = None
    ) -> None:
        self._run, self._seconds, self._surroundings = run, seconds, surroundings
        self._engines = find_engines()
        self.runs = 0

    def run(self, message: Message) -> SandboxRun:
        """Run the handler on a message; again if its surroundings have learnt what it needs."""
        for _ in range(REPEATS):
            told, in_time, status = self._run_once(message)
            needs = [each["needs"] for each in told if "needs" in each]
            learnt = [self._surroundings.learn(need) for need in needs] if self._surroundings is not None else []
            if not any(learnt):
                break
        return self._read_end(told, in_time, status)

    def _run_once(self, message: Message) -> tuple[list[dict[str, Any]], bool, int]:
        self.runs += 1
        kept = self._surroundings.begin() if self._surroundings is not None else ()
        reader, writer = os.pipe()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)
            child = os.fork()
        if not child:
            self._run_and_exit(message, reader, writer, kept)
        os.close(writer)
        try:
            told, in_time = _read_all(reader, time.monotonic() + self._seconds)
            status = _await_exit(child) if in_time else 0
        finally:
            os.close(reader)
            if not in_time:
                os.kill(child, signal.SIGKILL)
                os.waitpid(child, 0)
            if self._surroundings is not None:
                self._surroundings.finish()
        lines = told.splitlines(keepends=True)
        # A process that died may have died in the middle of a line.
        return [json.loads(line) for line in lines if line.endswith(b"\n")], in_time, status

    def _read_end(self, told: Iterable[Mapping[str, Any]], in_time: bool, status: int) -> SandboxRun:
        refused = address = ""
        for each in told:
            if "fault" in each:
                return SandboxRun(ended_by=f"the sandbox could not be made: {each['fault']}")
            if "refused" in each and not refused:
                refused, address = each["refused"], each.get("address", "")
            if "end" in each:
                failure = each["end"] and Failure.from_data(each["end"])
                lost, collected = each["lost_connection"], each["collected"]
                return SandboxRun(failure, refused, "", address, False, lost, collected)
        if not in_time:
            return SandboxRun(None, refused, f"it ran for more than {self._seconds:g} s", address)
        if os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGSYS:
            return SandboxRun(refused=refused or "a system call for a connection, a program or a file", address=address)
        return SandboxRun(None, refused, f"its process died ({_describe_exit(status)})", address, True)

    def _run_and_exit(self, message: Message, reader: int, writer: int, kept: Collection[int]) -> NoReturn:
        lock = threading.Lock()

        def tell(said: Mapping[str, Any]) -> None:
            with lock:
                os.write(writer, json.dumps(said).encode() + b"\n")

        try:
            os.close(reader)
            # Its collector need not look through what belongs to the parent.
            gc.freeze()
            _leave_files({writer, *kept})
            leave_connections(self._engines)
            # Log lines of a trial would be taken for those of a delivery.
            logging.Handler.handle = lambda self, record: True  # type: ignore[method-assign]
            if self._surroundings is not None:
                self._surroundings.enter(tell)
            _seal(tell)
            error: BaseException | None = None
            try:
                self._run(message)
            except BaseException as raised:
                error = raised
            failure = None if error is None else Failure.from_error(error).to_data()
            found = {} if self._surroundings is None else self._surroundings.collect(message, tell)
            tell({"end": failure, "lost_connection": error is not None and _is_lost(error), "collected": found})
        except BaseException as error:
            tell({"fault": str(error)})
        finally:
            os._exit(0)


def _read_all(reader: int, until: float) -> tuple[bytes, bool]:
    """Return what a pipe gave until its end, and whether that came in time."""
    read = b""
    while True:
        left = until - time.monotonic()
        if left <= 0 or not select.select([reader], [], [], left)[0]:
            return read, False
        if not (part := os.read(reader, 65_536)):
            return read, True
        read += part


def _await_exit(child: int) -> int:
    """Return the exit status of a child that has closed its pipe: it ended, or will not tell more."""
    until = time.monotonic() + 1
    while time.monotonic() < until:
        found, status = os.waitpid(child, os.WNOHANG)
        if found:
            return status
        time.sleep(0.001)
    os.kill(child, signal.SIGKILL)
    return os.waitpid(child, 0)[1]


def _describe_exit(status: int) -> str:
    if os.WIFSIGNALED(status):
        return f"signal {signal.Signals(os.WTERMSIG(status)).name}"
    return f"exit code {os.waitstatus_to_exitcode(status)}"


def _leave_files(kept: Collection[int]) -> None:
    """Replace all files and connections of the parent, but for some, by one that takes all and has nothing.

    They are not closed: a connection that the run is given would get the number of one, and what an object of the
    parent's writes.
    """
    null = os.open(os.devnull, os.O_RDWR)
    for number in _list_files():
        if number not in kept and number != null:
            try:
                os.dup2(null, number)
            except OSError:
                continue


def _list_files() -> list[int]:
    try:
        return [int(name) for name in os.listdir("/dev/fd")]
    except OSError:
        return [*range(min(65_536, resource.getrlimit(resource.RLIMIT_NOFILE)[0]))]


def _seal(tell: Tell) -> None:
    """Refuse from now on whatever leaves this process, and tell it."""
    sys.dont_write_bytecode = True
    for limit, most in ((resource.RLIMIT_CORE, 0), (resource.RLIMIT_AS, _read_memory() + MEMORY)):
        try:
            hard = resource.getrlimit(limit)[1]
            resource.setrlimit(limit, (most if hard < 0 else min(most, hard), hard))
        except (OSError, ValueError):
            # macOS has no limit of the address space: the time limit is left.
            continue
    filter_system_calls()

    def refuse(event: str, args: tuple[Any, ...]) -> None:
        if (found := _find_refusal(event, args)) is not None:
            what, address = found
            tell({"refused": what, "address": address})
            raise PermissionError(f"{what} is refused: this run of the handler is a trial")

    sys.addaudithook(refuse)


def _find_refusal(event: str, args: tuple[Any, ...]) -> tuple[str, str] | None:
    """Return what an audit event would do outside, and the address of a connection; `None`: it is harmless."""
    if event == "open":
        return (f"writing {_format_name(args[0])}", "") if _is_write(args) else None
    if event in _CONNECTING:
        address = _format_address(args[1])
        return None if args[1] is None else (f"a connection to {address}", address)
    if event == "socket.getaddrinfo":
        address = _format_address(args[:2])
        return f"a connection to {address}", address
    if event == "socket.__new__":
        # AF_UNIX stays on this machine; SOCK_STREAM must be connected first; -1 is a file that is there.
        is_harmless = args[1] == 1 or args[2] == -1 or args[2] & 0xF == 1
        return None if is_harmless else ("a socket that needs no connection (UDP)", "")
    if event == "sqlite3.connect" and _is_in_memory(args[0]):
        return None
    if event in _REFUSED_EVENTS:
        words, number = _REFUSED_EVENTS[event]
        return f"{words} {_format_name(args[number])}" if 0 <= number < len(args) else words, ""
    return None


def _is_in_memory(database: Any) -> bool:
    return database == _IN_MEMORY or (isinstance(database, str) and database.endswith("?vfs=memdb"))


def _format_name(given: Any) -> str:
    return os.fsdecode(given) if isinstance(given, str | bytes | os.PathLike) else str(given)


def _format_address(given: Any) -> str:
    if isinstance(given, tuple) and len(given) >= 2:
        host, port = given[0], given[1]
        return f"{_format_name(host)}:{_format_name(port)}" if port else _format_name(host)
    return _format_name(given)


def _is_write(args: tuple[Any, ...]) -> bool:
    path, _, flags = args
    return isinstance(flags, int) and bool(flags & _WRITES) and path != os.devnull


def _is_lost(error: BaseException) -> bool:
    """Return whether an error is one of a connection: the outside service's, or of one made before the run."""
    found: BaseException | None = error
    for _ in range(5):
        if found is None:
            return False
        if isinstance(found, OSError) and found.errno in _LOST_CONNECTION:
            return True
        names = {kind.__name__ for kind in type(found).__mro__}
        if names & _TRANSACTION_ERRORS:
            return True
        # A copy of a SQLite database is there: what it says is the handler's own fault.
        if names & _CONNECTION_ERRORS and not type(getattr(found, "orig", found)).__module__.startswith("sqlite3"):
            return True
        found = found.__cause__ or getattr(found, "orig", None)
    return False


def _read_memory() -> int:
    try:
        with open("/proc/self/statm") as file:
            return int(file.read().split()[0]) * resource.getpagesize()
    except OSError:
        return 0
