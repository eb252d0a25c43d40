"""Text of others, fit for a terminal."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bridge.formats.text_forms import make_printable


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
