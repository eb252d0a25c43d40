"""Values of a JSON Schema: JSON behind the schema's id (pure)."""

import json
from collections.abc import Mapping
from typing import Any

from jsonschema.exceptions import best_match
from jsonschema.validators import Draft7Validator, validator_for
from referencing import Registry
from referencing.jsonschema import DRAFT7

from bridge.errors import ValueUnfit
from bridge.formats.schema_frame import SchemaFrame

#: Most characters of a rule of a schema that a fault repeats.
_LONGEST_RULE = 200


class JsonSchemaFormat:
    """The format of one schema. Schemas elsewhere than in the registry are not fetched.

    Parameters:
        text: the schema.
        references: the schemas that it names, by the name in its `$ref`.

    Raises:
        Exception: jsonschema does not read the schema.
    """

    kind = "JSON Schema"

    def __init__(self, text: str, references: Mapping[str, str]) -> None:
        schema = json.loads(text)
        parts = [(name, DRAFT7.create_resource(json.loads(part))) for name, part in references.items()]
        registry: Registry[Any] = Registry().with_resources(parts)
        kind = validator_for(schema, default=Draft7Validator)
        kind.check_schema(schema)
        self._validator = kind(schema, registry=registry)

    def decode(self, frame: SchemaFrame) -> Any:
        """Return the value for a handler.

        Raises:
            ValueUnfit: it is no JSON, or does not fit the schema.
        """
        try:
            value = json.loads(frame.body)
        except (ValueError, RecursionError):
            raise ValueUnfit("it is no JSON") from None
        self._validate(value)
        return value

    def to_json(self, frame: SchemaFrame) -> str:
        """Return the value as it is, behind its id.

        Raises:
            ValueUnfit: it is no text.
        """
        try:
            return frame.body.decode()
        except UnicodeDecodeError:
            raise ValueUnfit("it is no JSON") from None

    def check_fit(self, frame: SchemaFrame) -> None:
        """Raise ValueUnfit if the value does not fit the schema."""
        self.decode(frame)

    def from_json(self, text: str, frame: SchemaFrame) -> bytes:
        """Return the record's value with a JSON text.

        Raises:
            ValueUnfit: the text does not fit the schema.
        """
        self._validate(json.loads(text))
        return frame.prefix + text.encode("utf-8", "surrogatepass")

    def _validate(self, value: Any) -> None:
        try:
            fault = best_match(self._validator.iter_errors(value))
        except Exception as error:
            raise ValueUnfit(f"its schema cannot be applied ({type(error).__name__}: {str(error)[:200]})") from None
        if fault is not None:
            place = ".".join(map(str, fault.absolute_path)) or "it"
            # Not the message of the library, which quotes the value.
            raise ValueUnfit(f"{place} breaks the rule {fault.validator}: {str(fault.validator_value)[:_LONGEST_RULE]}")
