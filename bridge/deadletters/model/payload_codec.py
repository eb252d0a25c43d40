"""The values of letters as people read and edit them: those that a schema of a registry wrote are JSON here.

Handlers are not needed for that: a value names its schema, and the settings name the registry. Masks, search words,
edits and patches take the JSON; an edit is written by the schema that wrote the value before it.
"""

from dataclasses import replace
from typing import Final, NamedTuple, Self

from bridge.deadletters.model.letter_view import LetterView
from bridge.deadletters.model.stored_letter import StoredLetter
from bridge.errors import EditRefused, RegistryUnavailable, SchemaPending, ValueUnfit
from bridge.formats.delivery import Headers
from bridge.formats.schema_frame import SchemaFrame, read_frame
from bridge.formats.schema_registry import RegistryOptions, SchemaRegistry, ValueFormat


class ReadableValue(NamedTuple):
    """A value for people.

    Attributes:
        value: as JSON if a schema wrote it; else as it is.
        schema: "Avro, schema 12"; or why it was not read by the schema that it names; empty: it names none.
        is_decoded: whether `value` is the JSON of other bytes.
    """

    value: bytes | None
    schema: str = ""
    is_decoded: bool = False


class PayloadCodec:
    """The reader and writer of values by their schemas.

    Parameters:
        registry: `None`: values are as they are.
    """

    def __init__(self, registry: SchemaRegistry | None) -> None:
        self._registry = registry

    @classmethod
    def from_options(cls, options: RegistryOptions | None) -> Self:
        """Return the codec of the registry that the settings name."""
        return cls(None if options is None else SchemaRegistry(options))

    def close(self) -> None:
        """Close the connections to the registry; the next schema opens others."""
        if self._registry is not None:
            self._registry.close()

    def read(self, value: bytes | None, headers: Headers) -> ReadableValue:
        """Return a value for people. Never raises: what its schema does not read stays as it is."""
        if self._registry is None or not value or (frame := read_frame(value, headers)) is None:
            return ReadableValue(value)
        try:
            found = self._registry.find_format(frame.schema)
            return ReadableValue(found.to_json(frame).encode("utf-8", "surrogatepass"), _name(found, frame), True)
        except (RegistryUnavailable, ValueUnfit) as error:
            return ReadableValue(value, f"not read by schema {frame.schema}: {error}")
        except Exception as error:
            # The recorder reads every letter. Not the error's message, which may quote the value.
            return ReadableValue(value, f"not read by schema {frame.schema}: {type(error).__name__}")

    def read_letter(self, letter: LetterView) -> LetterView:
        """Return a letter with its values for people; itself if they are that already."""
        if self._registry is None or letter.schema:
            return letter
        found = self.read(letter.value, letter.headers)
        history = tuple(replace(each, value=self.read(each.value, letter.headers).value) for each in letter.history)
        edits = tuple(replace(each, value=self.read(each.value, letter.headers).value) for each in letter.edits)
        encoded = letter.value if found.is_decoded else None
        return replace(letter, value=found.value, encoded=encoded, schema=found.schema, history=history, edits=edits)

    def index(self, letter: StoredLetter) -> StoredLetter:
        """Return a letter that is found by the words of its value for people."""
        if self._registry is None:
            return letter
        found = self.read(letter.value, letter.headers)
        return replace(letter, readable=found.value) if found.is_decoded else letter

    def write(self, value: bytes | None, before: bytes | None, headers: Headers) -> bytes | None:
        """Return the bytes of an edited value for Kafka.

        Parameters:
            value: JSON, if a schema wrote the value before; bytes of that schema stay as they are.
            before: the value before, as in Kafka; `None`: it is not known, or a tombstone.
            headers: of its record.

        Raises:
            EditRefused: the value does not fit its schema, or the registry is unavailable.
        """
        frame = None if self._registry is None or not before else read_frame(before, headers)
        if value is None or frame is None or self._registry is None or value == before:
            return value
        try:
            found = self._registry.find_format(frame.schema)
        except RegistryUnavailable as error:
            raise EditRefused(f"Its value is written by schema {frame.schema}, and {error}.") from None
        except SchemaPending as error:
            # Another server of the registry may know the schema: the bytes would go out without its frame.
            raise EditRefused(f"Its value is written by schema {frame.schema}, and {error}.") from None
        except ValueUnfit:
            # No schema is known: it is a value as any other.
            return value
        try:
            if frame.prefix and value.startswith(frame.prefix):
                found.check_fit(replace(frame, body=value.removeprefix(frame.prefix)))
                return value
            return found.from_json(value.decode("utf-8", "surrogatepass"), frame)
        except ValueUnfit as error:
            raise EditRefused(f"It does not fit {_name(found, frame)}: {error}.") from None
        except Exception:
            # With its schema in a header, the value may be the bytes.
            if not frame.prefix and _fits(found, replace(frame, body=value)):
                return value
            raise EditRefused(f"It is no JSON from which {_name(found, frame)} makes a value.") from None


#: The codec without a registry.
PLAIN_PAYLOADS: Final = PayloadCodec(None)


def _fits(found: ValueFormat, frame: SchemaFrame) -> bool:
    try:
        found.check_fit(frame)
    except ValueUnfit:
        return False
    return True


def _name(found: ValueFormat, frame: SchemaFrame) -> str:
    return f"{found.kind}, schema {frame.schema}"
