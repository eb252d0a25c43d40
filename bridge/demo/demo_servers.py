"""The demo's servers and processes: an embedded Kafka and Redis, a Celery worker, and a bridge."""

import os
import re
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from importlib.util import find_spec
from pathlib import Path
from types import TracebackType
from typing import Final, Self

import bridge
from bridge.demo.demo_orders import HANDLERS_MODULE
from bridge.embedded import EmbeddedKafka, EmbeddedRedis

#: The worker's processes that run handlers: most of them only wait for a bank.
CONCURRENCY: Final = 4
#: Seconds that a process may take to stop before it is killed; the longest handler takes three.
STOP_WITHIN: Final = 8.0
#: The settings of the demo's processes: short waits go through retry topics, so that they can be watched.
SETTINGS: Final = "kafka_park_after = 2\nkafka_retry_tiers = (2,)\n"
SETTINGS_MODULE: Final = "bridge_demo_settings"
#: Whether the dead-letter store is installed: the extra `deadletters`.
DESK: Final = all(find_spec(library) is not None for library in ("sqlalchemy", "alembic", "jsonpatch"))
#: Whether the console is installed: the extra `console`.
CONSOLE: Final = DESK and all(
    find_spec(library) is not None for library in ("starlette", "jinja2", "uvicorn", "argon2")
)
#: The sign-in link in the console's log.
_LINK: Final = re.compile(r"http://\S+/sign-in/[\w-]+")
#: The signals that stop the demo.
STOP_SIGNALS: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
#: Prefixes of variables for a real bridge, which would turn the demo against a real Kafka.
_NOT_INHERITED: Final = (
    "KAFKA_",
    "CELERY_",
    "BRIDGE_",
    "LEDGER_",
    "WORKER_",
    "DEADLETTERS_",
    "HANDLERS",
    "PROMETHEUS_",
)


class DemoServers:
    """The servers and processes beside the demo; they end with it.

    Parameters:
        hurry: returns whether to kill instead of waiting (a second Ctrl-C).

    Attributes:
        logs: the folder with the logs of worker and bridge.
    """

    def __init__(self, hurry: Callable[[], bool]) -> None:
        self._hurry = hurry
        self._open = ExitStack()
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        self._kafka, self._redis = EmbeddedKafka(), EmbeddedRedis()
        self.worker_port = _free_port()
        self._logs_wanted = False
        self.logs = Path()

    @property
    def bridge(self) -> Path:
        """Return the command that runs `bridge` with the demo's addresses."""
        return self.logs / "bridge"

    @property
    def bootstrap_servers(self) -> str:
        """Return the address of the embedded Kafka."""
        return self._kafka.bootstrap_servers

    @property
    def redis_url(self) -> str:
        """Return the URL of the embedded Redis."""
        return self._redis.url

    def __enter__(self) -> Self:
        with self._open:
            self.logs = Path(tempfile.mkdtemp(prefix="bridge-demo-"))
            self._open.callback(self._remove_logs_unless_wanted)
            (self.logs / f"{SETTINGS_MODULE}.py").write_text(SETTINGS)
            with _blocked(*STOP_SIGNALS):
                # The mock cluster's thread ends at an interrupted system call; it inherits the blocked signals.
                self._open.enter_context(self._kafka)
            with _blocked(signal.SIGINT):
                # A Ctrl-C goes to every process of the terminal. Redis must outlive the worker, which stops in order.
                self._open.enter_context(self._redis)
            self._open.callback(self._stop_processes)
            self._open = self._open.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._open.close()

    def start_processes(self, *, console: bool) -> None:
        """Start a worker and a bridge like a user, but with the demo's addresses.

        Parameters:
            console: whether to start the console, for a user who stays.
        """
        worker = f"celery -A tasks worker --concurrency {CONCURRENCY} --task-events --loglevel INFO"
        self._start("worker", worker)
        self._start("bridge", "bridge run --record" if DESK else "bridge")
        self._write_command()
        if CONSOLE and console:
            self._start("console", f"bridge deadletters serve --port {_free_port()}")

    def console_link(self) -> str | None:
        """Return the link that signs in to the console, once; `None` if there is no console, or not yet."""
        if "console" not in self._processes:
            return None
        found = _LINK.search((self.logs / "console.log").read_text(errors="replace"))
        return found[0] if found else None

    def ended(self) -> str | None:
        """Return the name of a process that has ended by itself, which none should."""
        return next((name for name, process in self._processes.items() if process.poll() is not None), None)

    def log_end(self, name: str, lines: int = 12) -> str:
        """Return the last lines of a process's log."""
        text = (self.logs / f"{name}.log").read_text(errors="replace")
        return "\n".join(text.splitlines()[-lines:])

    def keep_logs(self) -> None:
        """Keep the logs, because something went wrong."""
        self._logs_wanted = True

    def _remove_logs_unless_wanted(self) -> None:
        if not self._logs_wanted:
            shutil.rmtree(self.logs, ignore_errors=True)

    def _start(self, name: str, command: str) -> None:
        with (self.logs / f"{name}.log").open("wb") as log:
            # A separate session: Ctrl-C is for the demo, which then stops this process with its children.
            self._processes[name] = subprocess.Popen(
                [sys.executable, "-m", *command.split()],
                cwd=self.logs,
                env=self._environment(),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def _write_command(self) -> None:
        """Write the command that runs `bridge` with the demo's addresses."""
        said = [f"{name}={shlex.quote(value)}" for name, value in self._settings().items()]
        command = shlex.join([sys.executable, "-m", "bridge"])
        self.bridge.write_text(
            f'#!/bin/sh\ncd {shlex.quote(str(self.logs))}\nexec env {" ".join(said)} {command} "$@"\n'
        )
        self.bridge.chmod(0o700)

    def _environment(self) -> Mapping[str, str]:
        inherited = {name: value for name, value in os.environ.items() if not name.startswith(_NOT_INHERITED)}
        return {**inherited, **self._settings()}

    def _settings(self) -> dict[str, str]:
        return {
            **_import_path(),
            "KAFKA_BOOTSTRAP_SERVERS": self.bootstrap_servers,
            "CELERY_BROKER_URL": self.redis_url,
            "HANDLERS": HANDLERS_MODULE,
            "CELERY_CONFIG_MODULE": SETTINGS_MODULE,
            "BRIDGE_HTTP_PORT": "0",
            "DEADLETTERS_DATABASE_URL": f"sqlite:///{self.logs}/deadletters.db",
            "DEADLETTERS_CONSOLE_COMMAND": str(self.bridge),
            "WORKER_METRICS_PORT": str(self.worker_port),
            "PYTHONUNBUFFERED": "1",
            # The leftovers of a killed worker are deleted with the logs.
            "TMPDIR": str(self.logs),
        }

    def _stop_processes(self) -> None:
        """Stop the bridge first, so that the worker gets nothing new while it finishes."""
        deadline = time.monotonic() + STOP_WITHIN
        for name in ("bridge", "worker", "console"):
            process = self._processes.get(name)
            if process is None:
                continue
            process.terminate()
            while process.poll() is None and time.monotonic() < deadline and not self._hurry():
                time.sleep(0.05)
            _kill_session(process)


@contextmanager
def _blocked(*signals: signal.Signals) -> Iterator[None]:
    """Block signals meanwhile; threads and processes that start then never get them."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, signals)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _kill_session(process: "subprocess.Popen[bytes]") -> None:
    """Kill a process with its children, if any are left."""
    # Usually nobody is left, which macOS reports with a PermissionError.
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def _import_path() -> dict[str, str]:
    """Return the import path for processes in another folder, if this runs from a checkout."""
    root = Path(bridge.__file__).parents[1]
    if not (root / "pyproject.toml").is_file():
        return {}
    return {"PYTHONPATH": os.pathsep.join(filter(None, (str(root), os.environ.get("PYTHONPATH"))))}


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
