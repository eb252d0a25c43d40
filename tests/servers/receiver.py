"""A receiver of webhooks: a process of its own, that answers as it is told and notes what it got."""

import json
import ssl
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from tests.servers.process import free_port

ROOT = Path(__file__).parents[2]
#: The networks that it is in, as DEADLETTERS_WEBHOOK_NETWORKS.
HERE = "127.0.0.0/8,::1/128"


@dataclass(frozen=True)
class Got:
    """One request."""

    path: str
    headers: dict[str, str]
    raw: str

    @property
    def body(self) -> Any:
        """As JSON."""
        return json.loads(self.raw)

    @property
    def id(self) -> str:
        """By which a receiver knows it again."""
        return self.headers["webhook-id"]


class Receiver:
    """One receiver, on a port of this machine.

    Parameters:
        certificate: a file with that and its key, for TLS.
    """

    def __init__(self, folder: Path, certificate: Path | None = None) -> None:
        self.port = free_port()
        self._tls = () if certificate is None else (str(certificate),)
        self._got, self._answer = folder / f"got-{self.port}", folder / f"answer-{self.port}"
        self._got.touch()
        self.answers(200)
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        """Where it is, with a part that is a secret."""
        return f"{'https' if self._tls else 'http'}://127.0.0.1:{self.port}/hooks/T0/s3cret"

    def start(self) -> None:
        """Begin to listen."""
        files = (str(self._got), str(self._answer), *self._tls)
        command = (sys.executable, "-m", "tests.servers.receiver", str(self.port), *files)
        self._process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE)
        assert self._process.stdout is not None
        assert self._process.stdout.readline() == b"listens\n"

    def stop(self) -> None:
        """Be away."""
        if self._process is not None:
            self._process.kill()
            self._process.communicate()
            self._process = None

    def answers(self, status: int, wait: float = 0, drip: float = 0, **headers: str) -> None:
        """Answer with this from now on.

        Parameters:
            wait: seconds before it.
            drip: seconds between two of its bytes.
        """
        told = {"status": status, "wait": wait, "drip": drip, "headers": headers}
        fresh = self._answer.with_suffix(".fresh")
        fresh.write_text(json.dumps(told))
        fresh.replace(self._answer)

    @property
    def got(self) -> list[Got]:
        """What came, whatever was answered."""
        return [Got(**json.loads(line)) for line in self._got.read_text().splitlines()]


@contextmanager
def receiver(folder: Path, certificate: Path | None = None) -> Iterator[Receiver]:
    """One that listens."""
    made = Receiver(folder, certificate)
    made.start()
    try:
        yield made
    finally:
        made.stop()


class _Handler(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        raw = self.rfile.read(int(self.headers["content-length"]))
        headers = {name.lower(): value for name, value in self.headers.items()}
        with Path(sys.argv[2]).open("a") as file:
            file.write(json.dumps({"path": self.path, "headers": headers, "raw": raw.decode()}) + "\n")
        told = json.loads(Path(sys.argv[3]).read_text())
        time.sleep(told["wait"])
        head = [f"HTTP/1.1 {told['status']} So", *(f"{name}: {value}" for name, value in told["headers"].items())]
        said = "\r\n".join([*head, "content-length: 2", "connection: close", "", "ok"]).encode()
        for each in [bytes([byte]) for byte in said] if told["drip"] else [said]:
            self.wfile.write(each)
            self.wfile.flush()
            time.sleep(told["drip"])
        self.close_connection = True

    def log_message(self, format: str, *args: Any) -> None:
        """Nothing."""


if __name__ == "__main__":
    server = ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1])), _Handler)
    for file in sys.argv[4:]:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(file)
        server.socket = context.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)
    print("listens", flush=True)
    server.serve_forever()
