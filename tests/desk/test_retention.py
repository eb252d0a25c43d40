"""Retention: which letters are deleted or stay, and what a crash between the archive and the database leaves."""

import gzip
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from sqlalchemy import func, select

from bridge.deadletters.db import audit_rows, inflight_delivery_rows, plan_item_rows, plan_rows
from bridge.deadletters.db.database import Database
from bridge.deadletters.db.letter_rows import purge_letters
from bridge.deadletters.db.plan_item_rows import LogPosition, PlanItem, SentRecord
from bridge.deadletters.db.table_definitions import letters
from bridge.deadletters.model.bulk_plan import PlanItemState, PlanKind, PlanOptions
from bridge.deadletters.model.stored_letter import LetterStatus
from bridge.deadletters.recorder import retention
from bridge.deadletters.recorder.retention import AT_ONCE, DAY, LetterArchive, purge_ended_letters
from bridge.errors import NotArchived
from tests.desk import rows

NOW = 1_800_000_000.0
LONG_AGO = int(NOW * 1000) - 31 * DAY
JUST_NOW = int(NOW * 1000) - 29 * DAY


def now() -> float:
    return NOW


@pytest.fixture
def one_of_each(database: Database) -> Database:
    """A letter of each status, of long ago and of lately."""
    with database.writing() as connection:
        kind = rows.kind(connection)
        for offset, status in enumerate(LetterStatus):
            for age, at in enumerate((LONG_AGO, JUST_NOW)):
                rows.letter(connection, kind, 10 * age + offset, status, status_at=at)
    return database


def left(database: Database) -> set[tuple[str, bool]]:
    with database.reading() as connection:
        return {(row.status, row.status_at == LONG_AGO) for row in connection.execute(select(letters))}


def lines(folder: Path) -> list[dict[str, object]]:
    files = sorted(folder.iterdir())
    return [json.loads(each) for file in files for each in gzip.decompress(file.read_bytes()).splitlines()]


LATELY = {(str(status), False) for status in LetterStatus}


def test_what_ended_long_ago_goes_and_what_is_open_or_on_its_way_never_does(one_of_each, tmp_path):
    assert purge_ended_letters(one_of_each, 30, str(tmp_path / "a" / "b"), now) == 3
    assert left(one_of_each) == LATELY | {("open", True), ("replaying", True)}
    assert {each["status"] for each in lines(tmp_path / "a" / "b")} == {"resolved", "discarded", "archived"}


def test_a_letter_of_which_another_handlers_delivery_is_on_its_way_stays_until_that_has_ended(one_of_each):
    with one_of_each.writing() as connection:
        asked = select(letters.c.id).where(letters.c.status == "resolved", letters.c.status_at == LONG_AGO)
        id_ = connection.execute(asked).scalar_one()
        plan_id, _ = plan_rows.add_plan(connection, PlanKind.REPLAY, "ann", "", {}, PlanOptions(all_handlers=True))
        plan_item_rows.add_items(
            connection, plan_id, [PlanItem(1, id_, "orders-0-2:orders.handlers.notify", 1)], canary=False
        )
        plan_item_rows.claim_items(connection, plan_id, {1: None}, 1)
        plan_item_rows.note_sent_records(connection, plan_id, [SentRecord(1, 7, LogPosition("orders.replay", 0, 0))], 1)
    assert purge_ended_letters(one_of_each, 30, None, now) == 2
    with one_of_each.writing() as connection:
        assert purge_letters(connection, [id_], LONG_AGO + 1) == 0
        (other,) = inflight_delivery_rows.read_other_deliveries(connection, plan_id, 0, 10)
        inflight_delivery_rows.end_other_deliveries(connection, [other], PlanItemState.DONE, 1)
    assert purge_ended_letters(one_of_each, 30, None, now) == 1


def test_without_an_archive_it_goes_to_nothing(one_of_each):
    assert purge_ended_letters(one_of_each, 30, None, now) == 3
    assert left(one_of_each) == LATELY | {("open", True), ("replaying", True)}


def test_the_counts_follow(one_of_each):
    purge_ended_letters(one_of_each, 30, None, now)
    with one_of_each.reading() as connection:
        counted = rows.counted(connection, rows.kind(connection))
    assert counted == {"open": 2, "replaying": 2, "resolved": 1, "discarded": 1, "archived": 1}


def test_who_did_what_is_kept_when_the_letter_goes(one_of_each):
    with one_of_each.writing() as connection:
        gone = connection.execute(select(letters.c.id).where(letters.c.status == "discarded")).scalars().first()
        audit_rows.write_entry(
            connection, 1, "ann", "discard", "a test order", letter_id=gone, letter="orders-0-3:charge"
        )
    purge_ended_letters(one_of_each, 1, None, now)
    with one_of_each.reading() as connection:
        assert [(each.by, each.letter) for each in audit_rows.read_history(connection)] == [
            ("ann", "orders-0-3:charge")
        ]


def test_more_than_fit_a_transaction_go_into_one_file_in_parts(database, tmp_path):
    with database.writing() as connection:
        kind = rows.kind(connection)
        for offset in range(2 * AT_ONCE + 1):
            rows.letter(connection, kind, offset, LetterStatus.RESOLVED, status_at=LONG_AGO)
    folder = tmp_path / "archive"
    assert purge_ended_letters(database, 30, str(folder), now) == 2 * AT_ONCE + 1
    assert len(lines(folder)) == 2 * AT_ONCE + 1
    assert len(list(folder.iterdir())) == 1


def test_what_finds_nothing_makes_no_file(database, tmp_path):
    assert purge_ended_letters(database, 30, str(tmp_path / "archive"), now) == 0
    assert not (tmp_path / "archive").exists()


def test_who_is_stopped_leaves_the_rest_for_later(one_of_each):
    assert purge_ended_letters(one_of_each, 30, None, now, stopped=lambda: True) == 0


def test_one_that_died_again_meanwhile_stays(one_of_each, tmp_path, monkeypatch):
    def late(connection, ids, before):
        connection.execute(letters.update().where(letters.c.status == "resolved").values(status="open"))
        return purge_letters(connection, ids, before)

    monkeypatch.setattr(retention, "purge_letters", late)
    assert purge_ended_letters(one_of_each, 30, str(tmp_path / "archive"), now) == 2
    with one_of_each.reading() as connection:
        statement = select(func.count()).where(letters.c.status == "open")
        assert connection.execute(statement).scalar_one() == 4


#: Cleans up, and is killed at one point.
KILLED = """
import os, signal, sys
from bridge.deadletters.recorder import retention
from bridge.deadletters.db.database import Database

def kill(*_):
    os.kill(os.getpid(), signal.SIGKILL)

def torn(file, data):
    os.pwrite(file, bytes(data)[:20], 0)
    kill()

url, folder, point = sys.argv[1:]
if point == "before the archive":
    retention.LetterArchive.write = kill
elif point == "within a part":
    os.write = torn
elif point == "before the deletion":
    retention.purge_letters = kill
elif point == "before its commit":
    purge_letters = retention.purge_letters
    retention.purge_letters = lambda *given: (purge_letters(*given), kill())
else:
    finders = iter([retention.find_letters_ended_before])
    retention.find_letters_ended_before = lambda *given: next(finders, kill)(*given)
retention.purge_ended_letters(Database(url), 30, folder, lambda: 1_800_000_000.0)
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    "point", ["before the archive", "within a part", "before the deletion", "before its commit", "after its commit"]
)
def test_a_kill_between_two_steps_repeats_and_loses_nothing(one_of_each, database_url, tmp_path, point):
    first, second = tmp_path / "first", tmp_path / "second"
    command = [sys.executable, "-c", KILLED, database_url, str(first), point]
    assert subprocess.run(command, check=False).returncode == -signal.SIGKILL
    assert purge_ended_letters(one_of_each, 30, str(second), now) == (0 if point == "after its commit" else 3)
    assert len(lines(first if point == "after its commit" else second)) == 3
    assert left(one_of_each) == LATELY | {("open", True), ("replaying", True)}


def test_an_archive_that_cannot_be_written_is_said_and_nothing_goes(one_of_each, tmp_path):
    (tmp_path / "archive").write_text("a file, and no folder")
    with pytest.raises(NotArchived, match="kafka_deadletters_archive"):
        purge_ended_letters(one_of_each, 30, str(tmp_path / "archive"), now)
    assert len(left(one_of_each)) == 10


def test_half_a_part_is_taken_back_so_that_the_next_try_can_be_read(tmp_path, monkeypatch):
    with LetterArchive(str(tmp_path), NOW) as kept:
        kept.write(["{}"])

        def full(file: int, data: bytes) -> int:
            os.pwrite(file, bytes(data)[:10], os.fstat(file).st_size)
            raise OSError(28, "No space left on device")

        with monkeypatch.context() as patched:
            patched.setattr(os, "write", full)
            with pytest.raises(NotArchived, match="No space left"):
                kept.write(["[]"])
        kept.write(["[1]"])
    assert gzip.decompress(kept.path.read_bytes()) == b"{}\n[1]\n"
    assert kept.path.stat().st_mode & 0o777 == 0o600
