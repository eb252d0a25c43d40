"""A real PostgreSQL, on 127.0.0.1."""

import os
import shutil
import signal
import subprocess
from collections.abc import Iterable
from contextlib import suppress
from glob import glob
from pathlib import Path
from uuid import uuid4

import psycopg

from tests.servers.process import ServerFailed, ServerProcess
from tests.servers.server import Server


def _programs() -> str | None:
    """The folder of `initdb` and `postgres`; Debian keeps them off the path."""
    found = shutil.which("initdb") or next(iter(sorted(glob("/usr/lib/postgresql/*/bin/initdb"), reverse=True)), None)
    return None if found is None else str(Path(found).resolve().parent)


def missing() -> str | None:
    """Why no PostgreSQL can be started here and what to do about it, or None if one can."""
    if _programs() is None:
        return "no real PostgreSQL: initdb is missing (on Debian: apt install postgresql)"
    return None


class PostgresServer(Server):
    """A PostgreSQL with one superuser, `tests`, who needs no password."""

    def __init__(self) -> None:
        super().__init__("postgres")
        programs, data = _programs(), str(self.folder / "data")
        # It refuses to run as root; the package has made a user for it.
        user = ["setpriv", "--reuid=postgres", "--regid=postgres", "--clear-groups"] if os.getuid() == 0 else []
        if user:
            shutil.chown(self.folder, "postgres", "postgres")
        self._initdb = [*user, f"{programs}/initdb", "-D", data, "-U", "tests", "-A", "trust", "--no-sync"]
        command = [*user, f"{programs}/postgres", "-D", data, "-p", str(self.port), "-h", "127.0.0.1"]
        command += ["-k", str(self.folder), "-F"]
        self.process = ServerProcess(command, self.folder, self._answers, patience=20)

    @property
    def url(self) -> str:
        """For SQLAlchemy."""
        return f"postgresql+psycopg://tests@127.0.0.1:{self.port}/postgres"

    def start(self) -> None:
        """Make the data folder at the first start, then run and wait until it answers."""
        if not (self.folder / "data").exists():
            done = subprocess.run(self._initdb, cwd=self.folder, capture_output=True, text=True)
            if done.returncode:
                raise ServerFailed(f"PostgreSQL's data could not be made:\n{done.stdout}{done.stderr}")
        super().start()

    @property
    def dsn(self) -> str:
        """For psycopg."""
        return self.url.replace("postgresql+psycopg", "postgresql")

    def new_database(self, name: str = "", template: str = "template1") -> str:
        """Make a database, a copy of another; its URL for SQLAlchemy."""
        name = name or f"desk_{uuid4().hex}"
        with psycopg.connect(self.dsn, autocommit=True) as connection:
            connection.execute(f"CREATE DATABASE {name} TEMPLATE {template}".encode())
        return self.url.rpartition("/")[0] + f"/{name}"

    def kill(self) -> None:
        """kill -9 of all its processes, as if the machine went down."""
        children = self._children()
        super().kill()
        _signal(children, signal.SIGKILL)

    def freeze(self) -> None:
        """SIGSTOP for it and for every session."""
        super().freeze()
        _signal(self._children(), signal.SIGSTOP)

    def thaw(self) -> None:
        """SIGCONT."""
        _signal(self._children(), signal.SIGCONT)
        super().thaw()

    def _children(self) -> list[int]:
        if not self.process.running:
            return []
        pid = self.process.pid
        return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]

    def _answers(self) -> bool:
        # Its port is open before it takes sessions.
        try:
            psycopg.connect(
                host="127.0.0.1", port=self.port, user="tests", dbname="postgres", connect_timeout=1
            ).close()
        except psycopg.OperationalError:
            return False
        return True


def _signal(pids: Iterable[int], number: int) -> None:
    for pid in pids:
        with suppress(ProcessLookupError):
            os.kill(pid, number)
