"""What `bridge status` says of the desk: letters that were missed, a recorder that is behind, groups that grow."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from sqlalchemy import text

from bridge.deadletters.alarms import dead_letter_problems
from bridge.deadletters.alarms.dead_letter_problems import (
    find_dead_letter_problems,
    find_growing_groups,
    find_missed_letters,
)
from bridge.deadletters.db import kind_rows, position_rows, schema_migration
from bridge.deadletters.db.position_rows import PositionState, PositionStep, RecordedLog, RecordedPosition
from bridge.deadletters.inspection.failure_groups import FailureGroups
from bridge.deadletters.inspection.recorder_presence import RecorderPresence, find_recording_lag
from bridge.deadletters.model.failure_growth import HOUR
from bridge.handler_routes import Routes
from bridge.kafka.partition_offsets import ExtentReader
from bridge.settings import Settings
from bridge.settings.setting_defaults import EnvironmentSettings, FileSettings
from tests.delivery_checks import json_of
from tests.desk import rows
from tests.desk.recorders import bury, has, recorder
from tests.processes import ROOT, Stack, pytest_runtest_makereport, stack

__all__ = ["pytest_runtest_makereport", "stack"]

NOW = 500_000 * HOUR / 1000 + 1_800


def stood(topic: str, partition: int, next: int, missed: int = 0, missed_at: int | None = None) -> PositionState:
    return PositionState("bridge", topic, "id", partition, next, int(NOW * 1000) - 60_000, missed, missed_at)


def settings(url: str) -> Settings:
    return Settings(FileSettings(), EnvironmentSettings(DEADLETTERS_DATABASE_URL=url), "memory://", {})


def test_a_recorder_that_has_all_is_not_behind():
    assert [*find_recording_lag([stood("orders.dlq", 0, 12)], {("orders.dlq", 0): 12}, NOW)] == []


def test_what_is_not_recorded_is_said_by_topic_with_since_when_and_what_to_do():
    ends = {("orders.dlq", 0): 12, ("orders.dlq", 1): 5, ("mails.dlq", 0): 1}
    mails, orders = find_recording_lag([stood("orders.dlq", 0, 2)], ends, NOW)
    assert mails.startswith("1 record of mails.dlq is not in the dead letters' database yet, and none ever was")
    assert "15 records of orders.dlq" in orders
    assert "(1 min)" in orders
    assert "start `bridge deadletters record`" in orders


def test_letters_that_were_missed_are_said_for_a_day():
    late = stood("orders.dlq", 0, 5, missed=3, missed_at=int((NOW - 90_000) * 1000))
    now = stood("orders.dlq", 1, 5, missed=3, missed_at=int((NOW - 60) * 1000))
    (said,) = find_missed_letters([late, now, stood("orders.dlq", 2, 1)], NOW)
    assert said.startswith("3 records of orders.dlq-1 were dropped by Kafka before they were recorded, found 2027-")
    assert "retention.ms" in said


def test_groups_that_grow_are_said_and_of_many_the_rest_is_counted(database):
    with database.writing() as connection:
        for number in range(7):
            kind = rows.kind(connection, place=f"orders/bank.py:step{number}")
            rows.letter(connection, kind, number)
            kind_rows.add_failure_hours(connection, {(kind, 500_000): 20 + number})
    said = [*find_growing_groups(FailureGroups(database, lambda: NOW).all(), NOW)]
    assert len(said) == 6
    assert said[0].startswith(
        "26 dead letters of orders.handlers.charge, builtins.ValueError, orders/bank.py:step6, since"
    )
    assert "0 an hour were usual, 1 are open. `bridge deadletters list --group 7`" in said[0]
    assert said[-1].startswith("2 more groups of dead letters grow, the first since ")
    assert said[-1].endswith(": `bridge deadletters groups` lists them.")
    assert said[-1].since is not None


def test_what_was_missed_is_noted_with_when(database):
    log = RecordedLog("bridge", "orders.dlq", "id", 0)
    with database.writing() as connection:
        position_rows.move_positions(connection, [PositionStep(log, None, RecordedPosition(5, -1))], 1)
        assert [(each.missed, each.missed_at) for each in position_rows.read_position_states(connection, "bridge")] == [
            (0, None)
        ]
        position_rows.move_positions(connection, [PositionStep(log, 5, RecordedPosition(9, -1), missed=3)], 2)
        position_rows.move_positions(connection, [PositionStep(log, 9, RecordedPosition(10, -1))], 3)
        assert [
            (each.missed, each.missed_at, each.at) for each in position_rows.read_position_states(connection, "bridge")
        ] == [(3, 2, 3)]


def test_a_desk_that_was_never_used_is_no_problem_and_is_not_made(tmp_path: Path):
    assert find_dead_letter_problems(settings(f"sqlite:///{tmp_path}/letters.db"), Routes({})) == []
    assert [*tmp_path.iterdir()] == []


@pytest.mark.slow
def test_a_database_that_somebody_has_open_is_asked_and_stays_open(database, tmp_path: Path):
    nowhere = settings(f"sqlite:///{tmp_path}/none.db")
    with database.writing() as connection:
        kind = rows.kind(connection)
        rows.letter(connection, kind, 1)
        kind_rows.add_failure_hours(connection, {(kind, int(NOW // 3600)): 30})
    (grows,) = (
        str(each)
        for each in find_dead_letter_problems(nowhere, Routes({}), lambda: NOW, database)
        if "an hour were usual" in each
    )
    assert grows.startswith("30 dead letters of orders.handlers.charge")
    assert database.step == schema_migration.find_newest_step()
    assert not (tmp_path / "none.db").exists()


def test_a_database_of_an_older_step_is_said_and_left_as_it_is(database, database_url):
    with database.writing() as connection:
        schema_migration.migrate_tables(connection, "0001")
    (said,) = find_dead_letter_problems(settings(database_url), Routes({}))
    assert f"at step 0001, and this version needs {schema_migration.find_newest_step()}" in said
    assert "bridge deadletters migrate" in said
    with database.reading() as connection:
        assert schema_migration.read_step(connection) == "0001"


def test_a_database_in_which_a_newer_version_has_been_is_said(database, database_url):
    with database.writing() as connection:
        connection.execute(text(f"UPDATE {schema_migration.VERSION_TABLE} SET version_num = '9999'"))
    (said,) = find_dead_letter_problems(settings(database_url), Routes({}))
    assert "at step 9999, which this version does not know" in said


def test_a_database_without_tables_of_the_desk_is_no_problem(new_database):
    assert find_dead_letter_problems(settings(new_database()), Routes({})) == []


def test_a_database_that_is_away_is_one_sentence():
    (said,) = find_dead_letter_problems(settings("postgresql://me:s3cret@127.0.0.1:1/letters"), Routes({}))
    assert "DEADLETTERS_DATABASE_URL" in said
    assert "s3cret" not in said


def test_status_says_what_is_not_recorded_as_long_as_it_is_not(stack: Stack, database_url: str):
    stack.environ["DEADLETTERS_DATABASE_URL"] = database_url
    stack.make_topics("orders", "orders.dlq")
    bury(stack, range(3))
    recorder(stack, "--once", wait=False).ends(40)
    has(database_url, 3)
    assert said_of_the_desk(stack) == []
    bury(stack, range(3, 5))
    (said,) = said_of_the_desk(stack)
    assert said.startswith(
        f"2 records of {stack.topic('orders')}.dlq are not in the dead letters' database yet, none since"
    )
    recorder(stack)
    has(database_url, 5)
    assert said_of_the_desk(stack) == []


def said_of_the_desk(stack: Stack) -> list[str]:
    return [each for each in json_of(stack, "status")["problems"] if "database" in each or "record`" in each]


def test_a_kafka_that_did_not_answer_the_status_is_not_asked_again(
    database, database_url: str, monkeypatch: pytest.MonkeyPatch
):
    asked: list[object] = []

    def read(_: ExtentReader, __: Settings, topics: object) -> list[object]:
        asked.append(topics)
        return []

    monkeypatch.setattr(ExtentReader, "read", read)
    monkeypatch.setattr(dead_letter_problems, "read_recorder_presence", lambda _: RecorderPresence(NOW - 60))
    for answers in (True, False):
        (said,) = find_dead_letter_problems(settings(database_url), Routes({}), lambda: NOW, kafka_answers=answers)
        assert said.startswith("No recorder of dead letters runs, since")
        assert len(asked) == 1


def test_the_status_loads_no_database_library_if_nothing_was_recorded(tmp_path: Path):
    program = """
import sys
from bridge.cli.inspection_commands import list_desk_problems
from bridge.handler_routes import Routes
from bridge.settings import Settings, EnvironmentSettings, FileSettings
print(list_desk_problems(Settings(FileSettings(), EnvironmentSettings(), "memory://", {}), Routes({})))
print([name for name in ("sqlalchemy", "alembic") if name in sys.modules])
"""
    done = subprocess.run(
        [sys.executable, "-c", program],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.stdout == "[]\n[]\n", done.stderr


@pytest.mark.parametrize("gone", ["sqlalchemy", "alembic"])
def test_without_the_extra_the_status_says_nothing_of_a_desk(gone: str):
    program = (
        f"import sys; sys.modules[{gone!r}] = None; "
        "from bridge.cli.inspection_commands import list_desk_problems as desk_problems; print(desk_problems(None, "
        "None))"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, timeout=60, check=False
    )
    assert done.stdout == "[]\n", done.stderr
