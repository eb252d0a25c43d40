"""All that the desk's chaos run works with: PostgreSQL, recorders and an operator, beside what the bridge has."""

import json
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, Final

from tests.chaos.desk.topics import TOPICS
from tests.chaos.network import Network
from tests.chaos.world import NEW_SETTINGS, SETTINGS, Pair, World, servers, watched
from tests.processes import Served
from tests.servers.kafka import KafkaServer
from tests.servers.postgres import PostgresServer
from tests.servers.process import free_port

MEMBERS: Final = ("bridge", "worker", "recorder 1", "recorder 2", "operator")


class DeskWorld(World):
    """The processes of the run; all of them reach the database by the network, the test itself beside it."""

    def __init__(
        self, kafka: KafkaServer, pair: Pair, network: Network, postgres: PostgresServer, prefix: str, folder: Path
    ) -> None:
        super().__init__(kafka, pair, network, prefix, folder, topics=TOPICS, handlers="tests.handlers.curable")
        self.postgres = postgres
        self.environ["DEADLETTERS_DATABASE_URL"] = (
            f"postgresql+psycopg://tests@127.0.0.1:{network.ports['postgres']}/postgres"
        )
        # The largest values are read from Kafka again when they are sent back.
        settings = {**SETTINGS, **NEW_SETTINGS, "kafka_deadletters_largest_value": 100_000}
        self.environ["TEST_SETTINGS"] = json.dumps(settings)
        # Bridge and recorders join by the new protocol here (KIP-848); those of most other tests by the classic one.
        self.environ["KAFKA_GROUP_PROTOCOL"] = "consumer"
        self._operators = 0

    def start_member(self, name: str, clock: float = 0.0) -> None:
        """Start a process in the place of this name."""
        if name.startswith("recorder"):
            self.members[name] = self._recorder()
        elif name == "operator":
            self.members[name] = self._operator()
        else:
            super().start_member(name, clock)

    def _recorder(self) -> Served:
        port = str(free_port())
        return self._started("recorder", "-m", "bridge", "deadletters", "record", DEADLETTERS_HTTP_PORT=port)

    def _operator(self) -> Served:
        self._operators += 1
        return self._started("operator", "-m", "tests.chaos.desk.operator", str(self._operators))

    def _started(self, name: str, *words: str, **environ: Any) -> Served:
        found: Any = self.start(name, sys.executable, *words, kind=Served, **environ)
        assert isinstance(found, Served)
        return found


@contextmanager
def desk_world(prefix: str, folder: Path) -> Iterator[DeskWorld]:
    """Servers, network and topics; nothing that uses them yet."""
    with ExitStack() as block:
        postgres = block.enter_context(PostgresServer())
        kafka, pair, network = servers(block, postgres=postgres.port)
        made = block.enter_context(DeskWorld(kafka, pair, network, postgres, prefix, folder))
        made.make_sources()
        watched(block, made)
        yield made
