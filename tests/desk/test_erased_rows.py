"""The rows and archived letters of a person go, those of others stay, and no text quotes the person any more."""

import gzip
import threading
from contextlib import closing
from pathlib import Path

import psycopg
import pytest
from sqlalchemy import Connection, func, select, text

from bridge.deadletters.accounts.audit_log import LetterNotes
from bridge.deadletters.accounts.saved_view import SavedViews
from bridge.deadletters.db import audit_rows, erasure_rows, plan_rows
from bridge.deadletters.db.database import Database
from bridge.deadletters.db.erasure_rows import CHANGED_TABLES
from bridge.deadletters.db.kind_rows import IdCache
from bridge.deadletters.db.letter_rows import change_letter_status
from bridge.deadletters.db.letter_transfer import read_whole_letters
from bridge.deadletters.db.letter_writer import LetterWriter
from bridge.deadletters.db.table_definitions import letters, tallies, trail
from bridge.deadletters.erasure.archive_erasure import ArchiveErasure
from bridge.deadletters.inspection.letter_file import write_letter_line
from bridge.deadletters.model.bulk_plan import PlanKind, PlanOptions
from bridge.deadletters.model.erasure_subject import ErasureSubject, parse_subject_field
from bridge.deadletters.model.payload_codec import PLAIN_PAYLOADS
from bridge.deadletters.model.stored_letter import LetterStatus
from bridge.deadletters.recorder.retention import LetterArchive
from tests.desk.letters import letter
from tests.servers.postgres import PostgresServer

ANN = ErasureSubject((b"ann-4711",), (parse_subject_field("value.id=80231"),), ("Ann Quastel",))
OTHERS = {"key": b"bob", "value": b'{"id": 1}'}


@pytest.fixture
def recorded(database: Database) -> Database:
    """Letters of the person by key, by field and by coordinates; and of others, of which one quotes the person."""
    found = [
        letter(1, key=b"ann-4711", error_message="no card of Ann Quastel"),
        letter(2, value=b'{"id": 80231}'),
        letter(3, **OTHERS),
        letter(4, **OTHERS, error_message="not like Ann Quastel"),
        letter(5, key=b"bob", value=b'{"friend": "Ann Quastel"}'),
        letter(6, **OTHERS, handler="orders.handlers.notify"),
    ]
    with database.writing() as connection:
        LetterWriter(connection, IdCache(), 20_000, 1_000_000).record(found)
        ids = list(connection.execute(select(letters.c.id).order_by(letters.c.offset)).scalars())
        change_letter_status(connection, [ids[0], ids[1], ids[5]], LetterStatus.OPEN, LetterStatus.DISCARDED, 1)
    return database


def find(database: Database, sources: set[tuple[str, int, int]] | None = None) -> list[int]:
    with database.reading() as connection:
        found = erasure_rows.find_person_letters(connection, ANN, PLAIN_PAYLOADS, sources or set())
    return [each.delivery.offset for each in found]


def erase(database: Database, sources: set[tuple[str, int, int]]) -> int:
    with database.writing() as connection:
        found = erasure_rows.find_person_letters(connection, ANN, PLAIN_PAYLOADS, sources)
        gone = erasure_rows.delete_letters(connection, [each.id for each in found])
        erasure_rows.redact_texts(connection, ANN)
    return gone


def read_offsets(connection: Connection) -> list[int]:
    return list(connection.execute(select(letters.c.offset).order_by(letters.c.offset)).scalars())


def test_a_letter_is_the_persons_by_key_field_or_coordinates(recorded: Database):
    assert find(recorded) == [1, 2]
    assert find(recorded, {("orders", 0, 6), ("payments", 0, 3), ("orders", 1, 4)}) == [1, 2, 6]


def test_letters_of_other_topics_are_not_the_persons_if_topics_are_named(recorded: Database):
    elsewhere = ErasureSubject(ANN.keys, ANN.fields, topics=("payments",))
    with recorded.reading() as connection:
        assert erasure_rows.find_person_letters(connection, elsewhere, PLAIN_PAYLOADS, set()) == []


def test_the_persons_letters_go_and_the_tallies_still_count_what_is_there(recorded: Database):
    assert erase(recorded, {("orders", 0, 6)}) == 3
    with recorded.reading() as connection:
        assert read_offsets(connection) == [3, 4, 5]
        counted = connection.execute(select(func.sum(tallies.c.count))).scalar_one()
        assert counted == 3
        assert connection.execute(text("SELECT count(*) FROM words")).scalar_one() == 3


def test_an_open_letter_stays_until_it_has_ended(recorded: Database):
    with recorded.writing() as connection:
        ids = list(connection.execute(select(letters.c.id).where(letters.c.offset == 1)).scalars())
        change_letter_status(connection, ids, LetterStatus.DISCARDED, LetterStatus.OPEN, 2)
    assert erase(recorded, set()) == 1
    assert find(recorded) == [1]


def test_texts_of_others_do_not_quote_the_person_and_are_not_found_by_it_any_more(recorded: Database):
    with recorded.writing() as connection:
        audit_rows.write_entry(connection, 1, "bob", "halt", "Ann Quastel called about ann-4711")
        asked = {"filter": {"key": "ann-4711", "ids": [4711]}}
        plan_id, _ = plan_rows.add_plan(connection, PlanKind.DISCARD, "bob", "for Ann Quastel", asked, PlanOptions())
    views = SavedViews(recorded)
    for name in ("Ann Quastel", "ann quastel"):
        views.save("bob", name, [("value", "buyer.name=Ann Quastel"), ("status", "open")])
    with recorded.reading() as connection:
        assert len(list(erasure_rows.find_quoting_texts(connection, ANN))) == 9
    erase(recorded, set())
    with recorded.reading() as connection:
        assert list(erasure_rows.find_quoting_texts(connection, ANN)) == []
        errors = list(connection.execute(select(letters.c.error_message).order_by(letters.c.offset)).scalars())
        assert errors == ["no", "not like [erased]", "no", "no"]
        assert list(connection.execute(select(trail.c.said)).scalars()) == ["[erased] called about [erased]"]
        plan = plan_rows.read_plan(connection, plan_id)
        assert plan is not None
        fields = (("value", "buyer.name=[erased]"), ("status", "open"))
        assert [each[2:] for each in views.of("bob")] == [("[erased]", fields)] * 2
        assert (plan.why, plan.asked) == ("for [erased]", {"filter": {"key": "[erased]", "ids": [4711]}})


def test_records_of_others_that_quote_the_person_are_named_and_stay(recorded: Database):
    with recorded.reading() as connection:
        own = {each.id for each in erasure_rows.find_person_letters(connection, ANN, PLAIN_PAYLOADS, set())}
        (quoting,) = erasure_rows.find_quoting_letters(connection, ANN, own)
        assert connection.execute(select(letters.c.offset).where(letters.c.id == quoting)).scalar_one() == 5


def test_a_note_keeps_its_author_and_time_and_loses_its_text(recorded: Database):
    with recorded.reading() as connection:
        ids = {each.id for each in erasure_rows.find_person_letters(connection, ANN, PLAIN_PAYLOADS, set())}
    LetterNotes(recorded).on_letters(sorted(ids), "she called", "bob")
    with recorded.writing() as connection:
        assert erasure_rows.count_notes(connection, ids) == erasure_rows.erase_notes(connection, ids) == 2
        assert erasure_rows.count_notes(connection, ids) == 0
        assert {(row.by, row.said) for row in connection.execute(select(trail))} == {("bob", "[erased]")}


def test_a_database_that_is_written_anew_has_all_its_letters(recorded: Database):
    erase(recorded, set())
    assert recorded.rewrite(CHANGED_TABLES) != []
    with recorded.reading() as connection:
        assert read_offsets(connection) == [3, 4, 5, 6]


@pytest.mark.servers
def test_what_a_user_without_the_right_cannot_write_anew_is_said(postgres_server: PostgresServer):
    url = postgres_server.new_database()
    with closing(Database(url)) as owned:
        owned.migrate()
    with psycopg.connect(url.replace("+psycopg", ""), autocommit=True) as connection:
        connection.execute("DROP ROLE IF EXISTS erases")
        connection.execute("CREATE ROLE erases LOGIN")
        connection.execute("GRANT ALL ON ALL TABLES IN SCHEMA public TO erases")
    try:
        with closing(Database(url.replace("tests@", "erases@"))) as used:
            refused, *_ = used.rewrite(["letters"])
            assert "not rewritten" in refused
            assert '"letters"' in refused
            assert "pg_statistic" in refused
            # The connection is as it was.
            with used.writing() as writing:
                assert writing.execute(text("SHOW statement_timeout")).scalar_one() == "1min"
    finally:
        with psycopg.connect(url.replace("+psycopg", ""), autocommit=True) as connection:
            connection.execute("DROP OWNED BY erases")
            connection.execute("DROP ROLE erases")


def test_archived_letters_of_the_person_go_and_a_file_without_letters_goes_too(recorded: Database, tmp_path: Path):
    with recorded.reading() as connection:
        rows = read_whole_letters(connection, list(connection.execute(select(letters.c.id)).scalars()))
    lines = {row["offset"]: write_letter_line(row) for row in rows}
    for offsets in ((1, 2), (3, 1, 6), (4, 5)):
        with LetterArchive(str(tmp_path / "archive"), 0.0) as archive:
            for offset in offsets:
                archive.write([lines[offset]])
    (tmp_path / "archive" / "deadletters-torn.jsonl.gz").write_bytes(gzip.compress(lines[1].encode())[:-9])
    archives = ArchiveErasure(str(tmp_path / "archive"), ANN, PLAIN_PAYLOADS, {("orders", 0, 6)})
    found = archives.search()
    assert (found.files, found.letters, found.quoting) == (4, 4, 2)
    assert [each.split()[0] for each in found.unread] == ["deadletters-torn.jsonl.gz"]
    assert archives.erase() == 4
    (tmp_path / "archive" / "deadletters-torn.jsonl.gz").unlink()
    kept = [
        gzip.decompress(file.read_bytes()).decode().splitlines() for file in sorted((tmp_path / "archive").iterdir())
    ]
    assert sorted(kept) == sorted([[lines[3]], [lines[4], lines[5]]])
    assert archives.erase() == 0


def test_a_file_that_a_recorder_writes_is_waited_for(recorded: Database, tmp_path: Path):
    with recorded.reading() as connection:
        rows = read_whole_letters(connection, list(connection.execute(select(letters.c.id)).scalars()))
    lines = {row["offset"]: write_letter_line(row) for row in rows}
    archives = ArchiveErasure(str(tmp_path / "archive"), ANN, PLAIN_PAYLOADS, set())
    with LetterArchive(str(tmp_path / "archive"), 0.0) as archive:
        archive.write([lines[1]])
        erasing = threading.Thread(target=archives.erase)
        erasing.start()
        erasing.join(0.3)
        assert erasing.is_alive()
        archive.write([lines[3]])
    erasing.join(20)
    (file,) = (tmp_path / "archive").iterdir()
    assert gzip.decompress(file.read_bytes()).decode().splitlines() == [lines[3]]
