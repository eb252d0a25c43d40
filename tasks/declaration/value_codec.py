"""The steps from a record's bytes to the value that a handler gets: codec, validation by the annotated model, and
`upgrade` for values of an older model; also as a check that runs no handler.
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

from tasks.errors import HandlerError, RetryLater, Undecodable
from tasks.policy.retry_when import function_name

#: Of a decoded value, as it was before any model saw it, → the value for today's model.
Upgrade = Callable[[Any], Any]

_NOT_AT_ONCE: Final = (inspect.iscoroutinefunction, inspect.isgeneratorfunction, inspect.isasyncgenfunction)


def check_upgrade(given: Any, *, validates: bool) -> Upgrade | None:
    """What `upgrade=` was given, if it can be called.

    Parameters:
        validates: whether the handler's value is annotated with a model.

    Raises:
        HandlerError: it never could, or never would.
    """
    if given is None:
        return None
    called = given if inspect.isroutine(given) else getattr(type(given), "__call__", None)  # noqa: B004
    if not callable(given):
        raise HandlerError(f"upgrade takes a function of the decoded value; it was given {given!r}.")
    if any(kind(one) for kind in _NOT_AT_ONCE for one in (given, called, getattr(given, "func", None))):
        raise HandlerError(f"upgrade: {function_name(given)} is async, or yields: it must answer when it is called.")
    try:
        inspect.signature(given).bind(None)
    except TypeError:
        raise HandlerError(
            f"upgrade: {function_name(given)}{inspect.signature(given)} is called with the value alone."
        ) from None
    except ValueError:
        # Some functions written in C tell nothing of their parameters.
        pass
    if not validates:
        raise HandlerError(
            "upgrade is called where a value does not validate, and here none is validated: annotate the handler's "
            "value with a model."
        )
    function: Upgrade = given
    return function


def apply_upgrade(function: Upgrade, value: Any) -> Any:
    """What the function makes of a value.

    Raises:
        TypeError: it gives what is to be awaited.
    """
    found = function(value)
    if inspect.iscoroutine(found):
        found.close()
        raise TypeError(f"{function_name(function)} gives a coroutine, and no value")
    return found


Codec = type[bytes] | type[str] | Callable[[bytes], Any] | None
_read_json = json.JSONDecoder().decode
Decode = Callable[[bytes | None], Any]
#: What no other value would mend (a schema registry that is down): it is no fault of the value.
NOT_ITS_FAULT: Final = (OSError, RetryLater, MemoryError)


@dataclass(frozen=True, slots=True)
class DecodeSteps:
    """The way from bytes to the value that a handler is given.

    Attributes:
        read: from bytes to what the codec gives.
        validate: from that to an instance of the model; `None` where the annotation is none.
        whole: both at once.
        upgrade: from what the codec gives, where it does not validate, to what does.
    """

    read: Callable[[bytes], Any]
    validate: Callable[[Any], Any] | None
    whole: Callable[[bytes], Any]
    upgrade: Upgrade | None = None


def make_decode_steps(codec: Codec, annotation: Any = None, upgrade: Any = None) -> DecodeSteps:
    """The way that a handler's values take.

    Parameters:
        codec: `None` for JSON, `bytes` to leave values as they are, `str` for UTF-8 text, or a callable.
        annotation: the type that the handler's first parameter is annotated with; a pydantic model, a
            dataclass or a TypedDict (also inside `list[...]` or `... | None`) validates.
        upgrade: a function of what the codec gives, called where that does not validate.

    Raises:
        HandlerError: the codec, or the function, is none that could be called.
    """
    if codec is not None and not callable(codec):
        raise HandlerError(f"codec takes bytes, str or a callable; it was given {codec!r}.")
    if inspect.iscoroutinefunction(codec) or inspect.iscoroutinefunction(getattr(codec, "__call__", None)):  # noqa: B004
        raise HandlerError("codec is async, and is called before the handler's event loop runs: it must not be.")
    validates = _validates(annotation)
    upgrade = check_upgrade(upgrade, validates=validates)
    read = _reader(codec)
    if not validates:
        return DecodeSteps(read, None, read)
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
    return DecodeSteps(read, validate, lambda value: validate(read(value)), upgrade)


def make_decoder(codec: Codec, annotation: Any = None, upgrade: Any = None) -> Decode:
    """The function that decodes and validates a handler's values (`decode`), for what `steps` takes."""
    return guard_decoder(make_decode_steps(codec, annotation, upgrade))


def guard_decoder(way: DecodeSteps) -> Decode:
    """The function that takes values this way.

    Returns:
        a function that raises `Undecodable` for what does not decode or validate, gives `None` for `None`,
        and lets pass what no other value would mend: `OSError` and `RetryLater` of a callable codec or of `upgrade`.
    """
    whole, upgrade = way.whole, way.upgrade

    def guarded(value: bytes | None) -> Any:
        if value is None:
            return None
        try:
            return whole(value)
        except NOT_ITS_FAULT:
            raise
        except ValidationError as error:
            if upgrade is None or not was_readable(error):
                raise Undecodable(describe_problems(error)) from None
            refused = describe_problems(error)
        except Exception as error:
            raise Undecodable(f"{type(error).__name__}: {error}") from error
        return _decode_upgraded(way, value, refused)

    return guarded


def _decode_upgraded(way: DecodeSteps, value: bytes, refused: str) -> Any:
    """What is given for a value that did not validate.

    Parameters:
        refused: why it did not.
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
    """Why a value does not validate, and why it does not after its upgrade either."""
    if isinstance(error, ValidationError):
        return f"{refused}; after upgrade: {describe_problems(error)}"
    return f"{refused}; its upgrade raised {type(error).__name__}: {error}"


def was_readable(error: ValidationError) -> bool:
    """Whether a value that does not validate could be read at all."""
    return not any(each["type"] == "json_invalid" for each in error.errors(include_input=False, include_url=False))


def _reader(codec: Codec) -> Callable[[bytes], Any]:
    if codec is None:
        return _json
    if codec is bytes:
        return bytes
    return _utf8 if codec is str else codec


def _as_json(adapter: TypeAdapter[Any]) -> Callable[[Any], Any]:
    """Validates what was read of JSON as JSON is validated, where a strict model takes text for a date.

    What JSON has no form for, an instance of the model for one, is validated as it is.
    """

    def validate(value: Any) -> Any:
        try:
            written = json.dumps(value)
        except (TypeError, ValueError):
            return adapter.validate_python(value)
        return adapter.validate_json(written)

    return validate


def _json(value: bytes) -> Any:
    """What `json.loads` makes of bytes, without its look for other encodings where the value is UTF-8."""
    try:
        return _read_json(str(value, "utf-8"))
    except ValueError:
        return json.loads(value)


def _utf8(value: bytes) -> str:
    return value.decode("utf-8")


def describe_problems(error: ValidationError) -> str:
    """Without the input: it lies in the dead letter whole, and a log is no place for payloads."""
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
    """Whether an annotation that validates may accept plain bytes or text; in doubt it does."""
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
    """Below Python 3.12 pydantic takes typing_extensions' TypedDict alone: one is made of the other."""
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
    """What a handler's codec, model and `upgrade` say of a value.

    Attributes:
        ok: whether the handler would be given it, as it is or after its upgrade; `None` where that cannot be told
            now: what the codec or the upgrade asks is down.
        why: why not, or why it cannot be told; empty where it is ok.
        upgraded: whether it is ok only after its upgrade.
        before: what the codec makes of it, as JSON; empty where it does not decode or JSON has no form for it.
        after: the same of what the upgrade made of it; empty where it was not called.
    """

    ok: bool | None
    why: str = ""
    upgraded: bool = False
    before: str = ""
    after: str = ""


def check_value(way: DecodeSteps, value: bytes | None) -> ValueCheck:
    """What would become of a value on this way. Never raises: the user's code runs here, whatever it does.

    Parameters:
        value: as in Kafka; `None` is a tombstone, which every handler is given as it is.
    """
    if value is None:
        return ValueCheck(True)
    before = ""
    try:
        before = _as_json_text(way.read(value))
        way.whole(value)
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
    return _after_upgrade(way, value, refused, before)


def _after_upgrade(way: DecodeSteps, value: bytes, refused: str, before: str) -> ValueCheck:
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
        # An error that cannot say what it is about.
        return f"{refused}; its upgrade raised {type(error).__name__}"


def _words(error: BaseException) -> str:
    try:
        return f"{type(error).__name__}: {error}"
    except Exception:
        return type(error).__name__


def _as_json_text(value: Any) -> str:
    try:
        return json.dumps(to_jsonable_python(value), ensure_ascii=False)
    except Exception:
        return ""
