"""From a record's bytes to the value that a handler is given."""

import dataclasses
import inspect
import json
import sys
import types
import typing
from collections.abc import Callable
from typing import Any

from pydantic import BaseModel, TypeAdapter, ValidationError
from typing_extensions import TypedDict, is_typeddict

from tasks.errors import HandlerError, RetryLater, Undecodable

Codec = type[bytes] | type[str] | Callable[[bytes], Any] | None
_read_json = json.JSONDecoder().decode
Decode = Callable[[bytes | None], Any]


def decoder(codec: Codec, annotation: Any = None) -> Decode:
    """The function that decodes and validates a handler's values.

    Parameters:
        codec: `None` for JSON, `bytes` to leave values as they are, `str` for UTF-8 text, or a callable.
        annotation: the type that the handler's first parameter is annotated with; a pydantic model, a
            dataclass or a TypedDict (also inside `list[...]` or `... | None`) validates.

    Returns:
        a function that raises `Undecodable` for what does not decode or validate, gives `None` for `None`,
        and lets pass what no other value would mend: `OSError` and `RetryLater` of a callable codec (a
        schema registry that is down).

    Raises:
        HandlerError: the codec is none of these.
    """
    if codec is not None and not callable(codec):
        raise HandlerError(f"codec takes bytes, str or a callable; it was given {codec!r}.")
    if inspect.iscoroutinefunction(codec) or inspect.iscoroutinefunction(getattr(codec, "__call__", None)):  # noqa: B004
        raise HandlerError("codec is async, and is called before the handler's event loop runs: it must not be.")
    adapter: TypeAdapter[Any] | None = TypeAdapter(_validatable(annotation)) if _validates(annotation) else None
    if codec is None:
        return _guarded(_json if adapter is None else adapter.validate_json)
    if codec is bytes:
        read: Callable[[bytes], Any] = bytes
    elif codec is str:
        read = _utf8
    else:
        read = codec
    if adapter is None:
        return _guarded(read)
    validate = adapter.validate_python
    return _guarded(lambda value: validate(read(value)))


def _guarded(decode: Callable[[bytes], Any]) -> Decode:
    def guarded(value: bytes | None) -> Any:
        if value is None:
            return None
        try:
            return decode(value)
        except (OSError, RetryLater, MemoryError):
            raise
        except ValidationError as error:
            raise Undecodable(_problems(error)) from None
        except Exception as error:
            raise Undecodable(f"{type(error).__name__}: {error}") from error

    return guarded


def _json(value: bytes) -> Any:
    """What `json.loads` makes of bytes, without its look for other encodings where the value is UTF-8."""
    try:
        return _read_json(str(value, "utf-8"))
    except ValueError:
        return json.loads(value)


def _utf8(value: bytes) -> str:
    return value.decode("utf-8")


def _problems(error: ValidationError) -> str:
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
