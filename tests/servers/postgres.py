"""A real PostgreSQL, on 127.0.0.1."""

import os
import shutil
import socket
import subprocess
import tempfile
from glob import glob
from pathlib import Path
from typing import Self

from tests.servers.process import ServerProcess, free_port


def _programs() -> str | None:
    """The folder of `initdb` and `postgres`; Debian keeps them off the path."""
    found = shutil.which("initdb") or next(iter(sorted(glob("/usr/lib/postgresql/*/bin/initdb"), reverse=True)), None)
    return None if found is None else str(Path(found).resolve().parent)


def missing() -> str | None:
    """Why no PostgreSQL can be started here and what to do about it, or None if one can."""
    if _programs() is None:
        return "no real PostgreSQL: initdb is missing (on Debian: apt install postgresql)"
    return None


class PostgresServer:
    """A PostgreSQL of its own on a free port, in a temporary folder that goes with it.

    Raises ServerFailed, with the end of the server's log, if it does not come up.
    """

    def __init__(self) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="postgres-", ignore_cleanup_errors=True)
        self._port = free_port()
        programs = _programs()
        # It refuses to run as root; the package has made a user for it.
        self._user = ["setpriv", "--reuid=postgres", "--regid=postgres", "--clear-groups"] if os.getuid() == 0 else []
        if self._user:
            shutil.chown(self._folder.name, "postgres", "postgres")
        self._data = f"{self._folder.name}/data"
        self._initdb = [*self._user, f"{programs}/initdb", "-D", self._data, "-U", "tests", "-A", "trust", "--no-sync"]
        command = [*self._user, f"{programs}/postgres", "-D", self._data, "-p", str(self._port), "-F"]
        command += ["-k", self._folder.name, "-h", "127.0.0.1"]
        self.process = ServerProcess(command, Path(self._folder.name), self._answers, patience=20)

    @property
    def url(self) -> str:
        """For SQLAlchemy."""
        return f"postgresql+psycopg://tests@127.0.0.1:{self._port}/postgres"

    def __enter__(self) -> Self:
        subprocess.run(self._initdb, cwd=self._folder.name, check=True, capture_output=True)
        self.process.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self._folder.cleanup()

    def _answers(self) -> bool:
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", self._port)) == 0
