"""The benchmarks' dead letters are written past the recorder: their columns must be those of the tables today."""

from pathlib import Path

from benchmarks.deadletters_million import fill
from bridge.deadletters.db.database import Database
from bridge.deadletters.db.letter_query import count_letters
from bridge.deadletters.model.letter_filter import LetterFilter


def test_the_benchmarks_letters_are_of_the_tables_as_they_are_and_found_by_their_words(tmp_path: Path) -> None:
    database = Database(f"sqlite:///{tmp_path / 'letters.db'}")
    try:
        fill(database, 200)
        with database.reading() as connection:
            counted = count_letters(connection, LetterFilter(text="customer"))[0]
    finally:
        database.close()
    assert counted == 200
