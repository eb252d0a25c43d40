"""A traceback without its message, and with it again."""

import traceback

from hypothesis import example, given
from hypothesis import strategies as st

from bridge.deadletters.model.traceback_parts import restore_message, strip_message

TEXT = st.text(st.sampled_from("ab: \n\x1ams"))


def raised(message: str) -> str:
    try:
        raise ValueError(message)
    except ValueError as error:
        return "".join(traceback.format_exception(error))


@given(TEXT, TEXT)
@example("a: \x1as: \x1as", "\x1as")
@example("a: x: x", "x: x")
@example("x: m\nx: m\nx: m", "m\nx: m")
@example("", "")
def test_it_is_put_together_again_whatever_it_says(text, message):
    assert restore_message(strip_message(text, message), message) == text


def test_letters_of_one_fault_have_the_same_text_whatever_each_message_says():
    messages = ("order 1", "order 2: no\nsuch", "%s \x1a")
    assert len({strip_message(raised(message), message) for message in messages}) == 1


def test_a_message_that_is_a_word_of_the_code_is_taken_out_only_where_it_is_said():
    assert "raise ValueError" in strip_message(raised("raise"), "raise")


def test_of_java_each_line_that_says_it_goes_without():
    text = "shop.Failed: no 7\n\tat shop.A.b(A.java)\nCaused by: shop.Failed: no 7\n\tat shop.A.b(A.java)"
    assert "no 7" not in strip_message(text, "no 7")
