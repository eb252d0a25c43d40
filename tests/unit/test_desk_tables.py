"""What the desk prints for people."""

import io
from collections.abc import Callable
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from bridge.cli.deadletters import letter_printout
from bridge.deadletters.model.letter_view import LetterLine
from bridge.deadletters.model.stored_letter import LetterStatus

LETTER = LetterLine(
    id=23_017,
    handler="orders.handlers.charge",
    topic="orders",
    partition=3,
    offset=1234,
    key=b"4711",
    reason="exhausted",
    error_class="orders.bank.BankError",
    error_message="the bank said no",
    status=LetterStatus.OPEN,
    runs=13,
    failed_at=1_800_000_000_000,
    group=7,
    version="1.4.1",
    origin="bridge",
    consumer_group="bridge",
    place="orders/bank.py:pay",
    failures=1,
    occurrences=1,
    value_size=2,
    plan=None,
)


def printed(print_to: Callable[[Console], None], width: int = 80) -> list[str]:
    out = io.StringIO()
    print_to(Console(file=out, width=width))
    return [line.rstrip() for line in out.getvalue().splitlines()]


def test_a_letter_is_two_lines_that_fit_80_columns():
    lines = printed(lambda console: letter_printout.print_letters(console, [LETTER]))
    assert lines[2:] == [
        "23017   2027-01-15 08:00   orders-3-1234, key 4711   BankError: the bank said no",
        "        open               orders.handlers.charge    exhausted",
    ]


@given(st.text(), st.binary(), st.text(), st.text())
def test_whatever_others_have_put_into_a_letter_it_begins_no_line_and_colours_none(handler, key, error, message):
    letter = replace(LETTER, handler=handler, key=key, error_class=error, error_message=f"[red]{message}[/]\x1b[31m")
    for line in printed(lambda console: letter_printout.print_letters(console, [letter])):
        assert line.isprintable()
        assert len(line) <= 80 or not line.isascii()


def test_a_letter_that_died_again_after_a_replay_says_so():
    lines = printed(lambda console: letter_printout.print_letters(console, [replace(LETTER, failures=3)]))
    assert any("exhausted, for the 3rd time" in line for line in lines)


def test_a_letter_of_a_topic_has_neither_id_nor_status():
    lines = printed(lambda console: letter_printout.print_letters(console, [LETTER], standing=False))
    assert not any("23017" in line or "open" in line for line in lines)


def test_letters_of_other_programs_say_whose():
    lines = printed(
        lambda console: letter_printout.print_letters(console, [replace(LETTER, handler="", origin="spring")])
    )
    assert any("spring" in line for line in lines)


@pytest.mark.parametrize(
    ("counts", "bars"), [((0, 1, 8), " ▁█"), ((0, 0), "  "), ((), ""), ((1, 1000), "▁█"), ((3, 3), "██")]
)
def test_a_chart_shows_the_most_as_the_highest_and_hides_no_hour_that_had_any(counts, bars):
    assert letter_printout.draw_chart(counts) == bars
