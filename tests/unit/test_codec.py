"""From a record's bytes to the value that a handler is given."""

import dataclasses
import enum
import json
import typing

import pytest
import typing_extensions
from hypothesis import given
from hypothesis import strategies as st
from pydantic import AfterValidator, BaseModel, BeforeValidator, RootModel, model_validator

from tasks.declaration.message_codec import EncodedValue
from tasks.declaration.value_codec import make_decoder as make_record_decoder
from tasks.errors import HandlerError, RetryLater, Undecodable


def make_decoder(codec, annotation=None, upgrade=None):
    decode = make_record_decoder(codec, annotation, upgrade)
    return lambda raw: decode(EncodedValue(raw))


class Order(BaseModel):
    id: int
    amount: float = 0.0


@dataclasses.dataclass
class Plain:
    id: int
    name: str = "none"


class Line(typing.TypedDict):
    sku: str


class Typed(typing.TypedDict):
    id: int
    note: typing.NotRequired[str]
    line: typing.NotRequired[Line]


class Extended(typing_extensions.TypedDict):
    id: int


class Colour(enum.Enum):
    RED = "red"


@dataclasses.dataclass
class Painted:
    colour: Colour


class FromBytes(BaseModel):
    raw: bytes

    @model_validator(mode="before")
    @classmethod
    def wrap(cls, value: typing.Any) -> typing.Any:
        return {"raw": value}


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
)


@given(json_values)
def test_json_is_the_default(value):
    import json

    assert make_decoder(None)(json.dumps(value).encode()) == value


def test_json_that_looks_like_a_marker_of_kombu_stays_as_it_is():
    assert make_decoder(None)(b'{"__type__": "datetime", "__value__": "x"}') == {
        "__type__": "datetime",
        "__value__": "x",
    }


@pytest.mark.parametrize(
    ("codec", "annotation", "raw", "value"),
    [
        (bytes, None, b"\x00\xff", b"\x00\xff"),
        (bytes, bytes, b"\x00\xff", b"\x00\xff"),
        (str, None, "größe".encode(), "größe"),
        (bytes.hex, None, b"\x01\xff", "01ff"),
        (lambda raw: {"id": len(raw)}, Order, b"abc", Order(id=3)),
        (None, Order, b'{"id": "7"}', Order(id=7)),
        (None, Order | None, b'{"id": 7}', Order(id=7)),
        (None, typing.Optional[Order], b"null", None),  # noqa: UP045  (users write it)
        (None, list[Order], b'[{"id": 1}, {"id": 2}]', [Order(id=1), Order(id=2)]),
        (None, dict[str, Order], b'{"a": {"id": 1}}', {"a": Order(id=1)}),
        (None, tuple[Order, ...], b'[{"id": 1}]', (Order(id=1),)),
        (None, Plain, b'{"id": 1}', Plain(1)),
        (None, Painted, b'{"colour": "red"}', Painted(Colour.RED)),
        (None, Typed, b'{"id": "1", "line": {"sku": "s"}}', {"id": 1, "line": {"sku": "s"}}),
        (None, list[Typed], b'[{"id": 1}]', [{"id": 1}]),
        (None, Typed | None, b'{"id": 1}', {"id": 1}),
        (None, Extended, b'{"id": 1}', {"id": 1}),
        (None, typing.Annotated[Order, "billed"], b'{"id": 1}', Order(id=1)),
        (None, typing.Annotated[Typed, "billed"], b'{"id": 1}', {"id": 1}),
        (None, dict, b'{"id": "7"}', {"id": "7"}),
        (None, int, b'"7"', "7"),
        (None, typing.Any, b'"7"', "7"),
    ],
)
def test_each_codec_and_annotation_gives_its_value(codec, annotation, raw, value):
    found = make_decoder(codec, annotation)(raw)
    assert found == value
    assert type(found) is type(value)


@pytest.mark.parametrize(
    ("codec", "annotation"),
    [(None, None), (bytes, None), (str, None), (bytes.hex, None), (None, Order), (bytes, FromBytes), (None, Typed)],
)
def test_a_tombstone_is_none_whatever_the_codec(codec, annotation):
    assert make_decoder(codec, annotation)(None) is None


@pytest.mark.parametrize(
    ("codec", "annotation", "raw"),
    [
        (None, None, b""),
        (None, None, b"\xff\x00"),
        (None, None, b"{"),
        (None, None, b"[" * 200_000),
        (None, None, b'{"a":' * 200_000),
        (None, None, b"9" * 10_000),
        (None, Order, b""),
        (None, Order, b"null"),
        (None, Order, b'{"id": "seven"}'),
        (None, Order, b"[" * 200_000),
        (None, Typed, b"{}"),
        (None, Typed, b'{"id": 1, "line": {}}'),
        (None, Plain, b"5"),
        (None, list[Order], b'[{"id": 1}, {}]'),
        (None, Painted, b'{"colour": "blue"}'),
        (str, None, b"\xff"),
        (str, None, "\ud800".encode("utf-8", "surrogatepass")),
        (int, None, b"seven"),
        (lambda raw: raw.nonsense, None, b"x"),
        (lambda raw: {}, Order, b"x"),
    ],
    ids=range(20),
)
def test_what_does_not_decode_or_validate_is_undecodable(codec, annotation, raw):
    with pytest.raises(Undecodable):
        make_decoder(codec, annotation)(raw)


def test_a_fault_names_the_field_and_shows_no_value():
    with pytest.raises(Undecodable) as refused:
        make_decoder(None, Order)(b'{"id": "4111-1111-1111-1111"}')
    assert "id: Input should be a valid integer" in str(refused.value)
    assert "4111" not in str(refused.value)
    assert refused.value.__cause__ is None


@pytest.mark.parametrize("error", [ConnectionError("registry"), TimeoutError(), RetryLater(3), MemoryError()])
def test_what_another_try_may_cure_is_no_fault_of_the_value(error):
    def codec(raw: bytes) -> object:
        raise error

    with pytest.raises(type(error)):
        make_decoder(codec)(b"x")


@pytest.mark.parametrize("codec", ["json", 5, b"x"])
def test_a_codec_that_is_none_is_refused(codec):
    with pytest.raises(HandlerError, match="codec takes bytes, str or a callable"):
        make_decoder(codec)


@given(st.binary())
def test_bytes_are_left_as_they_are(raw):
    assert make_decoder(bytes)(raw) == raw


@given(st.binary())
def test_any_bytes_give_a_value_or_one_kind_of_error(raw):
    for codec, annotation in ((None, None), (str, None), (None, Order), (None, Typed)):
        try:
            make_decoder(codec, annotation)(raw)
        except Undecodable:
            continue


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "utf-16-le", "utf-16-be", "utf-32"])
def test_json_is_read_in_every_encoding_that_it_may_have(encoding: str) -> None:
    assert make_decoder(None)('{"name": "Zoë €"}'.encode(encoding)) == {"name": "Zoë €"}


@given(st.binary(max_size=12) | st.text('0123456789.-eNaInfity"[]{}:, \\u\0\ufeff', max_size=12).map(str.encode))
def test_what_json_reads_is_read_and_what_it_does_not_read_is_not(value: bytes) -> None:
    try:
        wanted = json.loads(value)
    except Exception:
        with pytest.raises(Undecodable):
            make_decoder(None)(value)
    else:
        assert repr(make_decoder(None)(value)) == repr(wanted)


@pytest.mark.parametrize("codec", [bytes, str])
@pytest.mark.parametrize("annotation", [Order, Plain, Typed, list[Order], Order | None])
def test_a_model_that_no_value_of_the_codec_could_become_is_refused_at_import(codec, annotation):
    with pytest.raises(HandlerError, match="leave codec out for JSON"):
        make_decoder(codec, annotation)


def checked(order: Order) -> Order:
    return order


def wrapped(value: typing.Any) -> typing.Any:
    return {"id": len(value)}


@pytest.mark.parametrize(
    "annotation",
    [
        typing.Annotated[Order, "an order"],
        typing.Annotated[Order, AfterValidator(checked)],
        typing.Annotated[Order, "an order"] | None,
    ],
)
def test_a_model_with_notes_takes_no_bytes_either(annotation: typing.Any):
    with pytest.raises(HandlerError, match="takes no bytes"):
        make_decoder(bytes, annotation)


def test_a_model_with_a_validator_that_runs_before_it_may_take_bytes():
    assert make_decoder(bytes, typing.Annotated[Order, BeforeValidator(wrapped)])(b"seven!!") == Order(id=7)


@pytest.mark.parametrize("annotation", [FromBytes, bytes | Order, RootModel[bytes]])
def test_a_model_that_takes_bytes_is_accepted_with_codec_bytes(annotation):
    assert make_decoder(bytes, annotation)(b"x") is not None
