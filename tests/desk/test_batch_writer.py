"""Batches go into the database: what it refuses stops nothing, and what is not written is tried again whole."""

import pytest
from sqlalchemy import text

from bridge.deadletters.db import position_rows
from bridge.deadletters.db.position_rows import PositionStep, RecordedLog, RecordedPosition
from bridge.deadletters.recorder.background_duties import SideTask
from bridge.deadletters.recorder.batch_writer import REFUSED, BatchWriter, ReadRecord, WrittenBatch
from bridge.errors import DeskUnavailable, RecordedByAnother
from tests.desk.letters import letter
from tests.desk.test_letter_writer import rows, tallied

LOGS = [RecordedLog("bridge", "orders.dlq", "id", partition) for partition in range(3)]


@pytest.fixture
def writing(database):
    with database.writing() as connection:
        position_rows.move_positions(connection, [PositionStep(log, None, RecordedPosition(0, -1)) for log in LOGS], 1)
    return BatchWriter(database, 1_000)


def reads(*offsets):
    return [ReadRecord(LOGS[n % 3], n, 0, letter(n, partition=n % 3)) for n in offsets]


def begun():
    return {log: RecordedPosition(0, -1) for log in LOGS}


def at(database):
    with database.reading() as connection:
        return {
            log.partition: each.next
            for log, each in position_rows.read_positions(connection, ["bridge"], ["orders.dlq"]).items()
        }


def refuse(database, condition):
    """Have the database refuse rows, as it does those that break a rule of it."""
    with database.writing() as connection:
        if database.dialect == "sqlite":
            connection.execute(
                text(f"CREATE TRIGGER no BEFORE INSERT ON letters WHEN {condition} "
                     "BEGIN SELECT RAISE(ABORT, 'refused'); END")
            )  # fmt: skip
        else:
            connection.execute(
                text("CREATE FUNCTION no() RETURNS trigger LANGUAGE plpgsql AS "
                     "$$ BEGIN RAISE EXCEPTION 'refused' USING ERRCODE = '22000'; END $$")
            )  # fmt: skip
            connection.execute(
                text(
                    f"CREATE TRIGGER no BEFORE INSERT ON letters FOR EACH ROW WHEN ({condition}) EXECUTE FUNCTION no()"
                )
            )


def test_a_batch_is_written_with_how_far_it_comes(database, writing):
    written = writing.write(reads(*range(10)), begun())
    assert dict(written.counts) == {("orders.dlq", "new"): 10}
    assert at(database) == {0: 10, 1: 8, 2: 9}
    assert written.reached == {
        LOGS[0]: RecordedPosition(10, 0),
        LOGS[1]: RecordedPosition(8, 0),
        LOGS[2]: RecordedPosition(9, 0),
    }


def test_what_another_recorder_has_written_is_not_written_twice(database, writing):
    writing.write(reads(*range(5)), begun())
    with pytest.raises(RecordedByAnother):
        BatchWriter(database, 1_000).write([*reads(7), *reads(*range(5))], begun())
    assert sorted(row["offset"] for row in rows(database)) == list(range(5))


def test_one_record_that_the_database_refuses_stops_none_behind_it(database, writing, caplog):
    refuse(database, "new.error_message = 'bad'")
    batch = reads(*range(40))
    batch[13] = batch[13]._replace(letter=letter(13, partition=1, error_message="bad", key=b"13"))
    written = writing.write(batch, begun())
    assert dict(written.counts) == {("orders.dlq", "new"): 39, ("orders.dlq", REFUSED): 1}
    found = {row["offset"]: row for row in rows(database)}
    assert sorted(found) == list(range(40))
    assert (found[13]["key"], found[13]["value"]) == (b"13", b"{}")
    assert "refused this record" in found[13]["error_message"]
    assert "3133" not in found[13]["error_message"]
    assert "3133" not in caplog.text
    assert at(database) == {0: 40, 1: 38, 2: 39}
    assert tallied(database) == {"open": 40}


def test_what_is_refused_whole_is_left_in_kafka_and_said(database, writing, caplog):
    refuse(database, 'new."offset" = 3')
    written = writing.write(reads(*range(9)), begun())
    assert dict(written.counts) == {("orders.dlq", "new"): 8, ("orders.dlq", REFUSED): 1}
    assert at(database) == {0: 7, 1: 8, 2: 9}
    assert (
        "orders.dlq-0-3: the database refuses its bytes too: the record is not recorded, and stays in Kafka."
        in caplog.text
    )


def test_what_was_cleaned_up_meanwhile_is_made_again(database, writing):
    writing.write(reads(0, 1, 2), begun())
    with database.writing() as connection:
        for table in ("words", "letters", "tracebacks"):
            connection.execute(text(f"DELETE FROM {table}"))
    written = writing.write(reads(3, 4, 5), {log: RecordedPosition(n + 1, 0) for n, log in enumerate(LOGS)})
    assert dict(written.counts) == {("orders.dlq", "new"): 3}


def test_a_number_that_no_column_takes_is_refused_and_not_tried_for_ever(database, writing):
    batch = reads(0, 1)
    batch[1] = batch[1]._replace(letter=letter(1, partition=1, runs=2**70))
    assert writing.write(batch, begun()).counts["orders.dlq", REFUSED] == 1
    assert at(database) == {0: 1, 1: 2, 2: 0}


def test_a_disk_that_is_full_is_said_and_what_was_not_written_goes_in_when_there_is_room(database, writing):
    full(database)
    with pytest.raises(DeskUnavailable, match="make room") as refused:
        writing.write(big(), begun())
    assert type(refused.value) is DeskUnavailable
    assert (rows(database), at(database)) == ([], {0: 0, 1: 0, 2: 0})
    room(database)
    writing.write(big(), begun())
    assert len(rows(database)) == 300


def big():
    return [ReadRecord(LOGS[0], n, 0, letter(n, value=bytes(900), key=b"%d" % n)) for n in range(300)]


def full(database):
    with database.writing() as connection:
        if database.dialect == "sqlite":
            # Of each connection: the pool has one here.
            connection.execute(text("PRAGMA max_page_count = 1"))
        else:
            connection.execute(
                text("CREATE FUNCTION no() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION "
                     "'could not extend file: No space left on device' USING ERRCODE = 'disk_full'; END $$")
            )  # fmt: skip
            connection.execute(text("CREATE TRIGGER no BEFORE INSERT ON letters EXECUTE FUNCTION no()"))


def room(database):
    with database.writing() as connection:
        if database.dialect == "sqlite":
            connection.execute(text("PRAGMA max_page_count = 1000000"))
        else:
            connection.execute(text("DROP TRIGGER no ON letters"))


def test_writing_that_waits_for_a_lock_goes_on_when_it_is_free(database, writing):
    with database.writing() as connection:
        connection.execute(text("UPDATE positions SET at = 2"))
        aside: SideTask[WrittenBatch] = SideTask("writing")
        aside.begin(lambda: writing.write(reads(*range(9)), begun()))
        aside.wait(0.5)
        assert aside.taken() is None
    aside.wait(20)
    done = aside.taken()
    assert done is not None
    assert dict(done.result().counts) == {("orders.dlq", "new"): 9}
    assert len(rows(database)) == 9
