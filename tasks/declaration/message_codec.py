"""Codecs that read more of a record than its value: the schema registry's, whose id may be in a header."""

import os
from abc import ABC, abstractmethod
from functools import cache
from typing import Any, NamedTuple, Protocol

from bridge.errors import RegistryUnavailable, SchemaPending, ValueUnfit
from bridge.formats.delivery import Headers
from bridge.formats.schema_frame import SchemaFrame, read_frame
from bridge.formats.schema_registry import SchemaRegistry, read_registry_options
from tasks.errors import HandlerError, RegistryDown, RetryLater, Undecodable

#: Seconds until a delivery runs again while the registry is down: as long as it has been down, within these.
_SHORTEST_WAIT, _LONGEST_WAIT = 10.0, 300.0


class Encoded(Protocol):
    """The parts of a record that codecs read; a `Message` has them."""

    @property
    def value(self) -> bytes | None:
        """The value, as produced."""

    @property
    def headers(self) -> Headers:
        """The producer's headers."""


class EncodedValue(NamedTuple):
    """A value with its record's headers."""

    value: bytes | None
    headers: Headers = ()


class MessageCodec(ABC):
    """A codec that is given the record's headers too.

    Attributes:
        reads_schemas: whether it asks a schema registry.
        validates: whether a model that annotates the handler's value validates what it gives.
    """

    reads_schemas = False
    validates = True

    @abstractmethod
    def decode(self, record: Encoded) -> Any:
        """Return the value that a handler gets; an exception makes a dead letter, but for OSError and RetryLater."""

    def is_tombstone(self, record: Encoded) -> bool:
        """Return whether the handler gets `None`, without this codec."""
        return record.value is None

    def find_fields(self, value: Any) -> Any:
        """Return what `unique_by="field:…"` looks into, for a value that this codec gave."""
        return value


class Registry(MessageCodec):
    """The codec of values that a schema of a schema registry wrote: Avro, Protobuf or JSON Schema.

    The record says which schema it is; SCHEMA_REGISTRY_URL says where the registry is.

    Parameters:
        protobuf: the generated class of Protobuf messages; the handler gets an instance in place of a dict, and the
            registry is not asked.

    Raises:
        HandlerError: `protobuf` is no such class.
    """

    def __init__(self, *, protobuf: Any = None) -> None:
        if protobuf is not None and not (isinstance(protobuf, type) and hasattr(protobuf, "DESCRIPTOR")):
            raise HandlerError(f"Registry(protobuf=…) takes a class that protoc generated; it was given {protobuf!r}.")
        self._protobuf, self.reads_schemas = protobuf, protobuf is None

    def decode(self, record: Encoded) -> Any:
        """Return the value: a dict, or an instance of the generated class.

        Raises:
            Undecodable: it names no schema, an unknown one, or does not fit its schema.
            RegistryDown: the registry is unavailable.
            RetryLater: it does not have the schema, or a text of it that can be read, yet.
        """
        frame = read_frame(record.value or b"", record.headers)
        if frame is None:
            raise Undecodable("the value names no schema: it begins with none of the bytes that a serializer writes")
        try:
            if self._protobuf is not None:
                return _parse_message(self._protobuf, frame)
            return find_registry().find_format(frame.schema).decode(frame)
        except SchemaPending as error:
            raise RetryLater(_SHORTEST_WAIT, f"{error}: it is asked for again") from None
        except ValueUnfit as error:
            raise Undecodable(f"the value does not decode by schema {frame.schema}: {error}") from None
        except RegistryUnavailable as error:
            raise RegistryDown(min(max(error.down_for, _SHORTEST_WAIT), _LONGEST_WAIT), str(error)) from None


def _parse_message(wanted: Any, frame: SchemaFrame) -> Any:
    """Return a Protobuf message as an instance of its class.

    Raises:
        ValueUnfit: it is another message, or does not fit the class.
    """
    indexes, _, body = frame.split_indexes()
    if indexes != (own := _list_indexes(wanted.DESCRIPTOR)):
        raise ValueUnfit(f"it is the message {indexes} of its file, and {wanted.__name__} is {own}")
    made = wanted()
    try:
        made.ParseFromString(body)
    except Exception:
        # Protobuf's DecodeError: that library is the user's.
        raise ValueUnfit(f"its bytes end early, or are of another message than {wanted.__name__}") from None
    return made


def _list_indexes(descriptor: Any) -> list[int]:
    """Return the indexes of a message in its file, from the outermost one that it is in."""
    if descriptor.containing_type is None:
        return [[*descriptor.file.message_types_by_name].index(descriptor.name)]
    outer = descriptor.containing_type
    return [*_list_indexes(outer), [each.name for each in outer.nested_types].index(descriptor.name)]


@cache
def find_registry() -> SchemaRegistry:
    """Return this process's schema registry, with all schemas that it has read.

    Raises:
        RegistryUnavailable: no registry is set.
    """
    options = read_registry_options(os.environ)
    if options is None:
        raise RegistryUnavailable("SCHEMA_REGISTRY_URL is not set, and a handler has codec=Registry()")
    return SchemaRegistry(options)
