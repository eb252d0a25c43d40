"""The full-text index of dead letters: tsvector on PostgreSQL, FTS5 on SQLite.

The index is a separate table, which migration 0002 creates, because a letter's status changes often and its words
hardly ever.
"""

from collections.abc import Iterable, Sequence
from typing import Any, Final

from sqlalchemy import (
    BigInteger,
    ColumnElement,
    Connection,
    Select,
    Text,
    and_,
    bindparam,
    column,
    func,
    literal,
    or_,
    select,
    table,
    text,
)
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql.functions import FunctionElement

from bridge.deadletters.db.table_definitions import letters
from bridge.deadletters.model.search_words import LOOKED_AT, find_letter_words, find_spellings
from bridge.deadletters.model.stored_letter import unpack_headers

#: Letters that the migration indexes at once.
_AT_ONCE: Final = 1_000

#: `rowid` is a letter's id.
word_index: Final = table("words", column("rowid", BigInteger), column("lexemes", Text))

_MAKE: Final = {
    "sqlite": (
        # Python has split the words: `\w` of ASCII, and all other characters, belong to a word. The index has no
        # positions, because only whole letters are searched.
        """CREATE VIRTUAL TABLE words USING fts5(lexemes, tokenize = "ascii tokenchars '_'", detail = none)""",
        "CREATE TRIGGER words_end AFTER DELETE ON letters BEGIN DELETE FROM words WHERE rowid = old.id; END",
    ),
    "postgresql": (
        "CREATE TABLE words (rowid BIGINT NOT NULL CONSTRAINT pk_words PRIMARY KEY, lexemes TSVECTOR NOT NULL, "
        "CONSTRAINT fk_words_rowid FOREIGN KEY (rowid) REFERENCES letters (id) ON DELETE CASCADE)",
        "CREATE INDEX ix_words_lexemes ON words USING gin (lexemes)",
    ),
}
_DROP: Final = {"sqlite": ("DROP TRIGGER words_end", "DROP TABLE words"), "postgresql": ("DROP TABLE words",)}
_ADD: Final = "INSERT OR REPLACE INTO words (rowid, lexemes) VALUES (?, ?)"
# One statement for all letters: one for each cost a fifth of the recording rate.
_ADD_ALL: Final = text(
    "INSERT INTO words (rowid, lexemes) SELECT id, array_to_tsvector(string_to_array(said, ' ')) "
    "FROM unnest(CAST(:ids AS bigint[]), CAST(:words AS text[])) AS found (id, said) "
    "ON CONFLICT (rowid) DO UPDATE SET lexemes = excluded.lexemes"
)


def create_search_index(connection: Connection) -> None:
    """Create the index, and index the existing letters."""
    for statement in _MAKE[connection.dialect.name]:
        connection.execute(text(statement))
    last = 0
    while rows := connection.execute(_select_unindexed(last)).all():
        index_letters(
            connection,
            [
                (row.id, find_letter_words(row.error_message, row.key, unpack_headers(row.headers), row.value))
                for row in rows
            ],
        )
        last = rows[-1].id


def drop_search_index(connection: Connection) -> None:
    """Drop the index."""
    for statement in _DROP[connection.dialect.name]:
        connection.execute(text(statement))


def index_letters(connection: Connection, rows: Iterable[tuple[int, Sequence[str]]]) -> None:
    """Replace the indexed words of letters; deleted letters leave the index by themselves.

    Parameters:
        rows: ids of letters, each once, and their words (`find_letter_words` of model/search_words.py).
    """
    found = {letter: " ".join(words) for letter, words in rows}
    if not found:
        return
    if connection.dialect.name == "postgresql":
        connection.execute(_ADD_ALL, {"ids": [*found], "words": [*found.values()]})
    else:
        connection.exec_driver_sql(_ADD, [*found.items()])


def select_letters_with_words(words: Sequence[str]) -> Select[tuple[int]]:
    """Return the query of all letters with all of these words, by the index."""
    return select(word_index.c.rowid).where(_RowHasWords(word_index.c.lexemes, *map(literal, _build_queries(words))))


def select_among_with_words(ids: Sequence[int], words: Sequence[str]) -> Select[tuple[int]]:
    """Return the query of the given letters with all of these words, read one by one: fast for common words too."""
    # Materialized: otherwise PostgreSQL would read all matches from the index.
    some = select(word_index).where(
        word_index.c.rowid.in_(bindparam(None, list(ids), expanding=True, literal_execute=True))
    )
    near = some.cte("near").prefix_with("MATERIALIZED")
    return select(near.c.rowid).where(*(_has_word(near.c.lexemes, word) for word in words))


def _build_queries(words: Sequence[str]) -> tuple[str, str]:
    """Return the queries of words for PostgreSQL and for FTS5."""
    asked = [find_spellings(word) for word in words]
    return _build_query(asked, "'{}'", " & ", " | "), _build_query(asked, '"{}"', " AND ", " OR ")


def _build_query(asked: Iterable[list[list[str]]], quoted: str, both: str, either: str) -> str:
    """Return a query that needs all words, each in one of its spellings."""
    found = ([both.join(map(quoted.format, spelling)) for spelling in word] for word in asked)
    return both.join(word[0] if len(word) == 1 else f"({either.join(f'({each})' for each in word)})" for word in found)


def _has_word(lexemes: ColumnElement[Any], word: str) -> ColumnElement[bool]:
    """Return the condition that a row has a word in one of its spellings, without the index."""
    return or_(
        *(
            and_(*(_RowHasWord(lexemes, literal(f"'{part}'"), literal(f" {part} ")) for part in spelling))
            for spelling in find_spellings(word)
        )
    )


class _RowHasWords(FunctionElement[bool]):
    """The SQL condition that a row has all words, by the index."""

    inherit_cache = True


class _RowHasWord(FunctionElement[bool]):
    """The SQL condition that a row has a word, without the index."""

    inherit_cache = True


@compiles(_RowHasWords, "postgresql")
@compiles(_RowHasWord, "postgresql")
def _match_in_postgresql(element: FunctionElement[bool], compiler: Any, **options: Any) -> str:
    lexemes, query = (compiler.process(each, **options) for each in list(element.clauses)[:2])
    return f"{lexemes} @@ CAST({query} AS tsquery)"


@compiles(_RowHasWords, "sqlite")
def _match_in_sqlite(element: _RowHasWords, compiler: Any, **options: Any) -> str:
    _, _, query = element.clauses
    return f"words MATCH {compiler.process(query, **options)}"


@compiles(_RowHasWord, "sqlite")
def _find_in_sqlite(element: _RowHasWord, compiler: Any, **options: Any) -> str:
    lexemes, _, word = (compiler.process(each, **options) for each in element.clauses)
    return f"instr(' ' || {lexemes} || ' ', {word}) > 0"


def _select_unindexed(last: int) -> Select[Any]:
    # A bounded prefix: a thousand large values would not fit in memory.
    beginning = func.substr(letters.c.value, 1, LOOKED_AT).label("value")
    found = select(letters.c.id, letters.c.error_message, letters.c.key, letters.c.headers, beginning)
    return found.where(letters.c.id > last).order_by(letters.c.id).limit(_AT_ONCE)
