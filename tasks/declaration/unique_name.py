"""`unique_by`: the name by which a second record with the same message is known (pure)."""

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, is_dataclass
from math import isfinite
from types import UnionType
from typing import Any, Final, Union, get_args, get_origin
from uuid import UUID

from pydantic import BaseModel, RootModel

from bridge.formats.delivery import Message
from tasks.declaration.message_codec import MessageCodec
from tasks.declaration.value_codec import NOT_ITS_FAULT, Decode
from tasks.errors import DeadLetter, HandlerError
from tasks.policy.retry_when_function import function_name

#: `"header:message_id"`, `"field:order.id"`, or a function of the message; a message without a name gives `None`.
UniqueBy = str | Callable[[Message], str | bytes | int | UUID | None]

#: The default seconds for which a name is known after its record was done, the least, and the most: 30 days.
DEFAULT_WINDOW: Final = 3_600
SHORTEST_WINDOW, LONGEST_WINDOW = 1, 30 * 86_400
_HEADER: Final = "header:"
_FIELD: Final = "field:"
_FORMS: Final = '"header:NAME", "field:NAME" (of the decoded value; "field:order.id" reaches inside) or a function'


@dataclass(frozen=True, slots=True)
class UniqueName:
    """The rule by which a handler's messages have names.

    Attributes:
        by: a header, a field of the decoded value, or a function of the message.
        seconds: how long a name is known after its record was done.
        scope: the handler for which a name is unique, in each topic; an alias and its handler have the same.
        fields: makes of a decoded value what `field:` looks into; `None`: the value itself.
    """

    by: UniqueBy
    seconds: float
    scope: str
    fields: Callable[[Any], Any] | None = None

    def find(self, message: Message, decode: Decode) -> bytes | None:
        """Return the name of a message; `None`: it has none, and is no duplicate of any.

        Parameters:
            decode: makes the handler's value of the message.

        Raises:
            DeadLetter: what was found is neither text nor bytes, a whole number or a UUID.
            Exception: the function's own, or the value cannot be read now: the schema registry is down.
        """
        if callable(self.by):
            found: Any = self.by(message)
        elif self.by.startswith(_HEADER):
            found = message.header(self.by.removeprefix(_HEADER))
        else:
            found = self._find_field(message, decode, self.by.removeprefix(_FIELD))
        if isinstance(found, bytes):
            return found or None
        if found is None or found == "":
            return None
        if isinstance(found, str | int | UUID) and not isinstance(found, bool):
            return str(found).encode("utf-8", "surrogatepass")
        if inspect.iscoroutine(found):
            found.close()
        raise DeadLetter(
            f"unique_by={self._describe()} found a {type(found).__name__} in {message.coordinates}: a name is a text, "
            "bytes, a whole number or a UUID, or None for a message without one."
        )

    def _find_field(self, message: Message, decode: Decode, path: str) -> Any:
        try:
            found: Any = decode(message)
            if self.fields is not None and found is not None:
                found = self.fields(found)
        except NOT_ITS_FAULT:
            raise
        except Exception:
            # The handler's own decoding says what is wrong, and what becomes of it.
            return None
        for part in path.split("."):
            found = found.get(part) if isinstance(found, Mapping) else getattr(found, part, None)
        return found

    def _describe(self) -> str:
        return function_name(self.by) if callable(self.by) else repr(self.by)


def make_unique_name(name: str, scope: str, by: Any, seconds: Any, codec: Any) -> UniqueName | None:
    """Return the rule of the options `unique_by` and `unique_for`; `None` without them.

    Parameters:
        name: the handler's name, for errors.
        scope: the name under which its messages' names are kept.
        codec: the handler's option: bytes and text have no fields.

    Raises:
        HandlerError: something is wrong with them.
    """
    if by is None:
        if seconds is not None:
            raise HandlerError(f"{name}: unique_for needs unique_by, which says what names a message.")
        return None
    window = DEFAULT_WINDOW if seconds is None else seconds
    is_number = isinstance(window, int | float) and not isinstance(window, bool) and isfinite(window)
    if not is_number or not SHORTEST_WINDOW <= window <= LONGEST_WINDOW:
        raise HandlerError(
            f"{name}: unique_for takes seconds, from {SHORTEST_WINDOW} to {LONGEST_WINDOW:,} (30 days); "
            f"it was given {window!r}."
        )
    if isinstance(by, str):
        _check_text(name, by, codec)
    else:
        _check_function(name, by)
    return UniqueName(by, float(window), scope, codec.find_fields if isinstance(codec, MessageCodec) else None)


def _check_text(name: str, by: str, codec: Any) -> None:
    kind = next((kind for kind in (_HEADER, _FIELD) if by.startswith(kind)), "")
    named = by.removeprefix(kind)
    parts = named.split(".") if kind == _FIELD else [named]
    if not kind or not all(part and part == part.strip() for part in parts):
        meant = f': is "header:{by}" or "field:{by}" meant?' if by and ":" not in by else "."
        raise HandlerError(f"{name}: unique_by takes {_FORMS}; it was given {by!r}{meant}")
    if kind == _FIELD and codec in (bytes, str):
        raise HandlerError(
            f"{name}: unique_by={by!r}: with codec={codec.__name__} the value has no fields: give a function of the "
            "message."
        )


def check_named_field(name: str, unique: UniqueName, annotation: Any) -> None:
    """Refuse a field that the values of a JSON handler cannot have: no message would have a name.

    Parameters:
        annotation: of the handler's value.

    Raises:
        HandlerError: with the fields that there are.
    """
    if callable(unique.by) or not unique.by.startswith(_FIELD):
        return
    field = unique.by.removeprefix(_FIELD).split(".")[0]
    parts = get_args(annotation) if get_origin(annotation) in (UnionType, Union) else (annotation,)
    kinds = [part for part in parts if part is not type(None)]
    known = _list_fields(kinds[0]) if len(kinds) == 1 else None
    if known is not None and field not in known and not hasattr(kinds[0], field):
        raise HandlerError(
            f"{name}: unique_by={unique.by!r}: {kinds[0].__name__} has no field {field!r}: it has {', '.join(known)}."
        )


def _list_fields(kind: Any) -> list[str] | None:
    """Return all fields that instances of a pydantic model or a dataclass have; `None` if they may have others."""
    if not isinstance(kind, type) or not (issubclass(kind, BaseModel) or is_dataclass(kind)):
        return None
    config = getattr(kind, "model_config", None) or getattr(kind, "__pydantic_config__", None) or {}
    validators = getattr(getattr(kind, "__pydantic_decorators__", None), "model_validators", None)
    reads = getattr(kind, "__getattr__", None)
    has_others = config.get("extra") == "allow" or reads not in (None, getattr(BaseModel, "__getattr__", None))
    if validators or has_others or issubclass(kind, RootModel) or hasattr(kind, "__post_init__"):
        return None
    return [*kind.model_fields] if issubclass(kind, BaseModel) else [field.name for field in fields(kind)]


def _check_function(name: str, by: Any) -> None:
    if not callable(by) or inspect.isclass(by):
        raise HandlerError(f"{name}: unique_by takes {_FORMS}; it was given {by!r}.")
    if inspect.iscoroutinefunction(by) or inspect.isgeneratorfunction(by) or inspect.isasyncgenfunction(by):
        raise HandlerError(f"{name}: unique_by: {function_name(by)} is async, or yields: it must answer when called.")
    try:
        inspect.signature(by).bind(None)
    except TypeError:
        raise HandlerError(f"{name}: unique_by: {function_name(by)} is called with the message alone.") from None
    except ValueError:
        # Some functions written in C have no signature.
        pass
