"""Which letters are of one failure group."""

from bridge.deadletters.model.failure_group import FailureGroup, find_failure_group

HANDLER, CLASS = "orders.handlers.charge", "builtins.ValueError"


def traceback(line: int, message: str) -> str:
    return (
        "Traceback (most recent call last):\n"
        f'  File "/app/orders/bank.py", line {line}, in pay\n    raise ValueError(said)\n'
        f"ValueError: {message}\n"
    )


def test_failures_of_one_function_are_one_group_whatever_line_and_message():
    groups = {find_failure_group(HANDLER, CLASS, traceback(line, said), said) for line, said in ((5, "a"), (9, "b"))}
    assert groups == {FailureGroup(HANDLER, CLASS, "orders/bank.py:pay")}


def test_a_message_that_quotes_a_frame_does_not_change_the_group():
    said = 'no\nTraceback (most recent call last):\n  File "/app/orders/other.py", line 1, in ship'
    assert find_failure_group(HANDLER, CLASS, traceback(5, said), said).place == "orders/bank.py:pay"
