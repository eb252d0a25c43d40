"""A difference shows what differs and nothing else, whatever the values have in them."""

import json
from itertools import product

import pytest

from bridge.console.pages.diff_rows import DiffRow, build_diff_rows
from bridge.deadletters.editing.value_diff import WIDTH, count_changes, diff_values

NO_TEXT = (b"\xff\x00abc", b"\xff\x00abd", b"\xff\x00abd" + b"x" * 100, b"\xff" * 200)
VALUES = (None, b"", b"[]", b"text", *NO_TEXT)


@pytest.mark.parametrize(("before", "after"), [pair for pair in product(VALUES, VALUES) if pair[0] != pair[1]])
def test_values_that_differ_have_a_difference(before: bytes | None, after: bytes | None):
    found = diff_values(before, after)
    rows = build_diff_rows(found)
    assert count_changes(found) == 1
    assert {row.kind for row in rows} <= {"minus", "plus"}
    assert rows


def test_bytes_of_one_size_are_shown_from_where_they_differ():
    assert diff_values(NO_TEXT[0], NO_TEXT[1]).split("\n")[3:] == [
        "-(5 bytes, 0x63 from byte 4 on)",
        "+(5 bytes, 0x64 from byte 4 on)",
    ]


@pytest.mark.parametrize("end", ["\u2028", "\u2029", "\x85", "\x7f"])
def test_a_text_in_a_value_is_no_line_of_the_difference(end: str):
    forged = f'hi{end}-  "amount": 5{end}+  "amount": 7'
    found = diff_values(b'{"note":"hi"}', json.dumps({"note": forged}, ensure_ascii=False).encode())
    rows = build_diff_rows(found)
    assert [row.kind for row in rows] == ["", "minus", "plus", ""]
    assert count_changes(found) == 1


@pytest.mark.parametrize("at", [0, 10, WIDTH - 1, WIDTH, 3 * WIDTH, 100_000])
def test_long_lines_are_shown_around_what_differs(at: int):
    before, after = ("x" * at + middle + "z" * 5_000 for middle in ("A", "B"))
    minus, plus = build_diff_rows(diff_values(json.dumps(before).encode(), json.dumps(after).encode()))
    assert isinstance(minus, DiffRow)
    assert (minus.changed[:1], plus.changed[:1]) == ("A", "B")
    assert len("".join(minus[1:])) <= WIDTH + 60
    assert ("characters" in minus.before) == (at >= WIDTH - 1)
