"""The steps from a record's bytes to the value that a handler gets: codec, validation by the annotated model, and
`upgrade` for values of an older model; also as a check that runs no handler. tasks/policy/failure_decision.py decides
what follows an undecodable value.
"""

import dataclasses
import inspect
import json
import sys
import types
import typing
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from pydantic import AfterValidator, BaseModel, RootModel, TypeAdapter, ValidationError
from pydantic_core import to_jsonable_python
from typing_extensions import TypedDict, is_typeddict

from bridge.formats.delivery import Headers
from tasks.declaration.message_codec import Encoded, EncodedValue, MessageCodec
from tasks.errors import HandlerError, RetryLater, Undecodable
from tasks.policy.retry_when_function import function_name

#: A function from a decoded value, not validated, to the value for today's model.
Upgrade = Callable[[Any], Any]

_NOT_AT_ONCE: Final = (inspect.iscoroutinefunction, inspect.isgeneratorfunction, inspect.isasyncgenfunction)


def check_upgrade(given: Any, *, validates: bool) -> Upgrade | None:
    """Return the function given as `upgrade=`, if it can be called.

    Parameters:
        validates: whether the handler's value is annotated with a model.

    Raises:
        HandlerError: it never can be, or never would be.
    """
    if given is None:
        return None
    called = given if inspect.isroutine(given) else getattr(type(given), "__call__", None)  # noqa: B004
    if not callable(given):
        raise HandlerError(f"upgrade takes a function of the decoded value; it was given {given!r}.")
    if any(kind(candidate) for kind in _NOT_AT_ONCE for candidate in (given, called, getattr(given, "func", None))):
        raise HandlerError(f"upgrade: {function_name(given)} is async, or yields: it must answer when it is called.")
    try:
        inspect.signature(given).bind(None)
    except TypeError:
        raise HandlerError(
            f"upgrade: {function_name(given)}{inspect.signature(given)} is called with the value alone."
        ) from None
    except ValueError:
        # Some functions written in C have no signature.
        pass
    if not validates:
        raise HandlerError(
            "upgrade is called if a value does not validate, and here none is validated: annotate the handler's "
            "value with a model."
        )
    function: Upgrade = given
    return function


def apply_upgrade(function: Upgrade, value: Any) -> Any:
    """Return the upgraded value.

    Raises:
        TypeError: the function returned a coroutine.
    """
    upgraded = function(value)
    if inspect.iscoroutine(upgraded):
        upgraded.close()
        raise TypeError(f"{function_name(function)} gives a coroutine, and no value")
    return upgraded


Codec = type[bytes] | type[str] | Callable[[bytes], Any] | MessageCodec | None
_read_json: Final = json.JSONDecoder().raw_decode
#: The white space of JSON, around a value.
_BLANKS: Final = " \t\n\r"
Decode = Callable[[Encoded], Any]
#: Errors that no other value would fix (a schema registry that is down): the value is not at fault.
NOT_ITS_FAULT: Final = (OSError, RetryLater, MemoryError)


@dataclass(frozen=True, slots=True)
class DecodeSteps:
    """The steps from bytes to the value that a handler gets.

    Attributes:
        read: the codec, from bytes to the decoded value; that of `by_record` takes the record.
        validate: from that to an instance of the model; `None` without a model.
        whole: both at once.
        upgrade: from a decoded value that does not validate to one that does.
        by_record: the codec if it reads the record's headers too.
    """

    read: Callable[[Any], Any]
    validate: Callable[[Any], Any] | None
    whole: Callable[[Any], Any]
    upgrade: Upgrade | None = None
    by_record: MessageCodec | None = None


def make_decode_steps(codec: Codec, annotation: Any = None, upgrade: Any = None) -> DecodeSteps:
    """Return the decoding steps of a handler's values.

    Parameters:
        codec: `None` for JSON, `bytes` to leave values as they are, `str` for UTF-8 text, a callable, or a
            `MessageCodec`.
        annotation: the type that the handler's first parameter is annotated with; a pydantic model, a
            dataclass or a TypedDict (also inside `list[...]` or `... | None`) validates.
        upgrade: a function of the decoded value, called if that does not validate.

    Raises:
        HandlerError: the codec or the function cannot be called.
    """
    by_record = codec if isinstance(codec, MessageCodec) else None
    if isinstance(codec, type) and issubclass(codec, MessageCodec):
        raise HandlerError(f"codec={codec.__name__} is a class: write codec={codec.__name__}().")
    if codec is not None and by_record is None and not callable(codec):
        raise HandlerError(f"codec takes bytes, str or a callable; it was given {codec!r}.")
    if inspect.iscoroutinefunction(codec) or inspect.iscoroutinefunction(getattr(codec, "__call__", None)):  # noqa: B004
        raise HandlerError("codec is async, and is called before the handler's event loop runs: it must not be.")
    validates = _validates(annotation)
    if validates and by_record is not None and not by_record.validates:
        raise HandlerError(
            f"codec={type(codec).__name__}() gives an event, which no model validates: leave the annotation "
            f"{_annotation_name(annotation)} out, and validate event.get_data() in the handler."
        )
    upgrade = check_upgrade(upgrade, validates=validates)
    read = _reader(codec)
    if not validates:
        return DecodeSteps(read, None, read, by_record=by_record)
    if codec in (bytes, str) and upgrade is None and not _may_take_text(annotation):
        raise HandlerError(
            f"codec={codec.__name__} leaves the value as it is, and its annotation {_annotation_name(annotation)} "
            f"takes no "
            f"{codec.__name__}: leave codec out for JSON, or give a function from bytes to what the annotation takes."
        )
    adapter = TypeAdapter[Any](_validatable(annotation))
    if codec is None:
        return DecodeSteps(read, _as_json(adapter), adapter.validate_json, upgrade)
    validate = adapter.validate_python
    return DecodeSteps(read, validate, lambda value: validate(read(value)), upgrade, by_record)


def make_decoder(codec: Codec, annotation: Any = None, upgrade: Any = None) -> Decode:
    """Return the function that decodes and validates a handler's values (`decode`)."""
    return guard_decoder(make_decode_steps(codec, annotation, upgrade))


def guard_decoder(way: DecodeSteps) -> Decode:
    """Return the function that takes values through these steps.

    Returns:
        a function that raises `Undecodable` for a value that does not decode or validate, returns `None` for `None`,
        and passes on what no other value would fix: `OSError` and `RetryLater` of a callable codec or of `upgrade`.
    """
    whole, by_record = way.whole, way.by_record

    def guarded(record: Encoded) -> Any:
        value = record.value
        if value is None:
            return None
        try:
            return whole(value)
        except NOT_ITS_FAULT:
            raise
        except Exception as error:
            return _decode_refused(way, value, error)

    if by_record is None:
        return guarded

    def guarded_record(record: Encoded) -> Any:
        if by_record.is_tombstone(record):
            return None
        try:
            return whole(record)
        except NOT_ITS_FAULT:
            raise
        except Exception as error:
            return _decode_refused(way, record, error)

    return guarded_record


def _decode_refused(way: DecodeSteps, value: Any, error: Exception) -> Any:
    """Return the upgraded value for one that was not read or did not validate.

    Raises:
        Undecodable: there is no upgrade that cures it.
    """
    if isinstance(error, Undecodable):
        raise error
    if not isinstance(error, ValidationError):
        raise Undecodable(f"{type(error).__name__}: {error}") from error
    refused = describe_problems(error)
    if way.upgrade is None or not was_readable(error):
        raise Undecodable(refused) from None
    return _decode_upgraded(way, value, refused)


def _decode_upgraded(way: DecodeSteps, value: Any, refused: str) -> Any:
    """Return the upgraded value for one that did not validate.

    Parameters:
        refused: why it did not validate.
    """
    assert way.upgrade is not None
    assert way.validate is not None
    try:
        return way.validate(apply_upgrade(way.upgrade, way.read(value)))
    except NOT_ITS_FAULT:
        raise
    except Exception as error:
        raise Undecodable(join_reasons(refused, error)) from (None if isinstance(error, ValidationError) else error)


def join_reasons(refused: str, error: BaseException) -> str:
    """Return why a value does not validate, and why it does not after its upgrade either."""
    if isinstance(error, ValidationError):
        return f"{refused}; after upgrade: {describe_problems(error)}"
    return f"{refused}; its upgrade raised {type(error).__name__}: {error}"


def was_readable(error: ValidationError) -> bool:
    """Return whether a value that does not validate could be read at all."""
    return not any(fault["type"] == "json_invalid" for fault in error.errors(include_input=False, include_url=False))


def _reader(codec: Codec) -> Callable[[Any], Any]:
    if codec is None:
        return _json
    if isinstance(codec, MessageCodec):
        return codec.decode
    if codec is bytes:
        return bytes
    return _utf8 if codec is str else codec


def _as_json(adapter: TypeAdapter[Any]) -> Callable[[Any], Any]:
    """Return the validation of a decoded value in JSON mode, in which a strict model accepts text for a date.

    A value without a JSON form, such as an instance of the model, is validated as it is.
    """

    def validate(value: Any) -> Any:
        try:
            written = json.dumps(value)
        except (TypeError, ValueError):
            return adapter.validate_python(value)
        return adapter.validate_json(written)

    return validate


def _json(value: bytes) -> Any:
    """Return the value of JSON bytes, as `json.loads`, but faster for UTF-8."""
    try:
        text = str(value, "utf-8").strip(_BLANKS)
        found, end = _read_json(text)
        if end == len(text):
            return found
    except ValueError:
        pass
    # It is in another encoding, or it is no JSON, and this says why.
    return json.loads(value)


def _utf8(value: bytes) -> str:
    return value.decode("utf-8")


def describe_problems(error: ValidationError) -> str:
    """Return the faults of a value without the input: the dead letter has it, and payloads must not be logged."""
    lines = (
        f"{'.'.join(str(part) for part in problem['loc']) or 'value'}: {problem['msg']}"
        for problem in error.errors(include_input=False, include_url=False, include_context=False)
    )
    return f"{error.error_count()} fault(s) in the value: " + "; ".join(lines)


def _validates(annotation: Any) -> bool:
    if annotation is None:
        return False
    if isinstance(annotation, type) and (issubclass(annotation, BaseModel) or dataclasses.is_dataclass(annotation)):
        return True
    if is_typeddict(annotation):
        return True
    return any(_validates(part) for part in typing.get_args(annotation))


def _may_take_text(annotation: Any) -> bool:
    """Return whether an annotation that validates may accept plain bytes or text; True if that is unclear."""
    origin, parts = typing.get_origin(annotation), typing.get_args(annotation)
    if origin in (types.UnionType, typing.Union):
        return any(part is not type(None) and _may_take_text(part) for part in parts)
    if origin is typing.Annotated:
        # A validator of pydantic's, or of the user's, may make the value of anything; one that runs after may not.
        schemas = (each for each in parts[1:] if hasattr(each, "__get_pydantic_core_schema__"))
        return not all(isinstance(each, AfterValidator) for each in schemas) or _may_take_text(parts[0])
    if is_typeddict(annotation):
        return False
    kind = origin or annotation
    if not isinstance(kind, type):
        return True
    if issubclass(kind, list | tuple | set | frozenset | dict):
        return False
    if issubclass(kind, RootModel) or not (issubclass(kind, BaseModel) or dataclasses.is_dataclass(kind)):
        return True
    # A validator that runs before the model's own may make a model of anything.
    decorators = getattr(kind, "__pydantic_decorators__", None)
    return decorators is not None and any(each.info.mode != "after" for each in decorators.model_validators.values())


def _annotation_name(annotation: Any) -> str:
    return annotation.__name__ if isinstance(annotation, type) else str(annotation)


def _validatable(annotation: Any) -> Any:
    """Return an annotation that pydantic accepts: below Python 3.12 only TypedDicts of typing_extensions."""
    if sys.version_info >= (3, 12):
        return annotation
    if is_typeddict(annotation) and type(annotation).__module__ == "typing":
        optional = annotation.__optional_keys__
        hints = {
            name: typing.NotRequired[hint] if name in optional else hint
            for name, hint in typing.get_type_hints(annotation).items()
        }
        fields = {name: _validatable(hint) for name, hint in hints.items()}
        return TypedDict(annotation.__name__, fields)  # type: ignore[operator]
    arguments = typing.get_args(annotation)
    origin = typing.get_origin(annotation)
    if not arguments or origin is None or not _validates(annotation):
        return annotation
    inner = tuple(_validatable(part) for part in arguments)
    if origin in (types.UnionType, typing.Union):
        return typing.Union[inner]  # noqa: UP007
    return origin[inner if len(inner) > 1 else inner[0]]


@dataclass(frozen=True, slots=True)
class ValueCheck:
    """The check of a value by a handler's codec, model and `upgrade`.

    Attributes:
        ok: whether the handler would get it, as it is or after its upgrade; `None` if that is unknown now: a service
            that the codec or the upgrade needs is down.
        why: why not, or why it is unknown; empty if it is ok.
        upgraded: whether it is ok only after its upgrade.
        before: the decoded value as JSON; empty if it does not decode or has no JSON form.
        after: the same of the upgraded value; empty if the upgrade was not called.
    """

    ok: bool | None
    why: str = ""
    upgraded: bool = False
    before: str = ""
    after: str = ""


def check_value(way: DecodeSteps, value: bytes | None, headers: Headers = ()) -> ValueCheck:
    """Check a value by these steps. Never raises, although the user's code runs here.

    Parameters:
        value: as in Kafka; `None` is a tombstone, which every handler gets as it is.
        headers: of its record.
    """
    if value is None and (way.by_record is None or way.by_record.is_tombstone(EncodedValue(value, headers))):
        return ValueCheck(True)
    source = value if way.by_record is None else EncodedValue(value, headers)
    before = ""
    try:
        before = _as_json_text(way.read(source))
        way.whole(source)
    except NOT_ITS_FAULT as error:
        return _unknown(error, before)
    except ValidationError as error:
        if way.upgrade is None or not was_readable(error):
            return ValueCheck(False, describe_problems(error), before=before)
        refused = describe_problems(error)
    except (Exception, SystemExit) as error:
        return ValueCheck(False, _words(error), before=before)
    else:
        return ValueCheck(True, before=before)
    return _after_upgrade(way, source, refused, before)


def _after_upgrade(way: DecodeSteps, value: Any, refused: str, before: str) -> ValueCheck:
    assert way.upgrade is not None
    assert way.validate is not None
    after = ""
    try:
        made = apply_upgrade(way.upgrade, way.read(value))
        after = _as_json_text(made)
        way.validate(made)
    except NOT_ITS_FAULT as error:
        return _unknown(error, before, after)
    except (Exception, SystemExit) as error:
        return ValueCheck(False, _join_safely(refused, error), False, before, after)
    return ValueCheck(True, "", True, before, after)


def _unknown(error: BaseException, before: str, after: str = "") -> ValueCheck:
    return ValueCheck(None, f"it cannot be told now: {_words(error)}", False, before, after)


def _join_safely(refused: str, error: BaseException) -> str:
    try:
        return join_reasons(refused, error)
    except Exception:
        # The error's own text raises.
        return f"{refused}; its upgrade raised {type(error).__name__}"


def _words(error: BaseException) -> str:
    try:
        return str(error) if isinstance(error, Undecodable | RetryLater) else f"{type(error).__name__}: {error}"
    except Exception:
        return type(error).__name__


def _as_json_text(value: Any) -> str:
    try:
        return json.dumps(to_jsonable_python(value), ensure_ascii=False)
    except Exception:
        return ""
