"""`bridge deadletters export` and `import`: from one database into the other, byte for byte, each letter once."""

import gzip
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import insert, select

from bridge.cli.command_io import FAULTS, NOT_FOUND
from bridge.deadletters.db import audit_rows, letter_rows
from bridge.deadletters.db.database import Database, remember_fact
from bridge.deadletters.db.kind_rows import IdCache
from bridge.deadletters.db.letter_transfer import read_whole_letters
from bridge.deadletters.db.letter_writer import LetterWriter
from bridge.deadletters.db.table_definitions import edits, facts, positions
from bridge.deadletters.inspection.letter_file import FORMAT
from bridge.deadletters.model.stored_letter import LetterStatus
from tests.desk.commands import Commands
from tests.desk.letters import letter

POSITION = {"consumer_group": "", "topic": "orders.dlq", "topic_id": "log", "partition": 0, "next": 3, "epoch": 1}


@pytest.fixture
def filled(database: Database) -> Database:
    """Letters of every kind of life: open, died again, resolved, on its way; with notes and an edit."""
    found = [
        letter(1, key=b"\x00\xff", value=b'{"id": 1}'),
        letter(2, value=b"x" * 100),
        letter(3, headers=(("h", None), ("h", b"\xfe")), version="1.4.1"),
        letter(4, value=None),
    ]
    with database.writing() as connection:
        ids = IdCache()
        LetterWriter(connection, ids, 20_000, 50).record(found)
        letter_rows.change_letter_status(connection, [1, 3], LetterStatus.OPEN, LetterStatus.REPLAYING, 21_000, 7)
        LetterWriter(connection, ids, 30_000, 50).record(
            [letter(1, number=1, offset=9, failed_at=25_000, reason="expired")]
        )
        letter_rows.change_letter_status(connection, [4], LetterStatus.OPEN, LetterStatus.RESOLVED, 31_000)
        audit_rows.write_entry(connection, 31_000, "ann", "note", "seen before", letter_id=1, letter="orders-0-1")
        edit = {"letter_id": 3, "plan_id": 7, "at": 20_500, "by": "ann", "how": "edit", "value": b"\xff"}
        connection.execute(insert(edits).values(edit))
        connection.execute(insert(positions).values(POSITION | {"missed": 0, "at": 20_000}))
        remember_fact(connection, "cluster", "one")
    return database


@pytest.fixture
def other(new_database: Callable[[], str]) -> str:
    """The URL of a second, empty database."""
    return new_database()


def everything(url: str) -> list[dict[str, Any]]:
    """All letters of a database, without its own numbers."""
    database = Database(url)
    try:
        with database.reading() as connection:
            rows = read_whole_letters(connection, range(1, 100))
        return sorted(({**row, "id": None} for row in rows), key=lambda row: str(row["delivery"]))
    finally:
        database.close()


def reached(url: str) -> list[int]:
    """How far topics are recorded."""
    database = Database(url)
    try:
        with database.reading() as connection:
            return list(connection.execute(select(positions.c.next)).scalars())
    finally:
        database.close()


@pytest.mark.parametrize("name", ["letters.jsonl", "letters.jsonl.gz"])
def test_an_export_is_imported_byte_for_byte(filled, database_url, other, monkeypatch, tmp_path, name):
    file = str(tmp_path / name)
    assert Commands(monkeypatch, database_url).run("export", "--to", file).output == f"4 letters in {file}\n"
    found = Commands(monkeypatch, other).given("import", file)
    assert (found["added"], found["known"], found["refused"]) == (4, 0, 0)
    first, again, moved, resolved = before = everything(database_url)
    # What a plan of another database has sent back is open here, and that plan is a negative number.
    assert moved["status"] == "replaying"
    moved["status"] = "open"
    for row in before:
        for each in (row, *row["history"], *row["edits"], *row["trail"]):
            each["plan_id"] = None if each["plan_id"] is None else -each["plan_id"]
    assert everything(other) == before
    assert (len(first["history"]), len(first["trail"]), len(moved["edits"])) == (1, 1, 1)
    assert (again["value"], again["value_size"], resolved["status"]) == (None, 100, "resolved")


def test_what_is_counted_found_and_listed_is_the_same_after_an_import(
    filled, database_url, other, monkeypatch, tmp_path
):
    here, there, file = Commands(monkeypatch, database_url), None, str(tmp_path / "all.jsonl")
    here.run("export", "--to", file)
    asked = (("--version", "1.4.1"), ("--text", "no"), ("--key", "0x00ff"), ("--reason", "expired"))
    before = [[each["offset"] for each in here.given("list", *words)] for words in asked]
    there = Commands(monkeypatch, other)
    there.given("import", file)
    assert [[each["offset"] for each in there.given("list", *words)] for words in asked] == before
    database = Database(other)
    with database.reading() as connection:
        assert dict(connection.execute(select(facts.c.name, facts.c.value)).all()) == {"cluster": "one"}
        assert reached(other) == [3]
        assert [(each.what, each.said) for each in audit_rows.read_history(connection)][-1] == (
            "import",
            f"4 letters from {file}",
        )
    database.close()


def test_importing_again_changes_nothing(filled, database_url, monkeypatch, tmp_path):
    file, desk = str(tmp_path / "all.jsonl"), Commands(monkeypatch, database_url)
    desk.run("export", "--to", file)
    before = everything(database_url)
    assert desk.given("import", file) == {"added": 0, "known": 4, "refused": 0, "why": [], "torn": []}
    assert everything(database_url) == before


def test_an_import_that_is_broken_off_leaves_what_it_did_not_take_to_the_recorder(
    filled, database_url, other, monkeypatch, tmp_path
):
    file, part = tmp_path / "all.jsonl", tmp_path / "part.jsonl"
    Commands(monkeypatch, database_url).run("export", "--to", str(file))
    part.write_text("".join(file.read_text().splitlines(keepends=True)[:3]))
    desk = Commands(monkeypatch, other)
    assert desk.given("import", str(part))["added"] == 2
    assert reached(other) == []
    assert desk.given("import", str(file))["added"] == 2
    assert reached(other) == [3]


def test_a_filter_says_what_is_exported_to_the_output(filled, database_url, monkeypatch):
    lines = Commands(monkeypatch, database_url).run("export", "--status", "resolved").stdout.splitlines()
    first, only = map(json.loads, lines)
    assert first["positions"] == []
    assert only["delivery"] == "orders-0-4:orders.handlers.charge"


def test_a_line_that_cannot_be_taken_is_told_and_the_others_are_taken(
    filled, database_url, other, monkeypatch, tmp_path
):
    file, desk = tmp_path / "all.jsonl", Commands(monkeypatch, database_url)
    desk.run("export", "--to", str(file))
    first, one, two, *rest = file.read_text().splitlines()
    strange = json.dumps(json.loads(two) | {"partition": "one"})
    too_deep = json.dumps({"format": FORMAT})[:-1] + ', "facts": ' + "[" * 100_000 + "]" * 100_000 + "}"
    file.write_text("\n".join([first, one, "no json", strange, *rest, too_deep]))
    ended = Commands(monkeypatch, other).run("import", str(file))
    assert ended.exit_code == FAULTS
    assert ended.output.splitlines() == [
        "3 letters added, 0 were there already, 3 refused",
        "  line 3: it cannot be read (JSONDecodeError).",
        "  line 4: its partition is none.",
        f"  line {5 + len(rest)}: it cannot be read (RecursionError).",
    ]
    # What it lacks now is recorded, where Kafka has it still.
    assert reached(other) == []


#: What is of the right kind, and is not taken all the same: of the file's letters, of PostgreSQL's alone, of a letter.
NOT_TAKEN: dict[str, dict[str, Any]] = {
    "a number that is too large": {"offset": 10**30},
    "half of a character": {"error_message": "a\ud800b"},
    "no history": {"history": 5},
    "a history of none": {"history": ["abc"]},
    "no edits": {"edits": None},
    "two edits of one plan": {"edits": [{"plan_id": 3, "at": 1, "by": "x", "how": "edit", "value": None}] * 2},
}


@pytest.mark.parametrize("strange", NOT_TAKEN.values(), ids=NOT_TAKEN)
def test_a_line_that_the_database_does_not_take_is_refused_alone(
    filled, database_url, other, monkeypatch, tmp_path, strange
):
    file, desk = tmp_path / "all.jsonl", Commands(monkeypatch, database_url)
    desk.run("export", "--to", str(file))
    first, one, *rest = file.read_text().splitlines()
    file.write_text("\n".join([first, json.dumps(json.loads(one) | strange), *rest]))
    ended = Commands(monkeypatch, other).run("import", str(file))
    assert ended.exit_code == FAULTS, ended.output
    assert ended.output.startswith("3 letters added, 0 were there already, 1 refused\n  line 2: ")
    assert len(everything(other)) == 3
    assert reached(other) == []


def test_what_sqlite_takes_and_postgresql_does_not_keeps_no_other_letter_back(
    filled, database_url, other, monkeypatch, tmp_path
):
    file, desk = tmp_path / "all.jsonl", Commands(monkeypatch, database_url)
    desk.run("export", "--to", str(file))
    first, one, *rest = file.read_text().splitlines()
    file.write_text("\n".join([first, json.dumps(json.loads(one) | {"error_message": "a\0b"}), *rest]))
    ended = Commands(monkeypatch, other).run("import", str(file))
    refused = other.startswith("postgresql")
    assert ended.output.startswith(f"{4 - refused} letters added, 0 were there already, {int(refused)} refused\n")


def test_letters_of_another_kafka_are_refused_as_a_whole(filled, database_url, other, monkeypatch, tmp_path):
    file = str(tmp_path / "all.jsonl")
    Commands(monkeypatch, database_url).run("export", "--to", file)
    database = Database(other)
    database.migrate()
    with database.writing() as connection:
        remember_fact(connection, "cluster", "two")
    database.close()
    ended = Commands(monkeypatch, other).run("import", file)
    assert ended.exit_code == FAULTS
    assert "another Kafka (cluster one)" in ended.output
    assert everything(other) == []


def test_a_file_that_a_crash_has_torn_is_read_as_far_as_it_goes(filled, database_url, other, monkeypatch, tmp_path):
    file, torn = tmp_path / "all.jsonl.gz", tmp_path / "torn.jsonl.gz"
    Commands(monkeypatch, database_url).run("export", "--to", str(file))
    lines = gzip.decompress(file.read_bytes()).splitlines(keepends=True)
    torn.write_bytes(gzip.compress(b"".join(lines[:3])) + gzip.compress(b"".join(lines[3:]))[:-20])
    ended = Commands(monkeypatch, other).run("import", str(torn))
    assert ended.exit_code == FAULTS
    assert "ends in the middle" in ended.output
    assert len(everything(other)) >= 2
    assert reached(other) == []


def test_a_file_that_cannot_be_written_or_read_is_said_and_leaves_none(filled, database_url, monkeypatch, tmp_path):
    desk, nowhere = Commands(monkeypatch, database_url), tmp_path / "missing" / "all.jsonl"
    for command in (("export", "--to", nowhere), ("import", nowhere)):
        ended = desk.run(*command)
        assert ended.exit_code == NOT_FOUND
        assert "No such file or directory" in ended.output
    assert [each.name for each in Path(tmp_path).iterdir() if "partial" in each.name] == []
