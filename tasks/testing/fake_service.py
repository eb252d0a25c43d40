"""A stand-in for an outside service in tests, whose log of calls outlives a killed process."""

import json
import os
import tempfile
import weakref
from collections.abc import Callable
from typing import Any

from tasks.testing.crash_points import CrashTracer


class SurvivingLog:
    """A list of JSON-able entries in a file without a name, which forked processes share."""

    def __init__(self) -> None:
        self._file, path = tempfile.mkstemp(prefix="crash-")
        os.unlink(path)
        weakref.finalize(self, os.close, self._file)

    def append(self, entry: Any) -> None:
        """Write an entry at the end."""
        os.write(self._file, json.dumps(entry).encode() + b"\n")

    def read(self) -> list[Any]:
        """Return all entries."""
        size = os.fstat(self._file).st_size
        return [json.loads(line) for line in os.pread(self._file, size, 0).splitlines()]

    def clear(self) -> None:
        """Remove all entries."""
        os.ftruncate(self._file, 0)
        os.lseek(self._file, 0, os.SEEK_SET)


class FakeService:
    """A stand-in for a function that calls an outside service; `calls` is what the service did.

    Each call is two crash points: before the service has it, and before its answer is read.

    Parameters:
        name: of the service, for the report.
        answer: what each call returns.
        key: a function of the call's arguments that returns its idempotency key: a service that takes one acts once
            for each. `None`: it takes none, and acts at each call.
        awaited: whether the handler awaits the call.
    """

    def __init__(
        self, name: str, answer: object = None, *, key: Callable[..., object] | None = None, awaited: bool = False
    ) -> None:
        self.name = name
        self._answer, self._key, self._awaited = answer, key, awaited
        self._log = SurvivingLog()

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Take a call, and return the answer."""
        return self._take_later(args, kwargs) if self._awaited else self._take(args, kwargs)

    async def _take_later(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> object:
        return self._take(args, kwargs)

    def _take(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> object:
        key = None if self._key is None else repr(self._key(*args, **kwargs))
        CrashTracer.reach_current(f"{self.name} is called")
        said = [*map(repr, args), *(f"{name}={value!r}" for name, value in kwargs.items())]
        self._log.append([key, f"({', '.join(said)})"])
        CrashTracer.reach_current(f"{self.name} has answered")
        return self._answer

    @property
    def calls(self) -> list[str]:
        """The arguments of the calls on which the service acted, in order."""
        seen, acted = set(), []
        for key, said in self._log.read():
            if key is None or key not in seen:
                acted.append(said)
            seen.add(key)
        return acted

    def reset(self) -> None:
        """Forget all calls."""
        self._log.clear()
