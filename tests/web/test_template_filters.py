"""What others wrote is shown in few steps, however many lines of it or characters that are not seen there are."""

import sys

import pytest

from bridge.console.template_filters import foreign


@pytest.mark.parametrize(("text", "calls"), [("", 30), ("a line", 30), ("\u202e" * 1_000, 20_000)])
def test_a_line_costs_few_steps(text, calls):
    foreign(text)
    made = []
    sys.setprofile(lambda frame, event, argument: made.append(event) if event in ("call", "c_call") else None)
    try:
        foreign(text)
    finally:
        sys.setprofile(None)
    assert len(made) <= calls
