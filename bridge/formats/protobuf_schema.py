"""Values of a Protobuf schema: as handlers get them, and as JSON that people read and edit (pure).

The names are those of the schema. Numbers are numbers, those of 64 bits too; an enumeration's value is its name; times
and other well-known types are as in Protobuf's own JSON. A field without a value is left out, if the schema can tell.
"""

import base64
import json
from collections.abc import Mapping
from math import isfinite
from typing import Any, Final

from confluent_kafka.schema_registry.common.protobuf import _init_pool
from google.protobuf import json_format
from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.descriptor_pb2 import FileDescriptorProto
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message import DecodeError
from google.protobuf.message_factory import GetMessageClass

from bridge.errors import ValueUnfit
from bridge.formats.schema_frame import SchemaFrame

#: The files of well-known types, which every pool has, and which no registry sends.
_BUILT_IN: Final = ("google/protobuf/", "google/type/", "confluent/")
#: The files of messages that Protobuf's JSON writes as something else than their fields.
_OF_JSON: Final = frozenset(
    f"google/protobuf/{name}.proto" for name in ("any", "duration", "field_mask", "struct", "timestamp", "wrappers")
)


class ProtobufFormat:
    """The format of the messages of one schema.

    Parameters:
        descriptor: of its file, as base64.
        references: of the files that it imports, by name, those first that others import.

    Raises:
        Exception: the descriptors do not go together.
    """

    kind = "Protobuf"

    def __init__(self, descriptor: str, references: Mapping[str, str]) -> None:
        self._pool = DescriptorPool()
        _init_pool(self._pool)
        for name, each in references.items():
            if not name.startswith(_BUILT_IN):
                self._pool.Add(_read_descriptor(name, each))
        self._file = _read_descriptor("default", descriptor)
        self._pool.Add(self._file)

    def decode(self, frame: SchemaFrame) -> Any:
        """Return the message as a dict for a handler, bytes as they are.

        Raises:
            ValueUnfit: it does not fit the schema.
        """
        return _to_tree(self._read(frame), text=False)

    def to_json(self, frame: SchemaFrame) -> str:
        """Return the message as JSON.

        Raises:
            ValueUnfit: it does not fit the schema.
        """
        return json.dumps(_to_tree(self._read(frame), text=True), ensure_ascii=False, separators=(",", ":"))

    def check_fit(self, frame: SchemaFrame) -> None:
        """Raise ValueUnfit if the bytes do not fit the schema, whether JSON can say them or not."""
        self._read(frame)

    def from_json(self, text: str, frame: SchemaFrame) -> bytes:
        """Return the record's value with the content of a JSON text.

        Raises:
            ValueUnfit: the text does not fit the schema, or the value has fields that the schema does not know.
        """
        kind, indexes, _ = self._find_kind(frame)
        self._require_exact(frame, kind)
        made = kind()
        try:
            json_format.ParseDict(json.loads(text), made, descriptor_pool=self._pool)
        except json_format.ParseError as error:
            raise ValueUnfit(str(error)[:300].rstrip(".")) from None
        return bytes(frame.prefix + indexes + made.SerializeToString(deterministic=True))

    def _require_exact(self, frame: SchemaFrame, kind: Any) -> None:
        try:
            before = self._read(frame)
        except ValueUnfit:
            # It has nothing to lose.
            return
        again = json_format.ParseDict(json.loads(self.to_json(frame)), kind(), descriptor_pool=self._pool)
        if again.SerializeToString(deterministic=True) != before.SerializeToString(deterministic=True):
            raise ValueUnfit("it has fields that its schema does not know: edit its bytes, as a file")

    def _read(self, frame: SchemaFrame) -> Any:
        kind, _, body = self._find_kind(frame)
        message = kind()
        try:
            message.ParseFromString(body)
        except DecodeError:
            raise ValueUnfit("its bytes end early, or are of another message") from None
        return message

    def _find_kind(self, frame: SchemaFrame) -> tuple[Any, bytes, bytes]:
        """Return the class of a value's message, the bytes that say which it is, and the message's bytes."""
        indexes, before, body = frame.split_indexes()
        kinds, names = self._file.message_type, [self._file.package] if self._file.package else []
        for index in indexes:
            if not 0 <= index < len(kinds):
                raise ValueUnfit(f"its schema has no message at {indexes}")
            names.append(kinds[index].name)
            kinds = kinds[index].nested_type
        return GetMessageClass(self._pool.FindMessageTypeByName(".".join(names))), before, body


def _read_descriptor(name: str, text: str) -> FileDescriptorProto:
    found = FileDescriptorProto()
    found.ParseFromString(base64.b64decode(text, validate=True))
    found.name = name
    return found


def _to_tree(message: Any, *, text: bool) -> Any:
    """Return a message as Python's own types.

    Parameters:
        text: whether JSON can say it: bytes are base64 then.

    Raises:
        ValueUnfit: Protobuf's JSON cannot say a well-known type: an `Any` of an unknown type, a time out of range.
    """
    descriptor = message.DESCRIPTOR
    if descriptor.file.name in _OF_JSON:
        try:
            return json_format.MessageToDict(message)
        except Exception as error:
            # Not the message of the library, which quotes the value.
            raise ValueUnfit(f"its {descriptor.full_name} has no JSON ({type(error).__name__})") from None
    made: dict[str, Any] = {}
    for each in descriptor.fields:
        value = getattr(message, each.name)
        if each.message_type is not None and each.message_type.GetOptions().map_entry:
            of = each.message_type.fields_by_name["value"]
            made[each.name] = {_write_key(key): _write_part(of, value[key], text) for key in value}
        elif each.is_repeated:
            made[each.name] = [_write_part(each, part, text) for part in value]
        elif not each.has_presence or message.HasField(each.name):
            made[each.name] = _write_part(each, value, text)
    return made


def _write_key(key: Any) -> str:
    return str(key).lower() if isinstance(key, bool) else str(key)


def _write_part(field: Any, value: Any, text: bool) -> Any:
    if field.cpp_type == FieldDescriptor.CPPTYPE_MESSAGE:
        return _to_tree(value, text=text)
    if field.cpp_type == FieldDescriptor.CPPTYPE_ENUM:
        found = field.enum_type.values_by_number.get(value)
        return value if found is None else found.name
    if field.type == FieldDescriptor.TYPE_BYTES:
        return base64.b64encode(value).decode() if text else value
    if isinstance(value, float) and text and not isfinite(value):
        return {"nan": "NaN", "inf": "Infinity", "-inf": "-Infinity"}[str(value)]
    return value
