"""Causes within a failure group: apart where a person would fix them apart, together where only values differ."""

import pytest

from bridge.deadletters.model.failure_group import (
    FailureGroup,
    compute_cause_fingerprint,
    describe_cause,
    normalise_message,
)
from bridge.deadletters.model.failure_location import CHAINED

GROUP = FailureGroup("shop.handlers.charge", "shop.errors.PaymentFailed", "shop/bank.py:pay")
UUIDS = ("0b0e7c1c-3c2a-4e0e-9f0a-5a3f2f1e9d11", "f00dbabe-1111-4222-8333-abcdefabcdef")


def python(line: int, message: str, cause: str = "", root: str = "/srv/app") -> str:
    frames = (
        "Traceback (most recent call last):\n"
        f'  File "{root}/shop/handlers.py", line 9, in charge\n    pay(order)\n'
        f'  File "{root}/shop/bank.py", line {{}}, in pay\n    code()\n'
        '  File "/usr/lib/python3.11/json/decoder.py", line 7, in decode\n    raise it\n'
    )
    first = f"{frames.format(3)}{cause}\n\n{CHAINED[0]}\n\n" if cause else ""
    return f"{first}{frames.format(line)}shop.errors.PaymentFailed: {message}\n"


def cause(line: int, message: str, chained: str = "", root: str = "/srv/app") -> str:
    return compute_cause_fingerprint(GROUP, python(line, message, chained, root), message)


def test_five_causes_of_one_function_are_five_and_their_values_make_no_more():
    def five(order: int, uuid: str) -> list[str]:
        return [
            cause(20, "declined"),
            cause(30, "declined"),
            cause(40, "failed", f"ConnectionError: bank {order} is down"),
            cause(40, "failed", f"TimeoutError: no answer in {order} s"),
            cause(50, f"no account {uuid} of order {order}"),
        ]

    assert len(set(five(1, UUIDS[0]))) == 5
    assert five(1, UUIDS[0]) == five(4711, UUIDS[1])
    assert all(len(each) == 12 for each in five(1, UUIDS[0]))


def test_a_cause_is_the_same_on_every_machine_and_another_in_another_group():
    assert cause(20, "declined") == cause(20, "declined", root="/home/me/work")
    other = GROUP._replace(place="shop/bank.py:refund")
    assert compute_cause_fingerprint(other, python(20, "declined"), "declined") != cause(20, "declined")


def test_the_line_and_the_chain_of_java_tell_causes_apart():
    def java(line: int, root: str) -> str:
        text = (
            "org.springframework.kafka.listener.ListenerExecutionFailedException: no\n"
            "\tat org.springframework.kafka.Listener.invoke(Listener.java:1)\n"
            f"Caused by: {root}\n\tat shop.Bank.pay(Bank.java:{line})\n\t... 12 more\n"
        )
        return compute_cause_fingerprint(GROUP, text, "no")

    assert java(5, "shop.Down: order 1") == java(5, "shop.Down: order 22")
    assert len({java(5, "shop.Down: x"), java(6, "shop.Down: x"), java(5, "shop.Slow: x")}) == 3


@pytest.mark.parametrize(
    ("message", "found"),
    [
        (f"no account {UUIDS[0]}", "no account <uuid>"),
        ("KeyError: 'amount'", "KeyError: <text>"),
        ("can't find \"Zoë's\" order", "can't find <text> order"),
        ("object at 0x7f3a2c", "object at <hex>"),
        ("trace deadbeef01 failed", "trace <hex> failed"),
        ("took 12.5 s at 10:30:00,\n 7 of 9", "took <number> s at <number>, <number> of <number>"),
        ("a@b.example is blocked", "<address> is blocked"),
        ("the decade facade", "the decade facade"),
        ("", ""),
    ],
)
def test_what_varies_in_a_message_is_replaced(message, found):
    assert normalise_message(message) == found


PYDANTIC = """\
2 validation errors for Order
total
  Input should be a valid number [type=float_type, input_value={}, input_type=dict]
    For further information visit https://errors.pydantic.dev/2.12/v/float_type
lines.0.price
  Field required [type=missing, input_value={}, input_type=dict]
    For further information visit https://errors.pydantic.dev/2.12/v/missing"""


def test_the_value_that_pydantic_refuses_is_no_part_of_the_cause():
    found = {
        normalise_message(PYDANTIC.replace("{}", value)) for value in ("{'a': 1}", "[2, {'b'...: None}]", "Order(1)")
    }
    assert len(found) == 1


@pytest.mark.parametrize(
    ("message", "found"),
    [
        ("2 fault(s) in the value: a: Field required; b.0: Too short", "a: Field required; b.0: Too short"),
        (PYDANTIC, "total: Input should be a valid number; lines.0.price: Field required"),
        ("1 validation error for nothing", "1 validation error for nothing"),
        ("no answer\n within 5 s", "no answer within 5 s"),
        ("", ""),
    ],
)
def test_a_cause_is_described_by_the_fields_that_do_not_validate_else_by_the_message(message, found):
    assert describe_cause(message) == found


@pytest.mark.parametrize("traceback", ["", "\n\n", "no traceback", "Caused by: \n", 'File "', "\x1am"])
def test_whatever_stands_in_a_traceback_there_is_a_cause(traceback):
    assert len(compute_cause_fingerprint(GROUP, traceback, "no")) == 12
    assert len(compute_cause_fingerprint(GROUP, traceback, traceback)) == 12
