"""Text of others, fit for a terminal."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bridge.formats.text_forms import format_count, format_share, make_printable


@given(st.text())
def test_whatever_is_said_neither_colours_nor_begins_a_line(text: str):
    assert make_printable(text).isprintable()


@given(st.text(st.characters(codec="utf-8").filter(str.isprintable)))
def test_what_is_printable_stays_as_it_is(text: str):
    assert make_printable(text) == text


@given(st.text())
def test_what_is_to_be_kept_is_kept(text: str):
    assert [each for each in make_printable(text, keep="\n\t") if each in "\n\t"] == [e for e in text if e in "\n\t"]


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("\x1b[31mred", r"\x1b[31mred"),
        ("a\nb", r"a\nb"),
        ("abc\u202edcba", r"abc\u202edcba"),  # the rest would stand from right to left
        ("größe €", "größe €"),
        ("\ud800", r"\ud800"),
    ],
)
def test_an_escape_stands_in_its_place(text: str, shown: str):
    assert make_printable(text) == shown


@pytest.mark.parametrize(
    ("count", "noun", "verb", "words"),
    [
        (1, "record", "are", "1 record is"),
        (0, "record", "are", "0 records are"),
        (1234, "delivery", "wait", "1,234 deliveries wait"),
        (1, "bridge", "consume", "1 bridge consumes"),
        (2, "more process", "", "2 more processes"),
        (2, "key", "have", "2 keys have"),
    ],
)
def test_a_count_has_the_noun_and_the_verb_of_its_number(count: int, noun: str, verb: str, words: str):
    assert format_count(count, noun, verb) == words


def test_a_share_has_the_noun_of_the_whole_and_the_verb_of_the_part():
    assert format_share(1, 2, "worker", "do") == "1 of 2 workers does"
    assert format_share(2, 2, "bridge", "consume") == "2 of 2 bridges consume"
