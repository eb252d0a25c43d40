"""A shop with all its processes, and a console that browsers open."""

import sys
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from typing import Any

from celery import Celery

from bridge.console.auth.browser_session import LOCAL_SESSION_COOKIE
from bridge.console.console import Console
from bridge.deadletters.accounts.user_account import Role
from bridge.deadletters.db.kind_rows import IdCache
from bridge.deadletters.db.letter_writer import LetterWriter
from bridge.deadletters.dead_letter_service import DeadLetterService
from bridge.deadletters.model.stored_letter import StoredLetter
from bridge.handler_routes import Handler, Routes
from bridge.settings import EnvironmentSettings, FileSettings, Settings
from tests.desk.recorders import recorder
from tests.processes import Served, Stack, eventually
from tests.servers.kafka import KafkaServer
from tests.servers.process import free_port
from tests.servers.redis import RedisServer
from tests.web.site import session

#: Handlers, and the topic of each.
HANDLERS = {
    "orders.handlers.charge": "orders",
    "orders.handlers.notify": "orders",
    "refunds.handlers.pay_back": "refunds",
}
TRANSPORT = "lossless.transport:Transport"
#: Who may sign in, by their roles; the password is tests.web.site.PASSWORD.
PEOPLE = {Role.VIEWER: "vic", Role.OPERATOR: "ann", Role.ADMIN: "ada"}


class World:
    """Kafka, Redis, a database, and processes of tests/handlers/incident.py beside them: each is started by a test.

    Attributes:
        stack: starts processes, and produces.
        desk: the desk in this process: what a test puts into its database, or reads there.
    """

    def __init__(self, stack: Stack, desk: DeadLetterService) -> None:
        self.stack, self.desk = stack, desk
        self._ids = IdCache()

    @cached_property
    def _signs_in(self) -> Console:
        return Console(self.desk, "")

    def console(self, port: int = 0, **environ: Any) -> Served:
        """`bridge deadletters serve`, once it answers.

        Parameters:
            port: on which it listens; 0: any.
        """
        port = port or free_port()
        command = (sys.executable, "-m", "bridge", "deadletters", "serve", "--port", str(port))
        served: Served = self.stack.start("console", *command, kind=Served, **environ)
        served.port = port
        eventually(lambda: served.get("/healthz")[0] == 200 or served.exit_code is not None, 40, "the console answers")
        assert served.exit_code is None, served.text
        return served

    def recorder(self) -> Served:
        """`bridge deadletters record`, once it records: what is applied in the console is done by it."""
        return recorder(self.stack)

    def record(self, letters: Iterable[StoredLetter]) -> None:
        """Put letters into the database, as the recorder does."""
        with self.desk.database.writing() as connection:
            LetterWriter(connection, self._ids, int(time.time() * 1000), 1_000_000).record(list(letters))

    def cookie(self, role: Role) -> tuple[str, str]:
        """Name and value of the cookie of somebody of a role who signs in just now."""
        return LOCAL_SESSION_COOKIE, session(self._signs_in, PEOPLE[role], role)

    def mend(self) -> None:
        """From now on handlers take what they died of."""
        Path(self.stack.environ["TEST_RUNS"] + ".mended").touch()


@contextmanager
def world(kafka: KafkaServer, redis: RedisServer, prefix: str, folder: Path, **environ: str) -> Iterator[World]:
    """One, of which nothing runs yet but the servers; what it started ends with it.

    Parameters:
        prefix: of its topics (`<prefix>.orders`, `<prefix>.refunds`); its group is called so.
        environ: of all its processes.
    """
    address, broker = kafka.bootstrap_servers, redis.fresh_url()
    said = {"BRIDGE_GROUP": prefix, "KAFKA_CLIENT_ID": prefix, **environ}
    with Stack(address, broker, prefix, folder, "tests.handlers.incident", **said) as stack:
        stack.make_topics("orders", "refunds", partitions=3)
        with _desk(stack) as desk:
            for role, name in PEOPLE.items():
                session(Console(desk, ""), name, role)
            yield World(stack, desk)


@contextmanager
def _desk(stack: Stack) -> Iterator[DeadLetterService]:
    url = stack.environ.setdefault("DEADLETTERS_DATABASE_URL", f"sqlite:///{stack.folder}/letters.db")
    said = EnvironmentSettings(BRIDGE_GROUP=stack.environ["BRIDGE_GROUP"], DEADLETTERS_DATABASE_URL=url)
    settings = Settings(FileSettings(), said, stack.broker, {"bootstrap.servers": stack.kafka})
    routes = Routes({name: Handler(name, (stack.topic(topic),), "q", 1, 0.0) for name, topic in HANDLERS.items()})
    with (
        Celery("desk", broker=stack.broker, broker_transport=TRANSPORT, set_as_current=False) as app,
        DeadLetterService.opened(app, settings, routes) as opened,
    ):
        yield opened
