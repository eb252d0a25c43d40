"""The schema registry: schemas by their id, each asked for once by a process, and the formats of their values.

Confluent's client speaks to it, and to Apicurio by its API for that. A registry that is down, or answers without a
schema, is asked again after a pause. An unknown id, or a text that cannot be read, may come within its first minute,
and then is asked for once a minute. The libraries are loaded with the first value that names a schema.
"""

import base64
import re
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final, NamedTuple, Protocol

from bridge.errors import RegistryUnavailable, SchemaPending, ValueUnfit, how_to_install
from bridge.formats.schema_frame import SchemaFrame
from lossless.background_thread import start_call

#: Seconds that a whole answer may take (of several addresses: together), and until a registry that failed is asked
#: again.
ANSWER_WITHIN: Final = 5.0
ASKED_AGAIN: Final = 5.0
#: Seconds for which an unknown id may come yet, and for which it is remembered after them; the most of them.
PENDING_FOR: Final = 60.0
UNKNOWN_FOR: Final = 60.0
MOST_UNKNOWN: Final = 1_000
#: The shape in which a registry gives a Protobuf schema without its text: a descriptor as base64.
SERIALIZED: Final = "serialized"
NO_DESCRIPTOR: Final = "the registry makes no descriptor of its schema"
#: The classes of error codes by which a registry says that it has no such schema, or no such id.
_ABSENT: Final = (404, 422)
_NO_API: Final = (
    "this address has no such API (HTTP 404): see SCHEMA_REGISTRY_URL (Apicurio's ends in /apis/ccompat/v7)"
)
#: The variables with which a registry is reached.
REGISTRY_VARIABLES: Final = (
    "SCHEMA_REGISTRY_URL",
    "SCHEMA_REGISTRY_USERNAME",
    "SCHEMA_REGISTRY_PASSWORD",
    "SCHEMA_REGISTRY_TOKEN",
    "SCHEMA_REGISTRY_CA_FILE",
)


@dataclass(frozen=True, slots=True)
class RegistryOptions:
    """The settings with which a registry is reached.

    Attributes:
        url: several with commas between them.
        user, password: HTTP's basic authentication.
        token: sent as a bearer token.
        ca_file: the certificates that sign the registry's.
    """

    url: str
    user: str = ""
    password: str = field(default="", repr=False)
    token: str = field(default="", repr=False)
    ca_file: str = ""

    @property
    def place(self) -> str:
        """The address for people: without what precedes its `@`, which may be a login."""
        return re.sub(r"//[^,]*@", "//…@", self.url)

    @property
    def client_settings(self) -> dict[str, Any]:
        """Return the settings of Confluent's client."""
        # The addresses are tried one after another.
        timeout = ANSWER_WITHIN / len(self.url.split(","))
        made: dict[str, Any] = {"url": self.url, "timeout": timeout, "max.retries": 0}
        if self.ca_file:
            made["ssl.ca.location"] = self.ca_file
        if self.user:
            made["basic.auth.user.info"] = f"{self.user}:{self.password}"
        if self.token:
            fields = {"bearer.auth.token": self.token, "bearer.auth.logical.cluster": ""}
            made["bearer.auth.credentials.source"] = "CUSTOM"
            made["bearer.auth.custom.provider.function"] = lambda _: fields
            made["bearer.auth.custom.provider.config"] = {}
        return made


def read_registry_options(values: Mapping[str, str]) -> RegistryOptions | None:
    """Return the options that variables give; `None` without a registry."""
    url, user, password, token, ca_file = (values.get(name, "").strip() for name in REGISTRY_VARIABLES)
    return RegistryOptions(url, user, password, token, ca_file) if url else None


class ValueFormat(Protocol):
    """The format of the values of one schema.

    Attributes:
        kind: "Avro", "Protobuf" or "JSON Schema".
    """

    kind: str

    def decode(self, frame: SchemaFrame) -> Any:
        """Return the value for a handler; raise ValueUnfit if it does not fit the schema."""

    def to_json(self, frame: SchemaFrame) -> str:
        """Return the value as JSON; raise ValueUnfit if it does not fit the schema, or JSON cannot say it."""

    def check_fit(self, frame: SchemaFrame) -> None:
        """Raise ValueUnfit if the bytes do not fit the schema, whether JSON can say them or not."""

    def from_json(self, text: str, frame: SchemaFrame) -> bytes:
        """Return a record's value with the content of a JSON text; raise ValueUnfit if that does not fit."""


class _UnknownSchema(NamedTuple):
    """A schema that nothing here reads.

    Attributes:
        why: the registry does not have it, or has one of another kind.
        pending_until: the time until which the registry may get it.
        ask_at: the time at which it is asked for again.
    """

    why: str
    pending_until: float
    ask_at: float


class SchemaRegistry:
    """A schema registry.

    Parameters:
        make_client: makes a client of its settings.
        clock: seconds that never go back.
    """

    def __init__(
        self,
        options: RegistryOptions,
        make_client: "Callable[[dict[str, Any]], Any] | None" = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.options = options
        self._make, self._clock = make_client or _make_client, clock
        self._clients: dict[str, Any] = {}
        self._formats: dict[int | str, ValueFormat] = {}
        self._unknown: OrderedDict[int | str, _UnknownSchema] = OrderedDict()
        self._down_since: float | None = None
        self._ask_at, self._why = 0.0, ""

    def find_format(self, schema: int | str) -> ValueFormat:
        """Return the format of a schema, by its id or GUID.

        Raises:
            RegistryUnavailable: the registry did not tell.
            SchemaPending: it has had no such schema, or a text that cannot be read, for less than a minute.
            ValueUnfit: it has no such schema, or one that nothing here reads.
        """
        found = self._formats.get(schema)
        if found is None:
            found = self._formats[schema] = self._fetch_format(schema)
        return found

    def check(self) -> str:
        """Return which schemas the registry has, in words.

        Raises:
            RegistryUnavailable: it did not tell.
        """
        try:
            kinds = self._ask(lambda: self._client().get_schema_types(), "types")
        except ValueUnfit:
            # Every registry has types: a server that has no such path answers so.
            raise RegistryUnavailable(f"the schema registry {self.options.place} is unavailable: {_NO_API}") from None
        return ", ".join(sorted(map(str, kinds or ())))

    def close(self) -> None:
        """Close the connections; the next schema opens others."""
        while self._clients:
            _, client = self._clients.popitem()
            client.close()

    def _fetch_format(self, schema: int | str) -> ValueFormat:
        unknown = self._unknown.get(schema)
        if unknown is not None and (now := self._clock()) < unknown.ask_at:
            raise _make_error(unknown, now)
        found = self._fetch(schema, "")
        try:
            return self._build_format(schema, found)
        except (RegistryUnavailable, ValueUnfit):
            raise
        except ImportError as error:
            raise _explain_missing(error) from None
        except Exception as error:
            why = f"its schema {schema} cannot be read ({type(error).__name__}: {str(error)[:200]})"
            # A gateway may have answered in the registry's place.
            self._forget_answers()
            raise self._remember_unknown(schema, why, PENDING_FOR) from None

    def _build_format(self, schema: int | str, found: Any) -> ValueFormat:
        kind = found.schema_type or "AVRO"
        if kind == "AVRO":
            from bridge.formats.avro_schema import AvroFormat

            return AvroFormat(found.schema_str, self._fetch_references(found))
        if kind == "PROTOBUF":
            from bridge.formats.protobuf_schema import ProtobufFormat

            found = self._fetch(schema, SERIALIZED)
            if not _is_base64(found.schema_str):
                raise self._remember_unknown(schema, NO_DESCRIPTOR)
            return ProtobufFormat(found.schema_str, self._fetch_references(found, SERIALIZED))
        if kind == "JSON":
            from bridge.formats.json_schema import JsonSchemaFormat

            return JsonSchemaFormat(found.schema_str, self._fetch_references(found))
        raise self._remember_unknown(schema, f"its schema {schema} is of the kind {str(kind)[:50]!r}")

    def _fetch_references(self, found: Any, shape: str = "") -> dict[str, str]:
        """Return the schemas that a schema names, by name, those first that others name."""
        made: dict[str, str] = {}
        for each in found.references or ():
            if each.name in made:
                continue
            client = self._client(shape)
            ask = partial(client.get_version, each.subject, each.version, True, shape or None)
            named = self._ask(partial(_read_version, ask, shape), f"version {each.version} of {each.subject}")
            made = {**made, **self._fetch_references(named, shape), each.name: named.schema_str}
        return made

    def _fetch(self, schema: int | str, shape: str) -> Any:
        client = self._client(shape)
        get = client.get_schema if isinstance(schema, int) else client.get_schema_by_guid
        return self._ask(lambda: _require_text(get(schema, fmt=shape or None), shape), schema)

    def _client(self, shape: str = "") -> Any:
        """Return the client for a shape of schemas: each has a cache, which does not tell shapes apart."""
        if shape not in self._clients:
            try:
                self._clients[shape] = self._make(self.options.client_settings)
            except ImportError as error:
                raise _explain_missing(error) from None
            except Exception as error:
                raise RegistryUnavailable(
                    f"SCHEMA_REGISTRY_…: the client refuses these settings ({type(error).__name__}: {error})"
                ) from None
        return self._clients[shape]

    def _ask(self, request: Callable[[], Any], schema: int | str) -> Any:
        now = self._clock()
        if self._down_since is not None and now < self._ask_at:
            raise RegistryUnavailable(self._why, now - self._down_since)
        # In a thread: the client's own time is for each part of an answer, and a few bytes at a time have no bound.
        asked = start_call("schema registry", request)
        try:
            answer = asked.result(ANSWER_WITHIN)
        except RegistryUnavailable:
            raise
        except Exception as raised:
            error: Exception = raised
            if not asked.done():
                self.close()  # the thread ends with its connection
                error = TimeoutError(f"it has not answered within {ANSWER_WITHIN:g} s")
            status, code = getattr(error, "http_status_code", None), getattr(error, "error_code", None)
            if shape_fault := _find_shape_fault(error):
                raise self._remember_unknown(schema, shape_fault) from None
            if isinstance(code, int) and code // 100 in _ABSENT:
                self._down_since = None
                said = f"schema {schema}" if isinstance(schema, int) or "-" in schema else schema
                why = f"the schema registry {self.options.place} has no {said}"
                raise self._remember_unknown(schema, why, PENDING_FOR) from None
            self._forget_answers()
            self._why = f"the schema registry {self.options.place} is unavailable: {_explain(error, status)}"
            self._down_since = now if self._down_since is None else self._down_since
            self._ask_at = self._clock() + ASKED_AGAIN
            raise RegistryUnavailable(self._why, now - self._down_since) from None
        self._down_since = None
        return answer

    def _forget_answers(self) -> None:
        """Forget what the clients keep: they would give a wrong answer again, and ask no more."""
        for client in tuple(self._clients.values()):
            client.clear_caches()

    def _remember_unknown(self, schema: int | str, why: str, pending: float = 0.0) -> ValueUnfit:
        now, before = self._clock(), self._unknown.get(schema)
        if before is not None:
            until = before.pending_until
        else:
            # Of so many, some are forgotten before their minute is over: no value may be put off for ever.
            until = now + pending if len(self._unknown) < MOST_UNKNOWN else now
        unknown = _UnknownSchema(why, until, now + (ASKED_AGAIN if now < until else UNKNOWN_FOR))
        self._unknown[schema] = unknown
        self._unknown.move_to_end(schema)
        if len(self._unknown) > MOST_UNKNOWN:
            self._unknown.popitem(last=False)
        return _make_error(unknown, now)


def find_missing_library() -> str:
    """Return which library of the extra `registry` is not installed; empty: all are. It imports them."""
    try:
        import confluent_kafka.schema_registry  # noqa: F401

        import bridge.formats.avro_schema
        import bridge.formats.json_schema
        import bridge.formats.protobuf_schema  # noqa: F401
    except ImportError as error:
        return error.name or str(error)
    return ""


def _make_error(unknown: _UnknownSchema, now: float) -> ValueUnfit:
    return SchemaPending(unknown.why) if now < unknown.pending_until else ValueUnfit(unknown.why)


def _explain_missing(error: ImportError) -> RegistryUnavailable:
    """Return the error of a process that started with the library, or asks for no handler: a console, say."""
    needs = f"needs the extra registry ({error.name} is not installed)"
    return RegistryUnavailable(f"the schema registry {needs}; {how_to_install('registry')}")


def _make_client(settings: dict[str, Any]) -> Any:
    from confluent_kafka.schema_registry import SchemaRegistryClient

    return SchemaRegistryClient.new_client(settings)


def _read_version(ask: Callable[[], Any], shape: str) -> Any:
    return _require_text(ask().schema, shape)


def _require_text(found: Any, shape: str) -> Any:
    """Return a schema that has a text; raise ValueError if the answer is other JSON, as a gateway's may be.

    An empty text in another shape is a registry's answer that makes no descriptor.
    """
    text = getattr(found, "schema_str", None)
    if not isinstance(text, str) or not (text.strip() or shape):
        raise ValueError("it answered without the text of a schema")
    return found


def _find_shape_fault(error: Exception) -> str:
    """Return why a registry has a Protobuf schema, and makes no descriptor of it; empty: it is another fault.

    Apicurio 3.3 fails for a schema with a `package`, and else sends bytes in which those above 127 are lost.
    """
    words = str(getattr(error, "error_message", ""))
    return f"{NO_DESCRIPTOR}: {words[:200]}" if "SchemaException" in words else ""


def _is_base64(text: str) -> bool:
    try:
        return bool(base64.b64decode(text, validate=True))
    except ValueError:
        return False


def _explain(error: Exception, status: int | None) -> str:
    if status in (401, 403):
        return f"it refuses these credentials (HTTP {status}): see SCHEMA_REGISTRY_USERNAME or SCHEMA_REGISTRY_TOKEN"
    if status == 404:
        return _NO_API
    if status is not None:
        return f"it answered with HTTP {status}"
    return f"{type(error).__name__}: {str(error)[:200]}".rstrip(": ")
