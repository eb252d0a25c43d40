"""What the servers of the tests have in common."""

import tempfile
from pathlib import Path
from types import TracebackType
from typing import Self

from tests.servers.process import ServerProcess, free_port


class Server:
    """A server of its own on a free port of 127.0.0.1, in a temporary folder that goes with it.

    `stop`, `kill` and `freeze` take it away; `start` and `thaw` bring it back on the same port with the same
    data. Heirs set `process`. Raises ServerFailed, with the end of the server's log, if it does not come up.
    """

    process: ServerProcess

    def __init__(self, name: str) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix=f"{name}-", ignore_cleanup_errors=True)
        self.folder = Path(self._folder.name)
        self.port = free_port()

    def __enter__(self) -> Self:
        try:
            self.start()
        except BaseException:
            self.close()  # Nobody else does: a server that did not start is given to nobody.
            raise
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
