"""A real redis-server with an append-only file, on 127.0.0.1."""

import itertools
import shutil
import tempfile
from pathlib import Path
from types import TracebackType
from typing import Self

import redis

from tests.servers.process import ServerProcess, free_port

_DATABASES = 4096


def missing() -> str | None:
    """Why no Redis can be started here and what to do about it, or None if one can."""
    if shutil.which("redis-server") is None:
        return "no real Redis: redis-server is missing (on Debian: apt install redis-server)"
    return None


class RedisServer:
    """A Redis of its own on a free port, in a temporary folder that goes with it.

    `stop`, `kill` and `freeze` take it away; `start` and `thaw` bring it back on the same port with the same
    data (appended to its file before every answer: `appendfsync always`). `program` is the server (Valkey's is one
    too), `settings` are further options of it, by name. Raises ServerFailed, with the end of the server's log, if
    it does not come up.
    """

    def __init__(self, program: str = "redis-server", **settings: str):
        self._folder = tempfile.TemporaryDirectory(prefix="redis-", ignore_cleanup_errors=True)
        self._port = free_port()
        self._database = itertools.count(1)
        options = {
            "bind": "127.0.0.1",
            "port": str(self._port),
            "dir": self._folder.name,
            "databases": str(_DATABASES),
            "save": "",
            "appendonly": "yes",
            "appendfsync": "always",
            "maxmemory-policy": "noeviction",
            **{name.replace("_", "-"): value for name, value in settings.items()},
        }
        command = [program, *(part for name, value in options.items() for part in (f"--{name}", value))]
        self.process = ServerProcess(command, Path(self._folder.name), self._answers, patience=20)

    @property
    def folder(self) -> Path:
        """Its working directory, with its files."""
        return Path(self._folder.name)

    @property
    def port(self) -> int:
        return self._port

    def client(self) -> "redis.Redis":
        """A client of database 0; close it."""
        return redis.Redis(port=self._port, protocol=2)

    @property
    def url(self) -> str:
        """Database 0 of it."""
        return f"redis://127.0.0.1:{self._port}/0"

    def fresh_url(self) -> str:
        """A database that nobody was given before: tests that share a Redis do not see each other."""
        return f"redis://127.0.0.1:{self._port}/{next(self._database)}"

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def start(self) -> None:
        self.process.start()

    def stop(self) -> None:
        self.process.stop()

    def kill(self) -> None:
        self.process.kill()

    def freeze(self) -> None:
        self.process.freeze()

    def thaw(self) -> None:
        self.process.thaw()

    def restart(self) -> None:
        """Stop and start, on the same port and data."""
        self.stop()
        self.start()

    def close(self) -> None:
        """End it for good and remove its data."""
        self.kill()
        self._folder.cleanup()

    def _answers(self) -> bool:
        with redis.Redis(port=self._port, socket_timeout=1) as client:
            try:
                # The process too: another server on this port would answer as well.
                return bool(client.info("server")["process_id"] == self.process.pid)
            except redis.RedisError:
                return False
