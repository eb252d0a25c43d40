"""The codec of CloudEvents in Kafka: attributes in headers (binary), or all of the event in the value (structured)."""

import json
from typing import Any, Final

from bridge.errors import how_to_install
from bridge.formats.delivery import Message
from tasks.declaration.message_codec import Encoded, EncodedValue, MessageCodec
from tasks.errors import HandlerError, Undecodable

_ATTRIBUTE: Final = "ce_"
_CONTENT_TYPE: Final = "content-type"
_REQUIRED: Final = ("id", "source", "specversion", "type")
_BATCH: Final = "application/cloudevents-batch"


class CloudEvents(MessageCodec):
    """The codec of CloudEvents: the handler gets the event, as the library `cloudevents` has it.

    Raises:
        HandlerError: the library is not installed.
    """

    validates = False

    def __init__(self) -> None:
        try:
            from cloudevents.core.bindings import kafka
            from cloudevents.core.bindings.common import get_event_factory_for_version
            from cloudevents.core.formats.json import JSONFormat
        except ImportError as error:
            raise HandlerError(f"CloudEvents() needs {error.name}; {how_to_install('cloudevents')}.") from None
        self._binding, self._format = kafka, JSONFormat()
        self._factory_of = get_event_factory_for_version

    def is_tombstone(self, record: Encoded) -> bool:
        """Return whether a record has neither a value nor an event's attributes."""
        return record.value is None and not _list_attributes(record)

    def decode(self, record: Encoded) -> Any:
        """Return the event.

        Raises:
            Undecodable: it is none.
        """
        value, headers = record.value or b"", _list_attributes(record)
        kind = next((said for name, said in reversed(record.headers) if name.lower() == _CONTENT_TYPE and said), b"")
        if headers and kind:
            headers[_CONTENT_TYPE] = kind
        if not headers and kind.decode("latin-1").lower().startswith(_BATCH):
            raise Undecodable("it is a batch of events: CloudEvents in Kafka are one a record")
        try:
            sent = self._binding.KafkaMessage(headers, None, value)
            event = self._binding.from_kafka(sent, self._format, self._make_event)
        except Undecodable:
            raise
        except Exception as error:
            raise Undecodable(f"it is no CloudEvent: {_explain(error)}") from None
        if headers and value and _says_json(event.get_datacontenttype()):
            _check_json(value)
        return event

    def _make_event(self, attributes: dict[str, Any], data: Any) -> Any:
        """Return the event without the id and the time that the library invents where they are missing."""
        if missing := [name for name in _REQUIRED if not attributes.get(name)]:
            raise Undecodable(f"it is no CloudEvent: {', '.join(missing)} is missing")
        timed = "time" in attributes
        event: Any = self._factory_of(str(attributes["specversion"]))(attributes, data)
        if not timed:
            event.get_attributes().pop("time", None)
        return event

    def find_fields(self, value: Any) -> Any:
        """Return what `unique_by="field:…"` looks into: the attributes of an event, and its `data`."""
        return {**value.get_attributes(), "data": value.get_data()}

    def identify(self, message: Message) -> str | None:
        """Return the identity of a message's event, for `unique_by`: its source and its id; `None`: it has none."""
        try:
            event = self.decode(EncodedValue(message.value, message.headers))
        except Undecodable:
            # The handler's own decoding says what is wrong, and what becomes of it.
            return None
        # A source and an id may have spaces: two lists of them are one text only if they are one list.
        return json.dumps([event.get_source(), event.get_id()], ensure_ascii=False)


def _list_attributes(record: Encoded) -> dict[str, bytes]:
    """Return the headers that are attributes of an event."""
    return {
        name.lower(): said for name, said in record.headers if said is not None and name.lower().startswith(_ATTRIBUTE)
    }


def _says_json(kind: str | None) -> bool:
    subtype = (kind or "application/json").partition(";")[0].strip().lower()
    return subtype.endswith(("/json", "+json"))


def _check_json(value: bytes) -> None:
    """Raise Undecodable for data that is no JSON, which the library would give as text."""
    try:
        json.loads(value)
    except (ValueError, RecursionError):
        raise Undecodable("the event's data is to be JSON, and is none") from None


def _explain(error: Exception) -> str:
    """Return the faults of an event without its content."""
    errors = getattr(error, "errors", None)
    if isinstance(errors, dict) and errors:
        return f"{', '.join(sorted(map(str, errors)))} missing or invalid"
    return type(error).__name__
