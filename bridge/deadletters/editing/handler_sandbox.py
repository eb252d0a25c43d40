"""A run of a handler on a value in a process of its own, which changes nothing outside and ends in time.

On Linux a kernel filter (seccomp) ends the process if it connects, listens, starts a program, or opens, renames or
deletes a file to change it. Python's own audit events refuse the same before that, and elsewhere they alone do.
"""

import ctypes
import json
import os
import platform
import resource
import select
import signal
import sys
import time
import warnings
from collections.abc import Callable
from typing import Any, Final, NamedTuple, NoReturn

from bridge.formats.delivery import Message
from bridge.formats.failure import Failure

#: Memory that a run may take beyond what the process has, in bytes; the longest time of one run, in seconds.
MEMORY: Final = 1 << 30
SECONDS: Final = 5.0

#: Python's audit events of what leaves the process, or changes files.
_REFUSED_EVENTS: Final = frozenset(
    {
        *("socket.connect", "socket.bind", "socket.sendto", "socket.sendmsg", "socket.getaddrinfo"),
        *("socket.gethostbyname", "sqlite3.connect", "subprocess.Popen", "os.system", "os.exec", "os.posix_spawn"),
        *("os.fork", "os.forkpty", "os.kill", "os.remove", "os.rename", "os.rmdir", "os.mkdir", "os.truncate"),
        *("os.link", "os.symlink", "os.chmod", "os.chown", "os.utime", "pty.spawn"),
    }
)
_WRITES: Final = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND


class _Machine(NamedTuple):
    """The numbers of a processor's system calls.

    Attributes:
        refused: connect, bind, listen, execve, execveat, truncate, rename, unlink, mkdir, link, io_uring and the like.
        opening: calls that open a file, with the offset of their flags in the kernel's record.
    """

    arch: int
    refused: tuple[int, ...]
    opening: tuple[tuple[int, int], ...]


_MACHINES: Final = {
    "x86_64": _Machine(
        0xC000003E,
        (42, 49, 50, 59, 322, 76, 77, 82, 264, 316, 87, 263, 83, 258, 84, 86, 265, 88, 266, 425, 437),
        ((2, 24), (257, 32)),
    ),
    "aarch64": _Machine(0xC00000B7, (203, 200, 201, 221, 281, 45, 46, 38, 276, 35, 34, 37, 36, 425, 437), ((56, 32),)),
}
#: Opens for writing, whatever else: O_WRONLY, O_RDWR, O_CREAT, O_TRUNC of Linux.
_KERNEL_WRITES: Final = 0x243
_ALLOW: Final = 0x7FFF0000
_KILL: Final = 0x80000000


class SandboxRun(NamedTuple):
    """The end of one run.

    Attributes:
        failure: what the handler raised; `None`: it succeeded, or did not end by itself.
        refused: what it wanted outside, and was not allowed; empty: nothing.
        ended_by: why the process did not end by itself; empty: it did.
    """

    failure: Failure | None = None
    refused: str = ""
    ended_by: str = ""


class HandlerSandbox:
    """Runs of a handler, each in a forked process.

    Parameters:
        run: runs the handler on a message.

    Attributes:
        runs: how many there were.
    """

    def __init__(self, run: Callable[[Message], object], seconds: float = SECONDS) -> None:
        self._run, self._seconds = run, seconds
        self.runs = 0

    def run(self, message: Message) -> SandboxRun:
        """Run the handler on a message."""
        self.runs += 1
        reader, writer = os.pipe()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)
            child = os.fork()
        if not child:
            self._run_and_exit(message, reader, writer)
        os.close(writer)
        try:
            told, in_time = _read_all(reader, time.monotonic() + self._seconds)
        finally:
            os.close(reader)
            os.kill(child, signal.SIGKILL)
            _, status = os.waitpid(child, 0)
        if told:
            data = json.loads(told)
            if "fault" in data:
                return SandboxRun(ended_by=f"the sandbox could not be made: {data['fault']}")
            return SandboxRun(data["failure"] and Failure.from_data(data["failure"]), data["refused"])
        if not in_time:
            return SandboxRun(ended_by=f"it ran for more than {self._seconds:g} s")
        if os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGSYS:
            return SandboxRun(refused="a system call for a connection, a program or a file")
        return SandboxRun(ended_by="its process died")

    def _run_and_exit(self, message: Message, reader: int, writer: int) -> NoReturn:
        pipe = writer
        try:
            os.close(reader)
            pipe = _leave_files(writer)
            refused: list[str] = []
            _seal(refused)
            failure = None
            try:
                self._run(message)
            except BaseException as error:
                failure = Failure.from_error(error)
            told = {"failure": failure and failure.to_data(), "refused": refused[0] if refused else ""}
            os.write(pipe, json.dumps(told).encode())
        except BaseException as error:
            os.write(pipe, json.dumps({"fault": str(error)}).encode())
        finally:
            os._exit(0)


def _read_all(reader: int, until: float) -> tuple[bytes, bool]:
    """Return what a pipe gave until its end, and whether that came in time."""
    read = b""
    while True:
        left = until - time.monotonic()
        if left <= 0 or not select.select([reader], [], [], left)[0]:
            return b"", False
        if not (part := os.read(reader, 65_536)):
            return read, True
        read += part


def _leave_files(writer: int) -> int:
    """Close all files and connections of the parent but for the pipe, and return that."""
    null = os.open(os.devnull, os.O_RDWR)
    pipe = 3
    if null == pipe:
        null = os.dup(null)
    if writer != pipe:
        os.dup2(writer, pipe)
    for standard in range(3):
        os.dup2(null, standard)
    os.closerange(pipe + 1, min(65_536, resource.getrlimit(resource.RLIMIT_NOFILE)[0]))
    return pipe


def _seal(refused: list[str]) -> None:
    """Refuse from now on whatever leaves this process, and note it."""
    sys.dont_write_bytecode = True
    for limit, most in ((resource.RLIMIT_CORE, 0), (resource.RLIMIT_AS, _read_memory() + MEMORY)):
        try:
            hard = resource.getrlimit(limit)[1]
            resource.setrlimit(limit, (most if hard < 0 else min(most, hard), hard))
        except (OSError, ValueError):
            # macOS has no limit of the address space: the time limit is left.
            continue
    _filter_system_calls()

    def refuse(event: str, args: tuple[Any, ...]) -> None:
        if event in _REFUSED_EVENTS or (event == "open" and _is_write(args)):
            refused.append(event)
            raise PermissionError(f"{event} is refused: this run of the handler is a trial")

    sys.addaudithook(refuse)


def _is_write(args: tuple[Any, ...]) -> bool:
    path, _, flags = args
    return isinstance(flags, int) and bool(flags & _WRITES) and path != os.devnull


def _read_memory() -> int:
    try:
        with open("/proc/self/statm") as file:
            return int(file.read().split()[0]) * resource.getpagesize()
    except OSError:
        return 0


def is_sealed_by_kernel() -> bool:
    """Return whether the kernel of this machine can refuse what C libraries do."""
    return sys.platform == "linux" and platform.machine() in _MACHINES


def _filter_system_calls() -> None:
    """Have the kernel end this process at a system call that leaves it."""
    if not is_sealed_by_kernel():
        return
    machine = _MACHINES[platform.machine()]
    program = b"".join(_write_filter(machine))

    class Program(ctypes.Structure):
        _fields_ = (("length", ctypes.c_ushort), ("filter", ctypes.c_char_p))

    library = ctypes.CDLL(None, use_errno=True)
    given = Program(len(program) // 8, program)
    # PR_SET_NO_NEW_PRIVS, PR_SET_SECCOMP with SECCOMP_MODE_FILTER.
    if library.prctl(38, 1, 0, 0, 0) or library.prctl(22, 2, ctypes.byref(given), 0, 0):
        raise OSError(ctypes.get_errno(), "the kernel did not take the filter of system calls")


def _write_filter(machine: _Machine) -> list[bytes]:
    """Return the instructions of the filter, in the format of Linux (struct sock_filter)."""

    def instruction(code: int, value: int, true: int = 0, false: int = 0) -> bytes:
        return code.to_bytes(2, sys.byteorder) + bytes((true, false)) + value.to_bytes(4, sys.byteorder)

    load, equal, any_bit, give = 0x20, 0x15, 0x45, 0x06
    # Another instruction set of the same processor: its numbers are others.
    found = [instruction(load, 4), instruction(equal, machine.arch, 1, 0), instruction(give, _KILL)]
    found.append(instruction(load, 0))
    for number in machine.refused:
        found += [instruction(equal, number, 0, 1), instruction(give, _KILL)]
    for number, flags in machine.opening:
        found += [instruction(equal, number, 0, 4), instruction(load, flags)]
        found += [instruction(any_bit, _KERNEL_WRITES, 0, 1), instruction(give, _KILL), instruction(give, _ALLOW)]
    return [*found, instruction(give, _ALLOW)]
