"""What of an exception is kept."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bridge.formats.failure import MAX_CLASS, MAX_MESSAGE, MAX_TRACEBACK, Failure, class_name, cut


class Unprintable(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no words")


class Leaving(Exception):
    def __str__(self) -> str:
        raise SystemExit(3)


class NoText(Exception):
    def __str__(self) -> str:
        return None  # type: ignore[return-value]


def raised(error: BaseException) -> BaseException:
    try:
        raise error
    except BaseException as caught:
        return caught


@pytest.mark.parametrize(
    ("error", "name", "message"),
    [
        (ValueError("why"), "ValueError", "why"),
        (ValueError(), "ValueError", ""),
        (Unprintable(), f"{__name__}.Unprintable", "(str() of this Unprintable raised RuntimeError)"),
        (Leaving(), f"{__name__}.Leaving", "(str() of this Leaving raised SystemExit)"),
        (NoText(), f"{__name__}.NoText", "(str() of this NoText raised TypeError)"),
        (UnicodeDecodeError("utf-8", b"\xff", 0, 1, "bad"), "UnicodeDecodeError", None),
        (ValueError("größe 😀 \udc80"), "ValueError", "größe 😀 \udc80"),
        (ExceptionGroup("two", [ValueError("a"), KeyError("b")]), "ExceptionGroup", "two (2 sub-exceptions)"),
    ],
)
def test_every_exception_can_be_described(error, name, message):
    failure = Failure.from_error(raised(error), now=1.5)
    assert failure.error_class == name
    assert message is None or failure.error_message == message
    assert failure.failed_at == 1500
    assert failure.error_traceback.startswith(("Traceback", "  + Exception Group"))


def test_a_huge_message_is_cut_in_the_middle_and_says_so():
    failure = Failure.from_error(raised(ValueError("a" * 5_000_000 + "the end")))
    assert len(failure.error_message) <= MAX_MESSAGE
    assert failure.error_message.startswith("aaa")
    assert failure.error_message.endswith("the end")
    assert "characters cut" in failure.error_message


def test_the_end_of_a_traceback_is_kept():
    def deep(depth: int) -> None:
        if depth == 0:
            raise ValueError("down here")
        (deep if depth % 2 else other)(depth - 1)

    def other(depth: int) -> None:
        deep(depth)

    with pytest.raises(ValueError, match="down here") as caught:
        deep(400)
    failure = Failure.from_error(caught.value)
    assert len(failure.error_traceback) == MAX_TRACEBACK
    assert failure.error_traceback.endswith("ValueError: down here\n")


def test_a_class_name_is_cut():
    kind = type("E" * 10_000, (Exception,), {})
    assert len(Failure.from_error(kind()).error_class) <= MAX_CLASS


def test_an_endless_chain_of_causes_ends():
    first, second = ValueError("a"), ValueError("b")
    first.__cause__, second.__cause__ = second, first
    assert Failure.from_error(first).error_message == "a"


@given(st.text(st.characters()), st.integers(100, 500))
def test_what_is_cut_fits_and_what_fits_is_not_cut(text, limit):
    found = cut(text, limit)
    assert len(found) <= limit
    assert (found == text) == (len(text) <= limit)


@given(st.text(st.characters()), st.text(st.characters()), st.text(st.characters()), st.integers(0, 2**53))
def test_a_failure_survives_json(name, message, trace, at):
    failure = Failure(name, message, trace, at)
    assert Failure.from_data(json.loads(json.dumps(failure.to_data()))) == failure


def test_nested_classes_are_named_whole():
    class Inner(Exception):
        pass

    assert class_name(Inner()).endswith("test_nested_classes_are_named_whole.<locals>.Inner")
