"""The network between the processes and their servers: a TCP proxy that can be cut, silent, slow and narrow.

`Network` runs it as a process of its own (`python -m tests.chaos.network NAME=PORT=TARGET …`), so that what a test does
meanwhile slows no connection. Each line of its input is `NAME WORD NUMBER`, and each is answered with a line.
"""

import asyncio
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field

from tests.servers.process import free_port

CHUNK = 65536


@dataclass
class Link:
    """One address before one server; what happens to it happens to all its connections."""

    target: int
    refuses: bool = False
    #: Seconds that each piece is late, and bytes a second that a connection carries (0: any).
    late: float = 0.0
    width: float = 0.0
    speaks: asyncio.Event = field(default_factory=asyncio.Event)
    open: set[asyncio.StreamWriter] = field(default_factory=set)

    def cut(self) -> None:
        for end in tuple(self.open):
            end.transport.abort()

    def order(self, word: str, number: float) -> None:
        """Do what a line says; `heal` ends all but a changed target."""
        match word:
            case "cut":
                self.cut()
            case "target":
                self.target = int(number)
            case "refuse":
                self.refuses = True
                self.cut()
            case "silent":
                self.speaks.clear()
            case "slow":
                self.late = number
            case "narrow":
                self.width = number
            case "heal":
                self.refuses, self.late, self.width = False, 0.0, 0.0
                self.speaks.set()

    async def accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self.refuses:
            writer.transport.abort()
            return
        try:
            far_reader, far_writer = await asyncio.open_connection("127.0.0.1", self.target)
        except OSError:
            writer.transport.abort()
            return
        self.open |= {writer, far_writer}
        await asyncio.gather(self._pump(reader, far_writer), self._pump(far_reader, writer))
        self.open -= {writer, far_writer}

    async def _pump(self, source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
        with suppress(OSError):
            while data := await source.read(CHUNK):
                if self.late or self.width:
                    await asyncio.sleep(self.late + (len(data) / self.width if self.width else 0))
                await self.speaks.wait()
                sink.write(data)
                await sink.drain()
        sink.close()


async def _serve(links: dict[str, tuple[int, int]]) -> None:
    made = {}
    for name, (port, target) in links.items():
        made[name] = link = Link(target)
        link.speaks.set()
        await asyncio.start_server(link.accept, "127.0.0.1", port)
    print("ready", flush=True)
    lines = asyncio.StreamReader()
    await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(lines), sys.stdin)
    while line := (await lines.readline()).decode():
        name, word, number = line.split()
        made[name].order(word, float(number))
        print("done", flush=True)


class Network:
    """The proxy's process, with a port for each link.

    Parameters: the names of the links.
    """

    def __init__(self, *names: str) -> None:
        self.ports = {name: free_port() for name in names}
        self._one_at_a_time = threading.Lock()

    @contextmanager
    def before(self, **targets: int) -> Iterator[None]:
        """Run it before servers on these ports, for a block."""
        words = [f"{name}={self.ports[name]}={target}" for name, target in targets.items()]
        command = [sys.executable, "-m", "tests.chaos.network", *words]
        with subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, start_new_session=True
        ) as self._process:
            try:
                assert self._answer() == "ready"
                yield
            finally:
                self._process.kill()

    def order(self, name: str, word: str, number: float = 0.0) -> None:
        """Have the link do it, and return when it is done."""
        assert self._process.stdin is not None
        with self._one_at_a_time:
            self._process.stdin.write(f"{name} {word} {number}\n")
            self._process.stdin.flush()
            assert self._answer() == "done"

    def _answer(self) -> str:
        assert self._process.stdout is not None
        return self._process.stdout.readline().strip()


if __name__ == "__main__":
    asyncio.run(_serve({name: (int(port), int(to)) for name, port, to in (word.split("=") for word in sys.argv[1:])}))
