"""One process of the project, or of an app on `lossless`, with its log: the end of it is in the report of a failure.

It needs nothing of the project: the tests of `lossless` run without it, too.
"""

import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, BinaryIO, ClassVar

import pytest

from tests.servers.forks import Forks, Started

ROOT = Path(__file__).parents[1]


def eventually(condition: Callable[[], Any], within: float = 30.0, what: str = "") -> Any:
    """Wait until the condition gives something true, and return that; fail when `within` seconds are over."""
    deadline = time.monotonic() + within
    while True:
        found = condition()
        if found:
            return found
        if time.monotonic() > deadline:
            pytest.fail(f"not within {within:g} s: {what or condition}; last seen: {found!r}")
        time.sleep(0.05)


class Process:
    """One process with its log; it has a process group of its own, which is killed with it.

    Attributes:
        alive: all that were started and not killed.
        forks: what processes of the project are forked off, where a start is not what is tested; None: they are
            started from nothing.
    """

    alive: ClassVar[list["Process"]] = []
    forks: ClassVar[Forks | None] = None

    def __init__(self, name: str, command: Sequence[str], environ: dict[str, str], folder: Path, cwd: Path = ROOT):
        self.name = name
        self.log = folder / f"{name}-{len(list(folder.glob(f'{name}-*')))}.log"
        with self.log.open("wb") as log:
            self._popen = self._started(command, environ, cwd, log)
        Process.alive.append(self)

    def _started(self, command: Sequence[str], environ: dict[str, str], cwd: Path, log: BinaryIO) -> Started:
        if (forks := Process.forks) is not None and forks.takes(command, environ, cwd):
            return forks.start(command, environ, cwd, self.log)
        return subprocess.Popen(command, cwd=cwd, env=environ, stdout=log, stderr=log, start_new_session=True)

    @property
    def pid(self) -> int:
        return self._popen.pid

    @property
    def exit_code(self) -> int | None:
        """None while it runs."""
        return self._popen.poll()

    @property
    def text(self) -> str:
        return self.log.read_text(errors="replace")

    def count(self, words: str) -> int:
        """How many lines of the log hold these words."""
        return sum(words in line for line in self.text.splitlines())

    def says(self, words: str, within: float = 30.0) -> str:
        """Wait until the log holds these words."""

        def said() -> bool:
            if words not in self.text and self.exit_code is not None:
                pytest.fail(f"{self.name} ended with {self.exit_code} and never said {words!r}:\n{self.text}")
            return words in self.text

        eventually(said, within, f"{self.name} says {words!r}")
        return self.text

    def ends(self, within: float = 60.0) -> int:
        """Wait for its end; return the exit code."""
        try:
            code = self._popen.wait(within)
        except subprocess.TimeoutExpired:
            pytest.fail(f"{self.name} still runs after {within:g} s:\n{self.text[-4000:]}")
        return code

    def signal(self, number: int) -> None:
        os.kill(self.pid, number)

    def terminate(self, within: float = 60.0) -> int:
        """SIGTERM, and the exit code."""
        self.signal(signal.SIGTERM)
        return self.ends(within)

    def kill(self) -> None:
        """kill -9, with all its children."""
        with suppress(ProcessLookupError):
            os.killpg(self.pid, signal.SIGKILL)
        self._popen.wait()
        if self in Process.alive:
            Process.alive.remove(self)


def children(worker: Process) -> list[int]:
    """The process ids of a worker's children."""
    with open(f"/proc/{worker.pid}/task/{worker.pid}/children") as file:
        return [int(pid) for pid in file.read().split()]


@pytest.fixture(scope="module", autouse=True)
def forked(forks: Forks) -> Iterator[None]:
    """Where a conftest takes it up: processes of the project are forked off, instead of each importing all anew."""
    before, Process.forks = Process.forks, forks
    yield
    Process.forks = before


@pytest.fixture
def from_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """For tests of a start: processes begin as users' do."""
    monkeypatch.setattr(Process, "forks", None)


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Iterator[None]:
    """Put the ends of the logs of all running processes into the report of a test that failed.

    A process that ended by itself is among them until the module ends, and its log went with the folder of its test.
    """
    outcome: Any = yield
    report = outcome.get_result()
    if report.failed:
        for process in (each for each in Process.alive if each.log.exists()):
            report.sections.append((f"the end of {process.log.name}", process.text[-6000:]))
