"""A kernel filter (seccomp of Linux) that ends a process at a system call that leaves it or changes files."""

import ctypes
import os
import platform
import sys
from typing import Final, NamedTuple


class _Machine(NamedTuple):
    """The numbers of a processor's system calls.

    Attributes:
        refused: calls that connect, listen, start a program, or change, rename, delete or make a file; queues, shared
            memory, other processes and signals to them; io_uring, which would do all of it unseen.
        opening: calls that open a file, with the offset of their flags in the kernel's record.
        socket, sendto, clone, tgkill: the calls that are looked at: sockets that need no connection, data with an
            address, threads and processes, signals to threads of this process and of others.
    """

    arch: int
    refused: tuple[int, ...]
    opening: tuple[tuple[int, int], ...]
    socket: int
    sendto: int
    clone: int
    tgkill: int


_MACHINES: Final = {
    "x86_64": _Machine(
        0xC000003E,
        (
            *(42, 49, 50, 59, 322, 307, 76, 77, 85, 82, 264, 316, 87, 263, 83, 258, 84, 86, 265, 88, 266, 133, 259),
            *(90, 91, 268, 452, 92, 93, 94, 260, 132, 235, 261, 280, 188, 189, 190, 197, 198, 199),
            *(29, 64, 68, 240, 101, 311, 425, 437, 57, 58, 62, 129, 200, 297, 424),
        ),
        ((2, 24), (257, 32)),
        41,
        44,
        56,
        234,
    ),
    "aarch64": _Machine(
        0xC00000B7,
        (
            *(203, 200, 201, 221, 281, 269, 45, 46, 38, 276, 35, 34, 37, 36, 33),
            *(52, 53, 452, 54, 55, 88, 5, 6, 7, 14, 15, 16, 194, 190, 186, 180, 117, 271, 425, 437),
            *(129, 130, 138, 240, 424),
        ),
        ((56, 32),),
        198,
        206,
        220,
        131,
    ),
}
#: Opens for writing, whatever else: O_WRONLY, O_RDWR, O_CREAT, O_TRUNC of Linux.
_KERNEL_WRITES: Final = 0x243
#: A thread of the same process (CLONE_THREAD of Linux).
_THREAD: Final = 0x10000
#: The call that hides its flags from a filter, on both processors: without it, the C library makes threads by `clone`.
_CLONE3: Final = 435
#: The mark of a third instruction set of x86-64 (x32), with the same architecture and other numbers.
_X32: Final = 0x40000000
_ALLOW: Final = 0x7FFF0000
_KILL: Final = 0x80000000
#: There is no such call (ENOSYS).
_MISSING: Final = 0x00050000 | 38


def is_sealed_by_kernel() -> bool:
    """Return whether the kernel of this machine can refuse what C libraries do."""
    return sys.platform == "linux" and platform.machine() in _MACHINES


def filter_system_calls() -> None:
    """Have the kernel end this process at a system call that leaves it; elsewhere than on Linux do nothing.

    Raises:
        OSError: the kernel did not take the filter.
    """
    if not is_sealed_by_kernel():
        return
    program = b"".join(_write_filter(_MACHINES[platform.machine()]))

    class Program(ctypes.Structure):
        _fields_ = (("length", ctypes.c_ushort), ("filter", ctypes.c_char_p))

    library = ctypes.CDLL(None, use_errno=True)
    given = Program(len(program) // 8, program)
    # PR_SET_PDEATHSIG with SIGKILL: a killed command leaves no run behind, which could hold locks in a database.
    library.prctl(1, 9, 0, 0, 0)
    # PR_SET_NO_NEW_PRIVS, PR_SET_SECCOMP with SECCOMP_MODE_FILTER.
    if library.prctl(38, 1, 0, 0, 0) or library.prctl(22, 2, ctypes.byref(given), 0, 0):
        raise OSError(ctypes.get_errno(), "the kernel did not take the filter of system calls")


def _write_filter(machine: _Machine) -> list[bytes]:
    """Return the instructions of the filter, in the format of Linux (struct sock_filter)."""

    def instruction(code: int, value: int, true: int = 0, false: int = 0) -> bytes:
        return code.to_bytes(2, sys.byteorder) + bytes((true, false)) + value.to_bytes(4, sys.byteorder)

    load, keep_bits, equal, any_bit, give = 0x20, 0x54, 0x15, 0x45, 0x06
    # Another instruction set of the same processor: its numbers are others.
    found = [instruction(load, 4), instruction(equal, machine.arch, 1, 0), instruction(give, _KILL)]
    found += [instruction(load, 0), instruction(any_bit, _X32, 0, 1), instruction(give, _KILL)]
    found += [instruction(equal, _CLONE3, 0, 1), instruction(give, _MISSING)]
    for number in machine.refused:
        found += [instruction(equal, number, 0, 1), instruction(give, _KILL)]
    for number, flags in machine.opening:
        found += [instruction(equal, number, 0, 4), instruction(load, flags)]
        found += [instruction(any_bit, _KERNEL_WRITES, 0, 1), instruction(give, _KILL), instruction(give, _ALLOW)]
    # A socket of this machine alone (AF_UNIX), or one that must be connected first (SOCK_STREAM).
    found += [instruction(equal, machine.socket, 0, 7), instruction(load, 16), instruction(equal, 1, 4, 0)]
    found += [instruction(load, 24), instruction(keep_bits, 0xF), instruction(equal, 1, 1, 0)]
    found += [instruction(give, _KILL), instruction(give, _ALLOW)]
    # Data on a connected socket: the address is NULL.
    found += [instruction(equal, machine.sendto, 0, 6), instruction(load, 48), instruction(equal, 0, 0, 2)]
    found += [instruction(load, 52), instruction(equal, 0, 1, 0), instruction(give, _KILL), instruction(give, _ALLOW)]
    # A thread; another process would outlive the run.
    found += [instruction(equal, machine.clone, 0, 4), instruction(load, 16)]
    found += [instruction(any_bit, _THREAD, 1, 0), instruction(give, _KILL), instruction(give, _ALLOW)]
    # A signal within this process, as of `abort`.
    found += [instruction(equal, machine.tgkill, 0, 4), instruction(load, 16)]
    found += [instruction(equal, os.getpid(), 1, 0), instruction(give, _KILL), instruction(give, _ALLOW)]
    return [*found, instruction(give, _ALLOW)]
