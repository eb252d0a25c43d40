"""The frame of a value that a schema wrote: the schema's id before the value, or in a header of its record (pure).

Confluent's serializers write a zero byte and the id in four bytes, or a one and the schema's GUID in 16; newer ones
write the same into a header. Apicurio's write the former.
"""

from dataclasses import dataclass
from typing import Final
from uuid import UUID

from bridge.errors import ValueUnfit
from bridge.formats.delivery import Headers

#: The header in which serializers write the id of a value's schema.
SCHEMA_HEADER: Final = "__value_schema_id"
#: Most indexes of a Protobuf message within its file: as deep as messages are nested.
_DEEPEST: Final = 64


@dataclass(frozen=True, slots=True)
class SchemaFrame:
    """A value with its schema's id.

    Attributes:
        schema: the id, or the GUID as text.
        prefix: the bytes of the id before the value; empty if it is in a header.
        body: the bytes behind them.
        in_header: the bytes behind the id in its header; `None` if it is before the value.
    """

    schema: int | str
    prefix: bytes
    body: bytes
    in_header: bytes | None = None

    def split_indexes(self) -> tuple[list[int], bytes, bytes]:
        """Return the indexes of a Protobuf message, their bytes before the value, and the value.

        Raises:
            ValueUnfit: there are none.
        """
        data = self.body if self.in_header is None else self.in_header
        indexes, length = _read_indexes(data)
        if self.in_header is None:
            return indexes, self.body[:length], self.body[length:]
        return indexes, b"", self.body


def read_frame(value: bytes, headers: Headers) -> SchemaFrame | None:
    """Return a value's frame; `None` if it names no schema.

    >>> read_frame(bytes.fromhex("000000002a") + b"body", ())
    SchemaFrame(schema=42, prefix=b'\\x00\\x00\\x00\\x00*', body=b'body', in_header=None)
    >>> read_frame(b'{"id": 1}', ())
    """
    named = next((said for name, said in reversed(headers) if name == SCHEMA_HEADER and said), None)
    if named is not None and (length := _id_length(named)):
        return SchemaFrame(_read_id(named, length), b"", value, named[length:])
    length = _id_length(value)
    return SchemaFrame(_read_id(value, length), value[:length], value[length:]) if length else None


def _id_length(data: bytes) -> int:
    if data[:1] == b"\0" and len(data) >= 5:
        return 5
    return 17 if data[:1] == b"\1" and len(data) >= 17 else 0


def _read_id(data: bytes, length: int) -> int | str:
    return int.from_bytes(data[1:5]) if length == 5 else str(UUID(bytes=data[1:17]))


def _read_indexes(data: bytes) -> tuple[list[int], int]:
    count, at = _read_varint(data, 0)
    if count == 0:
        return [0], at
    if not 0 < count <= _DEEPEST:
        raise ValueUnfit(f"it names a message at a depth of {count}")
    indexes = []
    for _ in range(count):
        index, at = _read_varint(data, at)
        indexes.append(index)
    return indexes, at


def _read_varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while at < len(data) and shift < 35:
        byte = data[at]
        value |= (byte & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if byte < 0x80:
            return (value >> 1) ^ -(value & 1), at
    raise ValueUnfit("it does not say which message it is")
