"""A server process of the tests: started, stopped, killed, frozen, and started again on its data and its port."""

import os
import random
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Sequence
from pathlib import Path


class ServerFailed(Exception):
    """A server ended, or did not answer in time; the message has the end of its log."""


def free_port() -> int:
    """Return a TCP port of 127.0.0.1 that nothing holds.

    It lies below the range from which Linux takes ports for outgoing connections (32768 and up), so that a
    server which is stopped for a while finds its port still free. No webhook is refused for it, as for one to the
    port of a Sentinel (26379) or MongoDB (27017).
    """
    for _ in range(200):
        port = random.randrange(15000, 26000)
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port
    raise ServerFailed("no free port between 15000 and 26000")


class ServerProcess:
    """One process with its log file.

    Parameters: the command, its working directory, `answers` (True once the server serves; it must return
    soon) and `patience`, the seconds within which it has to.
    """

    def __init__(self, command: Sequence[str], folder: Path, answers: Callable[[], bool], patience: float):
        self.command = list(command)
        self.folder = folder
        self.log = folder / "server.log"
        self._answers = answers
        self._patience = patience
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int:
        """The id of the running process; raises ServerFailed if there is none."""
        if self._process is None:
            raise ServerFailed(f"{self.command[0]} is not running")
        return self._process.pid

    @property
    def running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def start(self) -> None:
        """Start it and wait until it answers. Raises ServerFailed."""
        if self.running:
            raise ServerFailed(f"{self.command[0]} is running already")
        with self.log.open("ab") as log:
            # Its own session: a Ctrl-C at the terminal is for pytest, which then stops the server in order.
            self._process = subprocess.Popen(
                self.command, cwd=self.folder, stdout=log, stderr=log, start_new_session=True
            )
        try:
            self._wait_until_it_answers()
        except BaseException:
            self.kill()
            raise

    def stop(self) -> None:
        """SIGTERM, and wait for the end (with kill -9 after 30 s). Nothing happens if it is not running."""
        if self._process is None:
            return
        self.thaw()
        self._process.terminate()
        try:
            self._process.wait(30)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._process = None

    def kill(self) -> None:
        """kill -9, frozen or not. Nothing happens if it is not running."""
        if self._process is None:
            return
        self._process.kill()
        self._process.wait()
        self._process = None

    def freeze(self) -> None:
        """SIGSTOP: connections stay open and nothing answers, as with a network that swallows packets."""
        os.kill(self.pid, signal.SIGSTOP)

    def thaw(self) -> None:
        """SIGCONT."""
        if self.running:
            os.kill(self.pid, signal.SIGCONT)

    def _wait_until_it_answers(self) -> None:
        deadline = time.monotonic() + self._patience
        while time.monotonic() < deadline:
            if not self.running:
                raise ServerFailed(f"{self.command[0]} ended at its start:\n{self.log_end()}")
            if self._answers():
                return
            time.sleep(0.05)
        raise ServerFailed(f"{self.command[0]} did not answer in {self._patience} s:\n{self.log_end()}")

    def log_end(self, lines: int = 40) -> str:
        return "\n".join(self.log.read_text(errors="replace").splitlines()[-lines:])
