"""The test suites of kombu and Celery, from their source distributions, over this transport or kombu's own."""

import json
import os
import subprocess
import sys
import tarfile
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path
from tempfile import mkdtemp

from tests.project_process import ROOT
from tests.servers.redis import RedisServer


class Unfetched(Exception):
    """The source distribution could not be fetched."""


def fetch(package: str, folder: Path) -> Path:
    """Fetch the source distribution of the installed version; return the folder with its tests, and not its code.

    Raises `Unfetched` where the package index cannot be reached.
    """
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--no-binary", ":all:",
               "--no-build-isolation", "--dest", str(folder), f"{package}=={version(package)}"]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True, timeout=180, check=False)
    if done.returncode:
        raise Unfetched(f"the source distribution of {package} could not be fetched: {done.stderr.strip()[-500:]}")
    (archive,) = folder.glob(f"{package}-*.tar.gz")
    with tarfile.open(archive) as tar:
        tar.extractall(folder, filter="data")
    (unpacked,) = (path for path in folder.glob(f"{package}-*") if path.is_dir())
    (unpacked / package).rename(unpacked / "not-this")  # the installed one is tested
    return unpacked


@dataclass
class Outcomes:
    """What came of each test: "passed", "failed" or "skipped", and why it failed."""

    of: dict[str, str] = field(default_factory=dict)
    why: dict[str, str] = field(default_factory=dict)

    def read(self, file: Path) -> None:
        """Take over what a run has recorded; the worst of a test's reports counts."""
        for line in file.read_text().splitlines():
            test, outcome, why = json.loads(line)
            if outcome == "failed":
                self.why[test] = why
            if self.of.get(test, "passed") == "passed":
                self.of[test] = outcome


@dataclass(frozen=True)
class Suite:
    """A part of a suite: its folder, pytest's configuration file there, what to run of it, and seconds for it all."""

    folder: Path
    config: str
    select: tuple[str, ...]
    seconds: float

    def start(self, stack: ExitStack, *, lossless: bool, record: Path) -> "subprocess.Popen[bytes]":
        """Start it on a Redis of its own; stop both with `stack`."""
        server = stack.enter_context(RedisServer(appendfsync="everysec"))
        port = server.url.rpartition(":")[2].partition("/")[0]
        environ = {
            **{name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")},
            "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
            "PYTHONPATH": str(ROOT),
            "REDIS_HOST": "127.0.0.1",
            "REDIS_6379_TCP": port,
            "REDIS_PORT": port,
            "TEST_BROKER": f"redis://127.0.0.1:{port}/0",
            "TEST_BACKEND": f"redis://127.0.0.1:{port}/1",
            "OVER_LOSSLESS": "yes" if lossless else "no",
            "RECORD_TO": str(record),
            "RECORD_SECONDS": str(self.seconds),
        }
        record.touch()
        command = [sys.executable, "-m", "pytest", "-c", self.config, "--rootdir", ".",
                   "-p", "tests.lossless.foreign_suite_plugin", "-p", "no:cacheprovider",
                   "-W", "ignore", "-q", *self.select]  # fmt: skip
        log = stack.enter_context(record.with_suffix(".log").open("wb"))
        process = subprocess.Popen(
            command, cwd=self.folder, env=environ, stdout=log, stderr=log, start_new_session=True
        )
        stack.callback(_kill, process)
        return process


def side_by_side(suites: list[Suite], folder: Path) -> tuple[Outcomes, Outcomes]:
    """Run suites at the same time over kombu's own transport and over this one; return what came of each test."""
    with ExitStack() as stack:
        runs = []
        for number, suite in enumerate(suites):
            for lossless in (False, True):
                record = Path(mkdtemp(dir=folder)) / f"{number}-{'lossless' if lossless else 'kombu'}.jsonl"
                runs.append((suite, lossless, record, suite.start(stack, lossless=lossless, record=record)))
        plain, ours = Outcomes(), Outcomes()
        for suite, lossless, record, process in runs:
            try:
                process.wait(suite.seconds + 60)
            except subprocess.TimeoutExpired:
                process.kill()
            (ours if lossless else plain).read(record)
    return plain, ours


def _kill(process: "subprocess.Popen[bytes]") -> None:
    with suppress(ProcessLookupError):
        os.killpg(process.pid, 9)
    process.wait()
