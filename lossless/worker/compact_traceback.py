"""Tracebacks of failures without a list of the places of all instructions, which took most of their memory.

A failure travels to the worker's main process as a `billiard.einfo.ExceptionInfo`, with a copy of its traceback. In it
billiard has a tuple for each instruction of each function (`co_positions`): 30 kB for a short traceback, megabytes for
a deep one, made and sent with every failure and every retry. The process kept the memory.
"""

from collections.abc import Iterator
from itertools import repeat
from types import CodeType
from typing import Any, Final

from billiard import einfo as _einfo

einfo: Any = _einfo  # its stubs do not know what a traceback is copied with

#: The first line, the last line, the first column and the last column of an instruction.
Position = tuple[int | None, int | None, int | None, int | None]
UNKNOWN: Final[Position] = (None, None, None, None)


class CodePositions:
    """The places of a function's instructions, read when somebody iterates; in another process they are unknown.

    Parameters:
        code: the function's code.
    """

    __slots__ = ("_code",)

    def __init__(self, code: CodeType | None = None) -> None:
        self._code = code

    def __iter__(self) -> Iterator[Position]:
        return repeat(UNKNOWN) if self._code is None else iter(self._code.co_positions())

    def __reduce__(self) -> tuple[type["CodePositions"], tuple[()]]:
        return CodePositions, ()


class _CodeWithoutPositions:
    """A function's code, as billiard copies it, without the places of its instructions."""

    def __init__(self, code: CodeType) -> None:
        self._code = code

    def __getattr__(self, name: str) -> Any:
        return getattr(self._code, name)

    def co_positions(self) -> tuple[()]:
        return ()


class CompactCode(einfo._Code):  # type: ignore[misc]
    """The copy of a function's code in the copy of a traceback.

    Parameters:
        code: the function's code.
    """

    def __init__(self, code: CodeType) -> None:
        super().__init__(_CodeWithoutPositions(code))
        self._co_positions = CodePositions(code)


def keep_tracebacks_compact() -> None:
    """Have this process, and those that it forks, copy tracebacks without the places of all instructions."""
    einfo.Traceback.Frame.Code = CompactCode
