"""The search index: the words of a letter, and the index of letters that were recorded before it."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sqlalchemy import delete

from bridge.deadletters.db import schema_migration, search_index
from bridge.deadletters.db.table_definitions import letters
from bridge.deadletters.inspection.letter_lookup import LetterLookup
from bridge.deadletters.model import search_words
from bridge.deadletters.model.letter_filter import ALL_LETTERS, LetterFilter
from tests.desk import filter_model as model


def of(message: str = "", key: bytes | None = None, headers: object = (), value: bytes | None = None) -> set[str]:
    return {word for word in search_words.find_letter_words(message, key, headers, value) if not word.startswith("§")}  # type: ignore[arg-type]


def test_words_are_what_separates_them_aside_and_have_no_case():
    assert of("Card DECLINED: order_id=4711 (Straße)") == {"card", "declined", "order_id", "4711", "strasse"}


@given(st.text(st.characters(max_codepoint=127), max_size=200))
def test_words_of_ascii_are_those_of_any_text(text: str):
    assert search_words.split_words(text) == [
        word[: search_words.LONGEST] for word in re.findall(r"\w+", text.casefold())
    ]


@given(st.lists(st.text(max_size=30), min_size=3, max_size=3))
def test_the_words_of_a_letter_are_those_of_each_of_its_texts_in_their_order(texts: list[str]):
    key, message, value = (text.encode("utf-8", "ignore").decode().translate({0: "", ord("\\"): ""}) for text in texts)
    expected = dict.fromkeys(
        [*search_words.split_words(key), *search_words.split_words(message), *search_words.split_words(value)]
    )
    assert search_words.find_letter_words(message, key.encode(), (), value.encode()) == tuple(expected)


def test_a_letter_is_found_by_its_key_its_headers_and_its_value():
    headers = [("tenant", b"blue"), ("trace", b"\xff"), ("gone", None)]
    assert of("", b"k-1", headers, b'{"name": "Zo\xc3\xab"}') == {
        *("k", "1", "tenant", "blue", "trace", "gone", "name", "zoë"),
    }


@pytest.mark.parametrize(
    ("value", "meant"),
    [
        (rb'{"name": "Zo\u00eb\u00EB\nAnn"}', {"name", "zoëë", "ann"}),
        (rb' ["\ud83d\ude00 \u00c9t\u00e9", "a\\u00eb"]', {"été", "a", "u00eb"}),
        (rb"C:\new\u00eb", {"c", "new", "u00eb"}),
        (rb'{"cut": "\u00', {"cut", "00"}),
    ],
)
def test_json_has_the_words_that_its_escapes_mean_and_other_text_those_that_it_shows(value, meant):
    assert of(value=value) == meant


@pytest.mark.parametrize("kept", [rb'"Zo\u00eb"', rb'"ZO\u00CB"', b'"Zo\xc3\xab"'])
def test_a_word_is_found_however_json_wrote_it_and_whenever_it_was_recorded(database, kept):
    """Before escapes were decoded the index got the text as it stands."""
    asked = LetterFilter(text="zoë")
    with database.writing() as connection:
        (made,) = model.make(connection, 1, 5)
        for found_by in (search_words.find_letter_words("", None, (), kept), search_words.split_words(kept.decode())):
            search_index.index_letters(connection, [(made.id, found_by)])
            assert made.id in connection.execute(search_index.select_letters_with_words(asked.words)).scalars().all()
            assert connection.execute(search_index.select_among_with_words([made.id], asked.words)).scalars().all() == [
                made.id
            ]
            search_index.index_letters(connection, [(made.id, ["zo", "u00ec"])])
            assert (
                connection.execute(search_index.select_among_with_words([made.id], asked.words)).scalars().all() == []
            )


@pytest.mark.parametrize("value", [b"\xff\xfe1", b"text\x00", None])
def test_what_is_no_text_has_no_words(value):
    assert of(value=value) == set()


def test_a_value_that_is_cut_within_a_character_has_its_words_all_the_same():
    assert "ok" in of(value=b"ok " + b"x" * (search_words.LOOKED_AT - 4) + "ë".encode() + b"more")


def test_a_letter_has_no_more_words_than_it_may_cost():
    assert len(search_words.find_letter_words(" ".join(map(str, range(500))), b"k", (), b"v")) == search_words.MOST


def test_a_header_is_found_however_long_the_message_is():
    found = search_words.find_letter_words(" ".join(map(str, range(500))), None, (("tenant", b"blue"),), None)
    assert search_words.mark_header(("tenant", b"blue")) in found


def test_the_index_is_made_of_the_letters_that_are_there(database, monkeypatch):
    monkeypatch.setattr(search_index, "_AT_ONCE", 7)
    with database.writing() as connection:
        made = model.make(connection, 60, 5)
        schema_migration.migrate_tables(connection, "0001")
    database.migrate()
    for text in model.TEXTS:
        asked = LetterFilter(text=text)
        assert [each.id for each in LetterLookup(database).each(asked)] == model.meant(asked, made)


def test_a_letter_that_is_deleted_is_found_no_more(database):
    asked = LetterFilter(text="card")
    with database.writing() as connection:
        made = model.make(connection, 60, 5)
        gone = model.meant(asked, made)[0]
        connection.execute(delete(letters).where(letters.c.id == gone))
        assert gone not in connection.execute(search_index.select_letters_with_words(asked.words)).scalars().all()
    assert len([*LetterLookup(database).each(ALL_LETTERS)]) == 59


def test_a_letter_that_gets_other_words_is_found_by_them_alone(database):
    with database.writing() as connection:
        (made,) = model.make(connection, 1, 5)
        search_index.index_letters(connection, [(made.id, ["first"])])
        search_index.index_letters(connection, [(made.id, ["second"])])
        assert connection.execute(search_index.select_letters_with_words(["first"])).all() == []
        assert connection.execute(search_index.select_letters_with_words(["second"])).scalars().all() == [made.id]
