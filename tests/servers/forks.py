"""Processes of the project without the second that each of them imports: forked off one that has imported."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from select import select
from threading import Lock
from typing import IO, Final, Protocol

ROOT: Final = Path(__file__).parents[2]
#: Variables that are read while something is imported, or by Python before: the beginnings of their names.
READ_EARLY: Final = (
    *("PYTHON", "LANG", "LC_", "PROMETHEUS_", "CELERY_CUSTOM", "C_", "COLUMNS", "LINES", "TERM", "NO_COLOR"),
    *("FORCE_COLOR", "TTY_", "SQLALCHEMY_", "KOMBU_", "PYDANTIC_", "DISABLE_SQLALCHEMY", "OTEL_"),
)
#: Of these, what is done for each process that is forked off.
TAKEN_OVER: Final = {"PYTHONPATH": ("", str(ROOT)), "PYTHONUNBUFFERED": ("1",), "PYTHONWARNINGS": ("", "ignore")}


class Started(Protocol):
    """What of `subprocess.Popen` the tests use."""

    pid: int

    def poll(self) -> int | None: ...
    def wait(self, timeout: float | None = None) -> int: ...


class Forked:
    """A process that was forked off, as `subprocess.Popen` would have it."""

    def __init__(self, forks: "Forks", pid: int) -> None:
        self._forks, self.pid = forks, pid
        self._code: int | None = None

    def poll(self) -> int | None:
        """Its exit code, negative for a signal; None while it runs."""
        if self._code is None:
            self._code = self._forks.code(self.pid)
        return self._code

    def wait(self, timeout: float | None = None) -> int:
        """Wait for its end. Raises `subprocess.TimeoutExpired`."""
        deadline = None if timeout is None else time.monotonic() + timeout
        while (code := self.poll()) is None:
            if deadline is not None and time.monotonic() > deadline:
                raise subprocess.TimeoutExpired(f"process {self.pid}", timeout or 0)
            self._forks.listen(0.2)
        return code


class Forks:
    """Forks off processes of one that has imported what they need (tests/servers/forking.py).

    What would be otherwise than with a start from nothing is started from nothing: `takes` says which.
    """

    def __init__(self) -> None:
        self._environ = {**os.environ, "PYTHONUNBUFFERED": "1"}
        self._environ.pop("PYTHONPATH", None)
        self._heard = b""
        self._pids: list[int] = []
        self._codes: dict[int, int] = {}
        self._listening = Lock()

    @cached_property
    def _process(self) -> "subprocess.Popen[bytes]":
        program = (sys.executable, str(Path(__file__).with_name("forking.py")))
        return subprocess.Popen(program, cwd=ROOT, env=self._environ, stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    @property
    def _asks(self) -> IO[bytes]:
        assert self._process.stdin is not None
        return self._process.stdin

    @property
    def _answers(self) -> IO[bytes]:
        assert self._process.stdout is not None
        return self._process.stdout

    def takes(self, command: Sequence[str], environ: Mapping[str, str], cwd: Path) -> bool:
        """Whether a process is the same if it is forked off."""
        if tuple(command[:2]) != (sys.executable, "-m") or command[2] not in ("bridge", "celery") or cwd != ROOT:
            return False
        if not Path("/proc/self/task").exists():
            # Elsewhere than on Linux libraries are not made to be forked.
            return False
        early = {name for name in {*environ, *self._environ} if name.startswith(READ_EARLY)}
        return all(environ.get(name, "") in TAKEN_OVER.get(name, (self._environ.get(name, ""),)) for name in early)

    def start(self, command: Sequence[str], environ: Mapping[str, str], cwd: Path, log: Path) -> Forked:
        """Start `python -m …`; its output goes to the end of `log`."""
        asked = {"module": command[2], "arguments": list(command[3:]), "environ": dict(environ)}
        self._asks.write(json.dumps({**asked, "cwd": str(cwd), "log": str(log)}).encode() + b"\n")
        self._asks.flush()
        while not self._pids:
            self.listen(60)
        return Forked(self, self._pids.pop())

    def code(self, pid: int) -> int | None:
        """How a process has ended."""
        self.listen(0)
        return self._codes.get(pid)

    def listen(self, seconds: float) -> None:
        """Take in what it has said, waiting at most so long for a word."""
        with self._listening:
            if not select([self._answers], [], [], seconds)[0]:
                return
            if not (said := os.read(self._answers.fileno(), 65536)):
                raise RuntimeError(f"the process that forks has ended with {self._process.wait()}")
            *lines, self._heard = (self._heard + said).split(b"\n")
            for line in map(json.loads, lines):
                self._take_in(line)

    def _take_in(self, line: Mapping[str, int]) -> None:
        if "pid" in line:
            # Another had the number before.
            self._codes.pop(line["pid"], None)
            self._pids.append(line["pid"])
        else:
            self._codes[line["ended"]] = line["code"]

    def close(self) -> None:
        """End the process that forks, if there is one; what it has forked off goes on."""
        if "_process" in vars(self):
            self._asks.close()
            self._process.wait(10)
            self._answers.close()
