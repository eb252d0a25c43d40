"""What a group's page says of versions: which run since when, and what was handled while they did."""

from contextlib import closing
from typing import Any

import pytest

from bridge.deadletters.db import kind_rows
from bridge.deadletters.db.database import Database
from bridge.deadletters.inspection.failure_groups import FailureGroups
from bridge.deadletters.inspection.group_details import GroupVersions, count_handled_since, find_version_starts
from bridge.handler_routes import Handler, Routes
from bridge.ledger import Ledger
from bridge.ledger.delivery_counts import CountKey, CountSeries, add_counts
from bridge.ledger.group_members import GroupMembers
from bridge.settings import EnvironmentSettings, FileSettings, Settings
from tests.desk import rows

HANDLER = "orders.handlers.charge"
HOUR, MINUTE = 3_600, 60
#: Half past an hour, and a second.
NOW = 500_000 * HOUR + 1_801


@pytest.fixture
def database(tmp_path):
    with closing(Database(f"sqlite:///{tmp_path}/desk.db")) as made:
        made.migrate()
        yield made


@pytest.fixture
def versions(database, redis_url):
    said = EnvironmentSettings(LEDGER_URL=redis_url, BRIDGE_GROUP="bridge")
    routes = Routes({HANDLER: Handler(HANDLER, ("orders",), "q", 1, 0.0)})
    return GroupVersions(Settings(FileSettings(), said, "memory://", {}), routes, database, lambda: NOW)


@pytest.fixture
def group(database):
    """Of version 1 with 3 letters two hours ago, and of version 2 with 1 letter just now."""
    with database.writing() as connection:
        old, new = (rows.kind(connection, HANDLER, version=each) for each in "12")
        for offset in range(3):
            rows.letter(connection, old, offset, failed_at=(NOW - 2 * HOUR) * 1000)
        rows.letter(connection, new, 9, failed_at=NOW * 1000)
        kind_rows.add_failure_hours(connection, {(old, NOW // HOUR - 2): 3, (new, NOW // HOUR): 1})
        id_ = rows.group_of(connection, old)
    return FailureGroups(database).one(id_)


def announce(redis_url, member, version, at):
    with closing(Ledger(redis_url, "", "bridge")) as ledger:
        state = {"handlers": [HANDLER], "handler_versions": {HANDLER: version}, "started": at, "queues": []}
        GroupMembers(ledger, "workers").announce(member, state)
        at_minute = (NOW - 5 * MINUTE) // MINUTE
        add_counts(
            ledger,
            {CountKey("orders", HANDLER, "handled", at_minute): 9, CountKey("x", HANDLER, "handled", at_minute): 7},
        )


def test_of_a_version_that_runs_alone_the_rate_is_known(versions, group, redis_url):
    announce(redis_url, "a", "2", NOW - 600)
    new, old = versions.read_versions(group)
    assert (new.version, new.workers, new.started, new.meanwhile.handled) == ("2", 1, (NOW - 600) * 1000, 9)
    assert (new.meanwhile.failed.number, new.meanwhile.share) == (1, 10.0)
    assert (old.version, old.workers, old.started, old.meanwhile) == ("1", 0, None, None)
    assert old.failed == ((NOW // HOUR - 2) * HOUR * 1000,) * 2


def test_while_two_versions_run_neither_has_a_rate(versions, group, redis_url):
    announce(redis_url, "a", "2", NOW - 600)
    announce(redis_url, "b", "1", NOW - 900)
    assert [(each.meanwhile.alone, each.meanwhile.share) for each in versions.read_versions(group)] == [
        (False, None)
    ] * 2


def test_without_redis_nothing_is_claimed(group, database):
    settings = Settings(FileSettings(), EnvironmentSettings(), "memory://", {})
    found = GroupVersions(settings, Routes({}), database, lambda: NOW).read_versions(group)
    assert [(each.version, each.letters, each.workers, each.meanwhile) for each in found] == [
        ("2", 1, None, None),
        ("1", 3, None, None),
    ]


@pytest.mark.parametrize(
    ("ago", "since", "handled"),
    [
        # By the minute: the first whole one. Minute 0 of the series is 59 minutes ago.
        (10 * MINUTE, NOW - 1 - 9 * MINUTE, 10),
        (0, NOW - 1 + MINUTE, 0),
        # By the hour: the first whole one, and a day at most.
        (3 * HOUR, NOW - 1801 - 2 * HOUR, 300),
        (9 * 24 * HOUR, NOW - 1801 - 23 * HOUR, 2400),
    ],
)
def test_what_was_handled_is_counted_from_the_first_whole_minute_or_hour(ago, since, handled):
    series = [CountSeries({"handled": (1,) * 60}, {"handled": (100,) * 24})]
    assert count_handled_since(series, (NOW - ago) * 1000, NOW) == (since * 1000, handled)


def test_a_version_came_up_with_its_first_worker():
    told: list[dict[str, Any]] = [
        {"group": "a", "started": 5.0, "handler_versions": {"h": "1", "i": ""}},
        {"group": "a", "started": 3.5, "handler_versions": {"h": "1"}},
        {"group": "b", "started": 1.0, "handler_versions": {"h": "1"}},
        {"group": "a", "handler_versions": {"h": "1"}},
    ]
    assert {name: found for name, found in find_version_starts("a", told).items() if found} == {"h": {"1": 3_500}}
