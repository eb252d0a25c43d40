"""The points at which a handler's process is killed: lines of its function, and calls that leave the process."""

import inspect
import linecache
import os
import select
import signal
import sys
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import CodeType, FrameType, ModuleType
from typing import Any, Final, NamedTuple, NoReturn

from bridge.formats.delivery import Message
from tasks.declaration.bulk_messages import Messages

#: Seconds for which a process that dies before it reads an answer waits until the answer is there: whoever was asked
#: has acted then.
ANSWER_SECONDS: Final = 2.0

_SOCKETS: Final = ("_socket", "socket", "_ssl", "ssl")
_SQLALCHEMY: Final = ("sqlalchemy",)
_DATABASES: Final = (
    *("sqlite3", "psycopg", "psycopg2", "pymysql", "MySQLdb", "mysql", "oracledb", "pg8000", "asyncpg", "aiosqlite"),
    *("pymssql", "pyodbc", "duckdb"),
)
#: Modules of which a call is no act of the handler's.
_OWN: Final = "tasks.testing"
_LOGS: Final = "logging"


class Boundary(NamedTuple):
    """Functions that change something outside of the process, or ask for it.

    Attributes:
        act: the words for it, behind "before".
        modules: the packages that define them, or the types that have them.
        names: of the functions.
    """

    act: str
    modules: tuple[str, ...]
    names: tuple[str, ...]


BOUNDARIES: Final = (
    Boundary("a commit", _SQLALCHEMY, ("do_commit", "do_commit_twophase")),
    Boundary("a commit", _DATABASES, ("commit", "__exit__")),
    Boundary("an SQL statement", _SQLALCHEMY, ("do_execute", "do_executemany", "do_execute_no_params")),
    Boundary("an SQL statement", _DATABASES, ("execute", "executemany", "executescript", "query", "callproc", "copy")),
    Boundary("a connection is opened", _SOCKETS, ("connect", "connect_ex")),
    Boundary("a request is sent", _SOCKETS, ("send", "sendall", "sendto", "sendmsg", "sendfile", "write")),
    Boundary("an answer is read", _SOCKETS, ("recv", "recv_into", "recvfrom", "recvfrom_into", "recvmsg", "read")),
    Boundary("a Kafka producer is called", ("cimpl", "confluent_kafka"), ("produce", "flush", "commit_transaction")),
    Boundary("a program is started", ("_posixsubprocess",), ("fork_exec",)),
    Boundary("a program is started", ("posix",), ("system", "posix_spawn", "posix_spawnp")),
    Boundary("a file is written", ("_io",), ("write", "writelines", "flush", "truncate", "close", "__exit__")),
    Boundary("a file is written", ("posix",), ("write", "pwrite", "writev", "ftruncate", "truncate")),
    Boundary("a file is renamed or deleted", ("posix",), ("rename", "replace", "unlink", "remove", "link", "symlink")),
    Boundary("a folder is made or deleted", ("posix",), ("mkdir", "rmdir")),
)

#: The methods of a message whose calls are points, with their words.
_METHODS: Final[Mapping[CodeType, str]] = {
    Message.publish.__code__: "message.publish",
    Message.settle_with.__code__: "settle_with",
    Messages.settle_with.__code__: "settle_with",
}


def _by_name() -> dict[str, list[Boundary]]:
    found: dict[str, list[Boundary]] = defaultdict(list)
    for boundary in BOUNDARIES:
        for name in boundary.names:
            found[name].append(boundary)
    return {**found}


_BY_NAME: Final = _by_name()


@dataclass(frozen=True, slots=True)
class CrashPoint:
    """A point at which a handler's process was killed.

    Attributes:
        act: the act that did not happen any more: "a commit", "an answer is read".
        line: the line of the handler's function, as a number in its file; 0 behind its end.
        source: the text of that line; empty if it is not known.
    """

    act: str
    line: int = 0
    source: str = ""

    def __str__(self) -> str:
        if not self.line:
            return f"after the handler, before {self.act}"
        text = f" `{self.source}`" if self.source else ""
        return f"line {self.line}{text}, before {self.act}"


class CrashTracer:
    """The counter of crash points in a process that runs a handler; it kills the process at one of them.

    Parameters:
        function: the handler's function.
        kill_at: the number of the point at which the process dies, from 1; `None`: it lives.
        report: told the point before the process dies.

    Attributes:
        count: how many points there were so far.
        settles: whether `settle_with` was called.
    """

    _current: "CrashTracer | None" = None

    def __init__(self, function: Any, kill_at: int | None, report: Callable[[CrashPoint], None]) -> None:
        self._code: CodeType | None = getattr(inspect.unwrap(function), "__code__", None)
        self._kill_at, self._report = kill_at, report
        self._frame: FrameType | None = None
        self._lock = threading.Lock()
        #: Whether anything was called since the last point: a line behind one without calls is the same point.
        self._called = False
        self.count = 0
        self.settles = False

    def __enter__(self) -> "CrashTracer":
        CrashTracer._current = self
        threading.setprofile(self._profile)
        sys.settrace(self._trace)
        sys.setprofile(self._profile)
        return self

    def __exit__(self, *_: object) -> None:
        sys.setprofile(None)
        sys.settrace(None)
        threading.setprofile(None)
        CrashTracer._current = None

    @classmethod
    def reach_current(cls, act: str) -> None:
        """Reach a point, if this process counts them."""
        if cls._current is not None:
            cls._current.reach(act)

    def leave_handler(self) -> None:
        """Note that the handler has ended: later points are behind it."""
        self._frame = None

    def reach(self, act: str, before_dying: Callable[[], object] | None = None) -> None:
        """Reach a point, before an act.

        Parameters:
            before_dying: called if this is the point at which the process dies.
        """
        with self._lock:
            self.count += 1
            self._called = False
            if self.count == self._kill_at:
                if before_dying is not None:
                    before_dying()
                self._report(self._find_point(act))
                _die()

    def _find_point(self, act: str) -> CrashPoint:
        if self._frame is None:
            return CrashPoint(act)
        line = self._frame.f_lineno
        source = linecache.getline(self._frame.f_code.co_filename, line, self._frame.f_globals).strip()
        return CrashPoint(act, line, source)

    def _trace(self, frame: FrameType, event: str, _: object) -> Any:
        return self._trace_line if frame.f_code is self._code else None

    def _trace_line(self, frame: FrameType, event: str, _: object) -> Any:
        if event == "line" and self._called:
            self._frame = frame
            self.reach("it begins")
        return self._trace_line

    def _profile(self, frame: FrameType, event: str, function: Any) -> None:
        if event == "call":
            self._meet_function(frame)
        elif event == "c_call":
            self._meet_builtin(frame, function)

    def _meet_function(self, frame: FrameType) -> None:
        code = frame.f_code
        if code is self._code:
            self._frame = frame
        module = str(frame.f_globals.get("__name__", ""))
        if module.startswith(_OWN):
            return
        self._called = True
        if (method := _METHODS.get(code)) is not None:
            self.settles = self.settles or method == "settle_with"
            self.reach(method)
        # A coroutine that goes on is called again, at another line.
        elif code.co_name in _BY_NAME and frame.f_lineno == code.co_firstlineno and not _is_inside(frame):
            act = _find_act(code.co_name, (module,))
            if act is not None and not _only_reads(frame):
                self.reach(act)

    def _meet_builtin(self, frame: FrameType, function: Any) -> None:
        caller = str(frame.f_globals.get("__name__", ""))
        if caller.startswith(_OWN):
            return
        self._called = True
        name = getattr(function, "__name__", "")
        if name not in _BY_NAME or caller.startswith((_LOGS, *_SQLALCHEMY)):
            return
        owner = getattr(function, "__self__", None)
        if isinstance(owner, ModuleType):
            modules: tuple[str, ...] = (owner.__name__,)
        else:
            modules = tuple(kind.__module__ for kind in type(owner).__mro__)
        act = _find_act(name, modules)
        if act is None or not _leaves_process(owner):
            return
        self.reach(act, (lambda: _await_answer(owner)) if act == "an answer is read" else None)


def _find_act(name: str, modules: tuple[str, ...]) -> str | None:
    for boundary in _BY_NAME[name]:
        if any(module.split(".")[0] in boundary.modules for module in modules):
            return boundary.act
    return None


def _is_inside(frame: FrameType) -> bool:
    """Return whether a driver's function was called by the same driver, or by SQLAlchemy: that was the point."""
    caller = frame.f_back
    if caller is None:
        return False
    here = str(frame.f_globals.get("__name__", "")).split(".")[0]
    there = str(caller.f_globals.get("__name__", "")).split(".")[0]
    return here not in _SQLALCHEMY and (there in _SQLALCHEMY or (here == there and caller.f_code.co_name in _BY_NAME))


def _only_reads(frame: FrameType) -> bool:
    """Return whether a function is given an SQL statement that changes nothing: the next point is as good."""
    statement = frame.f_locals.get("statement")
    return isinstance(statement, str) and statement.lstrip()[:6].upper() in ("SELECT", "PRAGMA")


def _leaves_process(owner: Any) -> bool:
    """Return whether the object of a call writes to something that outlives this process."""
    try:
        if hasattr(owner, "getpeername"):
            return _has_peer(owner)
        if hasattr(owner, "writable"):
            name = getattr(owner, "name", None)
            return bool(owner.writable()) and (isinstance(name, str | bytes) or (isinstance(name, int) and name > 2))
    except (OSError, ValueError):
        return False
    return True


def _has_peer(connection: Any) -> bool:
    """Return whether a socket is no half of a pair within this process, by which an event loop wakes itself."""
    try:
        return bool(connection.getpeername())
    except OSError:
        return True


def _await_answer(connection: Any) -> None:
    # An object of `_ssl` has the socket as its owner.
    waits = getattr(connection, "owner", connection)
    try:
        select.select([waits], [], [], ANSWER_SECONDS)
    except (OSError, ValueError, TypeError):
        return


def _die() -> NoReturn:
    os.kill(os.getpid(), signal.SIGKILL)
    while True:
        time.sleep(1)
