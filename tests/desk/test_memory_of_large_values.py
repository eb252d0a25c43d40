"""However large values are, what looks at many letters has few of them in memory at once."""

import tracemalloc
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest
from celery import Celery

from bridge.deadletters.db import letter_query, letter_rows
from bridge.deadletters.db.database import Database
from bridge.deadletters.db.kind_rows import IdCache
from bridge.deadletters.db.letter_writer import LetterWriter
from bridge.deadletters.editing.json_patch import ValuePatch
from bridge.deadletters.editing.letter_edit import LetterEditor
from bridge.deadletters.inspection.letter_file import LetterTransfers
from bridge.deadletters.model.bulk_plan import PlanOptions
from bridge.deadletters.model.letter_filter import LetterFilter
from bridge.deadletters.model.stored_letter import LetterStatus
from bridge.deadletters.recorder.retention import purge_ended_letters
from tests.desk.letters import letter

#: Letters, of a value each that the database keeps just yet.
LETTERS = 80
VALUE = b'"' + b"x" * 900_000 + b'"'
#: Bytes of memory: half of what all values take.
MOST = LETTERS * len(VALUE) // 2
FRESH = '[{"op": "replace", "path": "", "value": "y"}]'


@pytest.fixture
def heavy(database: Database) -> Database:
    for at in range(0, LETTERS, 8):
        with database.writing() as connection:
            found = [letter(offset, value=VALUE) for offset in range(at, at + 8)]
            LetterWriter(connection, IdCache(), 20_000, 1_000_000).record(found)
    return database


def peak(do: Callable[[], object]) -> int:
    """The most memory that it takes."""
    tracemalloc.start()
    try:
        do()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def exported(database: Database) -> list[int]:
    return [len(line) for line in LetterTransfers(database).lines("ann")]


def test_who_asks_handlers_has_few_values_in_memory(heavy: Database):
    with Celery("shop", set_as_current=False) as app:
        assert peak(lambda: LetterEditor(app, heavy).check(LetterFilter())) < MOST


def test_a_patch_of_many_has_few_values_in_memory_and_leaves_none_out(heavy: Database):
    with Celery("shop", set_as_current=False) as app:
        made = []
        patch = ValuePatch.read(FRESH)
        took = peak(
            lambda: made.append(LetterEditor(app, heavy).patch(LetterFilter(), patch, PlanOptions(), "ann", force=True))
        )
    assert took < MOST
    assert made[0].counts.edits["changed"] == LETTERS


@pytest.mark.slow
def test_an_export_and_its_import_have_few_values_in_memory_and_leave_none_out(
    heavy: Database, new_database: Callable[[], str], tmp_path: Path
):
    assert peak(lambda: exported(heavy)) < MOST
    file = tmp_path / "all.jsonl"
    with open(file, "w") as lines:
        lines.writelines(f"{line}\n" for line in LetterTransfers(heavy).lines("ann"))
    with closing(Database(new_database())) as other:
        other.migrate()
        with open(file, "rb") as lines:
            assert peak(lambda: LetterTransfers(other).take(lines, "ann", "all")) < MOST * 4
        assert len(exported(other)) == LETTERS + 2


def test_the_step_that_makes_the_index_of_words_has_the_beginnings_of_values_in_memory(heavy: Database):
    heavy.migrate("0001")
    assert peak(heavy.migrate) < MOST
    with heavy.reading() as connection:
        assert letter_query.count_letters(connection, LetterFilter(text="x" * 40))[0] == LETTERS


@pytest.mark.slow
def test_what_goes_into_the_archive_is_not_in_memory_as_a_whole(heavy: Database, tmp_path: Path):
    with heavy.writing() as connection:
        letter_rows.change_letter_status(
            connection, range(1, LETTERS + 1), LetterStatus.OPEN, LetterStatus.RESOLVED, 21_000
        )
    gone = []
    assert peak(lambda: gone.append(purge_ended_letters(heavy, 1, str(tmp_path)))) < 2 * MOST
    assert gone == [LETTERS]
