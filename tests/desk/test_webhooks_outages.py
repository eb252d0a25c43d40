"""Webhooks of real recorders: PostgreSQL is gone while events are due, and receivers hold every connection."""

from collections import Counter
from collections.abc import Iterator

import pytest

from bridge.deadletters.alarms.alarm_event import ALL
from bridge.deadletters.alarms.webhook_format import WebhookFormat
from bridge.deadletters.alarms.webhook_sender import AT_ONCE
from bridge.deadletters.alarms.webhook_service import WebhookService
from bridge.deadletters.db.database import Database
from tests.desk.recorders import bury, has, recorder
from tests.desk.webhook_sender import settings
from tests.processes import Stack, eventually, pytest_runtest_makereport, stack
from tests.servers import postgres
from tests.servers.missing import need
from tests.servers.postgres import PostgresServer
from tests.servers.receiver import HERE, Receiver, receiver

__all__ = ["pytest_runtest_makereport", "stack"]

pytestmark = [pytest.mark.timeout(300)]


@pytest.fixture
def there(stack: Stack) -> Iterator[Receiver]:
    """A receiver to which the stack's recorders may send."""
    stack.environ["DEADLETTERS_WEBHOOK_NETWORKS"] = HERE
    with receiver(stack.folder) as made:
        yield made


@pytest.fixture
def own_postgres() -> Iterator[PostgresServer]:
    """A PostgreSQL that the test may stop."""
    need(postgres.missing())
    with PostgresServer() as server:
        yield server


@pytest.mark.slow
def test_what_was_due_while_postgresql_was_gone_arrives_and_what_it_had_not_noted_twice_by_its_id(
    stack: Stack, own_postgres: PostgresServer, there: Receiver
):
    stack.environ["DEADLETTERS_DATABASE_URL"] = own_postgres.url
    stack.make_topics("orders", "orders.dlq")
    database = Database(own_postgres.url)
    database.migrate()
    hooks = WebhookService(settings(own_postgres.url), database)
    hooks.add("ops", WebhookFormat.STANDARD, ALL, there.url, "", "ann")
    there.answers(200, wait=5)
    wanted = [hooks.test("ops", "ann") for _ in range(5)]
    process = recorder(stack)
    eventually(lambda: there.got, 30)
    # The receiver has one, and whether it has taken that cannot be noted as long as the database is gone.
    own_postgres.kill()
    there.answers(200)
    process.says("sending webhooks: ")
    (under_way,) = (got.id for got in there.got)
    own_postgres.start()
    eventually(
        lambda: {each.state for each in hooks.list_webhooks(100)[0].latest} == {"sent"}, 120, "all of it is sent"
    )
    came = Counter(got.id for got in there.got)
    assert came.pop(under_way) in (1, 2)
    assert came == dict.fromkeys(set(wanted) - {under_way}, 1)
    database.close()


def test_while_receivers_hold_every_connection_letters_are_recorded(stack: Stack, there: Receiver):
    url = f"sqlite:///{stack.folder}/letters.db"
    stack.environ["DEADLETTERS_DATABASE_URL"] = url
    stack.make_topics("orders", "orders.dlq")
    database = Database(url)
    database.migrate()
    hooks = WebhookService(settings(url), database)
    # Those that are given up make room for others, so that no connection is free as long as one was not tried.
    names = [f"ops-{number:02}" for number in range(5 * AT_ONCE)]
    there.answers(200, wait=600)
    for name in names:
        hooks.add(name, WebhookFormat.STANDARD, ALL, there.url, "", "ann")
        hooks.test(name, "ann")
    recorder(stack)
    eventually(lambda: len(there.got) >= AT_ONCE, 30, "all connections are held")
    bury(stack, range(500))
    has(url, 500, 60)
    its_tests = [each for hook in hooks.list_webhooks(100) for each in hook.latest if each.type == "webhook.test"]
    assert len(its_tests) == len(names)
    assert {each.state for each in its_tests} == {"waiting"}
    assert any(not each.tries for each in its_tests)
    database.close()
