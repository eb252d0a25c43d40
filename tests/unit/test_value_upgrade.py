"""`upgrade`: what was written for an older model is taken by today's, and what is not says why twice."""

import datetime
import json
from dataclasses import dataclass
from functools import partial
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, ConfigDict, field_validator

from tasks.declaration.message_codec import EncodedValue
from tasks.declaration.value_codec import ValueCheck, check_value, make_decode_steps
from tasks.declaration.value_codec import make_decoder as make_record_decoder
from tasks.errors import HandlerError, RetryLater, Undecodable


def make_decoder(codec, annotation=None, upgrade=None):
    decode = make_record_decoder(codec, annotation, upgrade)
    return lambda raw: decode(EncodedValue(raw))


class Order(BaseModel):
    id: int
    day: datetime.date | None = None


class Strict(BaseModel):
    model_config = ConfigDict(strict=True)

    day: datetime.date


@dataclass
class Unshown:
    id: int


def from_number(value: Any) -> Any:
    return {"id": value["number"]}


def raises(error: BaseException) -> Any:
    def upgrade(value: Any) -> Any:
        raise error

    return upgrade


def test_what_does_not_validate_is_upgraded_and_what_does_is_not():
    seen: list[Any] = []

    def upgrade(value: Any) -> Any:
        seen.append(value)
        return from_number(value)

    decode = make_decoder(None, Order, upgrade)
    assert decode(b'{"id": 1}') == Order(id=1)
    assert decode(b'{"number": 2}') == Order(id=2)
    assert decode(None) is None
    assert seen == [{"number": 2}]


@pytest.mark.parametrize("made", [Order(id=3), {"id": "3"}, {"id": 3}])
def test_it_may_return_an_instance_of_the_model_or_what_makes_one(made: Any):
    assert make_decoder(None, Order, lambda value: made)(b"{}") == Order(id=3)


def test_what_it_returns_is_validated_as_json_is():
    assert make_decoder(None, Strict, lambda value: {"day": value})(b'"2026-11-20"') == Strict(
        day=datetime.date(2026, 11, 20)
    )


def test_it_is_given_what_a_codec_gives():
    def read(raw: bytes) -> Any:
        return {"number": int(raw)}

    assert make_decoder(read, Order, from_number)(b"7") == Order(id=7)
    assert make_decoder(str, Order, lambda text: {"id": int(text)})(b"7") == Order(id=7)


@pytest.mark.parametrize("raw", [b"{", b"\xff", b""])
def test_what_does_not_decode_is_never_upgraded(raw: bytes):
    with pytest.raises(Undecodable) as raised:
        make_decoder(None, Order, raises(AssertionError()))(raw)
    assert "upgrade" not in str(raised.value)


def test_what_does_not_validate_after_it_either_says_both_reasons():
    with pytest.raises(Undecodable) as raised:
        make_decoder(None, Order, lambda value: {"id": "x"})(b"{}")
    first, second = str(raised.value).split("; after upgrade: ")
    assert "id: Field required" in first
    assert "id: Input should be a valid integer" in second


def test_what_it_raises_is_said_beside_the_reason():
    with pytest.raises(Undecodable, match="id: Field required; its upgrade raised KeyError: 'number'"):
        make_decoder(None, Order, from_number)(b"{}")


async def later() -> None: ...


def test_a_coroutine_is_no_value():
    with pytest.raises(Undecodable, match="gives a coroutine"):
        make_decoder(None, Order, lambda value: later())(b"{}")


@pytest.mark.parametrize("error", [ConnectionError("down"), RetryLater(3), MemoryError()])
def test_what_no_other_value_would_mend_passes(error: BaseException):
    with pytest.raises(type(error)):
        make_decoder(None, Order, raises(error))(b"{}")
    found = check_value(make_decode_steps(None, Order, raises(error)), b"{}")
    assert (found.ok, found.before) == (None, "{}")
    assert found.why.startswith("it cannot be told now: ")


async def asynchronous(value: Any) -> Any: ...


def yields(value: Any) -> Any:
    yield value


class Called:
    async def __call__(self, value: Any) -> Any: ...


def of_two(value: Any, more: Any) -> Any: ...


def of_none() -> Any: ...


@pytest.mark.parametrize(
    ("given_", "words"),
    [
        ("from_number", "upgrade takes a function of the decoded value; it was given 'from_number'"),
        (asynchronous, "is async, or yields"),
        (partial(asynchronous), "is async, or yields"),
        (yields, "is async, or yields"),
        (Called(), "is async, or yields"),
        (of_two, "is called with the value alone"),
        (of_none, "is called with the value alone"),
    ],
)
def test_what_could_never_be_called_is_refused(given_: Any, words: str):
    with pytest.raises(HandlerError, match=words):
        make_decoder(None, Order, given_)


@pytest.mark.parametrize("annotation", [None, dict, int])
def test_where_nothing_is_validated_it_is_refused(annotation: Any):
    with pytest.raises(HandlerError, match="annotate the handler's value with a model"):
        make_decoder(None, annotation, from_number)


def test_what_can_be_called_with_the_value_is_taken():
    for function in (partial(of_two, more=1), from_number, Order.model_validate, dict):
        make_decode_steps(None, Order, function)


# Whether a value would be taken


def test_a_check_says_how_it_would_end_with_both_forms():
    way = make_decode_steps(None, Order, from_number)
    assert check_value(way, None) == ValueCheck(True)
    assert check_value(way, b'{"id": 1}') == ValueCheck(True, before='{"id": 1}')
    assert check_value(way, b'{"number": 1}') == ValueCheck(True, "", True, '{"number": 1}', '{"id": 1}')
    missing = check_value(way, b'{"n": 1}')
    assert (missing.ok, missing.before, missing.after) == (False, '{"n": 1}', "")
    assert "its upgrade raised KeyError" in missing.why
    broken = check_value(way, b"{")
    assert (broken.ok, broken.before) == (False, "")
    assert "JSON" in broken.why
    wrong = check_value(way, b'{"number": "x"}')
    assert (wrong.ok, wrong.after) == (False, '{"id": "x"}')
    assert "; after upgrade: " in wrong.why


def test_the_forms_are_those_before_and_after_also_where_the_value_is_changed_in_place():
    def upgrade(value: dict[str, Any]) -> Any:
        value["id"] = value.pop("number")
        return value

    found = check_value(make_decode_steps(None, Order, upgrade), b'{"number": 1}')
    assert (found.before, found.after) == ('{"number": 1}', '{"id": 1}')


def test_a_handler_without_a_model_takes_what_decodes():
    assert check_value(make_decode_steps(None), b"[1]") == ValueCheck(True, before="[1]")
    assert check_value(make_decode_steps(bytes), b"\xff") == ValueCheck(True)
    assert check_value(make_decode_steps(str), b"\xff").ok is False


class Awkward(BaseModel):
    id: int

    @field_validator("id")
    @classmethod
    def leave(cls, value: int) -> int:
        if value == 1:
            raise SystemExit(3)
        if value == 2:
            raise Wordless
        return value


class Wordless(Exception):
    def __str__(self) -> str:
        raise RuntimeError


@given(st.binary() | st.integers(0, 3).map(lambda n: json.dumps({"id": n}).encode()), st.sampled_from(range(5)))
def test_a_check_never_raises(raw: bytes, which: int):
    upgrades = [None, from_number, raises(Wordless()), raises(SystemExit(1)), lambda value: Unshown]
    found = check_value(make_decode_steps(None, Awkward, upgrades[which]), raw)
    assert found.ok is True or found.why
