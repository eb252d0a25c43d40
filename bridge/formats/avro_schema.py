"""Values of an Avro schema: as handlers get them, and as JSON that people read and edit (pure).

The JSON has the names that handlers see, no tags of unions: `{"customer": {"email": "…"}}`. A time is ISO 8601, a
decimal a number, bytes are text with a character for each byte. What it cannot say without a loss is refused.
"""

import json
import sys
from collections.abc import Iterator, Mapping
from datetime import UTC, date, datetime, timedelta
from decimal import MAX_EMAX, MAX_PREC, MIN_EMIN, Context, Decimal
from io import BytesIO
from math import isfinite
from typing import Any, Final

from fastavro import parse_schema, schemaless_reader, schemaless_writer

from bridge.errors import ValueUnfit
from bridge.formats.schema_frame import SchemaFrame

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_DAY: Final = date(1970, 1, 1)
#: Ticks of a second, by logical type.
_TICKS: Final = {
    "timestamp-millis": 1_000,
    "timestamp-micros": 1_000_000,
    "local-timestamp-millis": 1_000,
    "local-timestamp-micros": 1_000_000,
}
#: The types that a logical type may have.
_TYPES_OF_LOGIC: Final[dict[str, tuple[str, ...]]] = {
    "date": ("int",),
    "decimal": ("bytes", "fixed"),
    **dict.fromkeys(_TICKS, ("long",)),
}
_INTEGERS: Final = {"int": 31, "long": 63}
#: The largest number of a double.
_MOST: Final = Decimal(sys.float_info.max)
#: Moves the point of a decimal and rounds no digit.
_EXACT: Final = Context(prec=MAX_PREC, Emin=MIN_EMIN, Emax=MAX_EMAX)
_AMBIGUOUS: Final = "JSON cannot say which branch of a union it has: edit its bytes, as a file"
_NO_NUMBERS: Final = {"NaN": float("nan"), "Infinity": float("inf"), "-Infinity": float("-inf")}
_NAMES_OF_NO_NUMBERS: Final = {str(number): name for name, number in _NO_NUMBERS.items()}


class AvroFormat:
    """The format of one schema.

    Parameters:
        text: the schema.
        references: the schemas that it names, those first that others name.

    Raises:
        Exception: fastavro does not read the schema.
    """

    kind = "Avro"

    def __init__(self, text: str, references: Mapping[str, str]) -> None:
        self._schema = _parse([*references.values(), text])
        # Without logical types: the numbers and bytes as they are in the value.
        self._plain = _parse([json.dumps(_without_logic(json.loads(part))) for part in (*references.values(), text)])
        self._names: dict[str, Any] = {}
        for part in (*references.values(), text):
            _collect_names(json.loads(part), "", self._names)
        self._root = _qualify(json.loads(text), "")

    def decode(self, frame: SchemaFrame) -> Any:
        """Return the value for a handler, with Python's own types for dates, times and decimals.

        Raises:
            ValueUnfit: it does not fit the schema.
        """
        return self._read(frame.body, self._schema)

    def to_json(self, frame: SchemaFrame) -> str:
        """Return the value as JSON.

        Raises:
            ValueUnfit: it does not fit the schema.
        """
        return _write_json(self._to_tree(self._root, self._read_plain(frame.body)))

    def check_fit(self, frame: SchemaFrame) -> None:
        """Raise ValueUnfit if the bytes do not fit the schema, whether JSON can say them or not."""
        self._read_plain(frame.body)

    def from_json(self, text: str, frame: SchemaFrame) -> bytes:
        """Return the record's value with the content of a JSON text.

        Parameters:
            frame: of the value that it replaces.

        Raises:
            ValueUnfit: the text does not fit the schema, or JSON does not say all of the value that it replaces.
        """
        self._require_exact(frame)
        return frame.prefix + self._encode(json.loads(text, parse_float=Decimal))

    def _require_exact(self, frame: SchemaFrame) -> None:
        try:
            before = self._read_plain(frame.body)
        except ValueUnfit:
            # It has nothing to lose.
            return
        again = self._encode(json.loads(self.to_json(frame), parse_float=Decimal))
        if again != frame.body and repr(self._read_plain(again)) != repr(before):
            raise ValueUnfit(_AMBIGUOUS)

    def _encode(self, tree: Any) -> bytes:
        written = BytesIO()
        datum = self._from_tree(self._root, tree, ())
        try:
            schemaless_writer(written, self._plain, datum)
        except Exception as error:
            raise ValueUnfit(f"it does not fit ({type(error).__name__})") from None
        # The library may have chosen another branch of a union.
        self._to_tree(self._root, self._read_plain(written.getvalue()))
        return written.getvalue()

    def _read_plain(self, body: bytes) -> Any:
        return self._read(body, self._plain, return_named_type=True)

    def _read(self, body: bytes, schema: Any, **options: Any) -> Any:
        read = BytesIO(body)
        try:
            value = schemaless_reader(read, schema, None, **options)
        except Exception as error:
            raise ValueUnfit(f"its bytes end early, or are of another schema ({type(error).__name__})") from None
        if left := len(body) - read.tell():
            raise ValueUnfit(f"{left:,} bytes are left over behind it")
        return value

    def _to_tree(self, schema: Any, datum: Any) -> Any:
        schema = self._resolve(schema)
        if isinstance(schema, list):
            branch, datum = self._find_branch(schema, datum)
            return self._to_tree(branch, datum)
        match schema["type"]:
            case "record" | "error":
                return {each["name"]: self._to_tree(each["type"], datum[each["name"]]) for each in schema["fields"]}
            case "array":
                return [self._to_tree(schema["items"], each) for each in datum]
            case "map":
                return {name: self._to_tree(schema["values"], each) for name, each in datum.items()}
            case "float" | "double":
                return (
                    datum if isfinite(datum) else next(name for name in _NO_NUMBERS if str(float(name)) == str(datum))
                )
            case "bytes" | "fixed":
                return _decimal_of(schema, datum)
        return _time_of(schema, datum)

    def _find_branch(self, union: list[Any], datum: Any) -> tuple[Any, Any]:
        """Return the branch of a union that a datum is of, and the datum without its name."""
        if isinstance(datum, tuple):
            name, datum = datum
            return next(each for each in union if _name_of(self._resolve(each)) == name), datum
        branches = [each for each in map(self._resolve, union) if _may_have(each, datum)]
        if len({(each.get("logicalType"), each.get("scale")) for each in branches}) > 1:
            raise ValueUnfit(_AMBIGUOUS)
        return branches[0], datum

    def _from_tree(self, schema: Any, tree: Any, at: tuple[str, ...]) -> Any:
        schema = self._resolve(schema)
        if isinstance(schema, list):
            return self._from_union(schema, tree, at)
        match schema["type"]:
            case "record" | "error":
                return self._from_record(schema, tree, at)
            case "array" if isinstance(tree, list):
                return [self._from_tree(schema["items"], each, (*at, str(number))) for number, each in enumerate(tree)]
            case "map" if isinstance(tree, dict):
                return {name: self._from_tree(schema["values"], each, (*at, name)) for name, each in tree.items()}
            case "enum" if isinstance(tree, str) and tree in schema["symbols"]:
                return tree
            case "enum":
                raise _unfit(at, f"takes one of {', '.join(schema['symbols'])}")
        return _from_primitive(schema, tree, at)

    def _from_record(self, schema: Any, tree: Any, at: tuple[str, ...]) -> dict[str, Any]:
        fields = {each["name"]: each["type"] for each in schema["fields"]}
        if not isinstance(tree, dict):
            raise _unfit(at, "takes an object")
        if unknown := [name for name in tree if name not in fields]:
            raise _unfit((*at, unknown[0]), "is no field of the schema")
        if missing := [name for name in fields if name not in tree]:
            raise _unfit((*at, missing[0]), "is missing")
        return {name: self._from_tree(kind, tree[name], (*at, name)) for name, kind in fields.items()}

    def _from_union(self, union: list[Any], tree: Any, at: tuple[str, ...]) -> Any:
        faults = []
        # A text is rather text than bytes.
        for branch in sorted(union, key=lambda branch: self._resolve(branch)["type"] in ("bytes", "fixed")):
            resolved = self._resolve(branch)
            try:
                datum = self._from_tree(branch, tree, at)
            except ValueUnfit as error:
                if resolved["type"] != "null":
                    faults.append(str(error))
                continue
            named = resolved["type"] in ("record", "error", "enum", "fixed")
            return (_name_of(resolved), datum) if named else datum
        raise ValueUnfit(faults[0] if len(faults) == 1 else str(_unfit(at, "fits no branch of its union")))

    def _resolve(self, schema: Any) -> Any:
        """Return a schema as a mapping with its type, or the branches of a union."""
        while True:
            if isinstance(schema, str):
                schema = self._names.get(schema) or {"type": schema}
            if isinstance(schema, list) or not isinstance(schema["type"], dict | list):
                named = None if isinstance(schema, list) else self._names.get(schema["type"])
                if named is None or named is schema:
                    return schema
                schema = named
            else:
                schema = schema["type"]


#: The types of a schema that a datum of a Python type may have.
_KINDS: Final = {
    type(None): ("null",),
    bool: ("boolean",),
    int: ("int", "long"),
    float: ("float", "double"),
    str: ("string",),
    bytes: ("bytes",),
    list: ("array",),
    dict: ("map",),
}


def _may_have(schema: Any, datum: Any) -> bool:
    kind = schema["type"]
    return kind in _KINDS[type(datum)] and (kind not in _INTEGERS or _has_bits(kind, datum))


def _has_bits(kind: str, number: int) -> bool:
    return -(1 << _INTEGERS[kind]) <= number < (1 << _INTEGERS[kind])


def _parse(parts: list[str]) -> Any:
    named: dict[str, Any] = {}
    parsed: Any = None
    for part in parts:
        parsed = parse_schema(json.loads(part), named_schemas=named)
    return parsed


def _without_logic(schema: Any) -> Any:
    if isinstance(schema, dict):
        return {name: _without_logic(each) for name, each in schema.items() if name != "logicalType"}
    return [_without_logic(each) for each in schema] if isinstance(schema, list) else schema


def _collect_names(schema: Any, space: str, names: dict[str, Any]) -> None:
    for each in _list_named(_qualify(schema, space)):
        names[each["name"]] = each


def _list_named(schema: Any) -> Iterator[Any]:
    if isinstance(schema, list):
        for each in schema:
            yield from _list_named(each)
    elif isinstance(schema, dict):
        if schema["type"] in ("record", "error", "enum", "fixed"):
            yield schema
        for inner in (schema["type"], schema.get("items"), schema.get("values")):
            yield from _list_named(inner)
        for each in schema.get("fields", ()):
            yield from _list_named(each["type"])


_PRIMITIVES: Final = frozenset(("null", "boolean", "int", "long", "float", "double", "bytes", "string"))
_COMPLEX: Final = frozenset(("record", "error", "enum", "fixed", "array", "map"))


def _qualify(schema: Any, space: str) -> Any:
    """Return a schema in which every name of a type is a full name."""
    if isinstance(schema, str):
        return schema if schema in _PRIMITIVES or "." in schema or not space else f"{space}.{schema}"
    if isinstance(schema, list):
        return [_qualify(each, space) for each in schema]
    kind = schema["type"]
    made = dict(schema)
    if kind in ("record", "error", "enum", "fixed"):
        name = schema["name"]
        if "." in name:
            space = name.rpartition(".")[0]
        else:
            space = schema.get("namespace", space)
            made["name"] = f"{space}.{name}" if space else name
    if not isinstance(kind, str) or kind not in _COMPLEX:
        made["type"] = _qualify(kind, space)
    for inner in ("items", "values"):
        if inner in schema:
            made[inner] = _qualify(schema[inner], space)
    if kind in ("record", "error"):
        made["fields"] = [each | {"type": _qualify(each["type"], space)} for each in schema["fields"]]
    return made


def _name_of(schema: Any) -> str:
    return str(schema.get("name", "")) if isinstance(schema, dict) else ""


def _unfit(at: tuple[str, ...], words: str) -> ValueUnfit:
    return ValueUnfit(f"{'.'.join(at) or 'it'} {words}")


def _logic_of(schema: Any) -> str:
    """Return the logical type of a schema; empty without one, or with an invalid one, which Avro ignores."""
    logic = str(schema.get("logicalType", ""))
    is_valid = schema["type"] in _TYPES_OF_LOGIC.get(logic, ()) and (logic != "decimal" or schema.get("precision"))
    return logic if is_valid else ""


def _decimal_of(schema: Any, datum: bytes) -> Any:
    if _logic_of(schema) == "decimal":
        return Decimal(int.from_bytes(datum, signed=True)).scaleb(-schema.get("scale", 0), _EXACT)
    return datum.decode("latin-1")


def _time_of(schema: Any, datum: Any) -> Any:
    """Return a date or a time as text; the number if no calendar has it."""
    logic = _logic_of(schema)
    try:
        if logic == "date":
            return (_DAY + timedelta(days=datum)).isoformat()
        if logic in _TICKS:
            text = (_EPOCH + timedelta(microseconds=datum * 1_000_000 // _TICKS[logic])).isoformat()
            return text.removesuffix("+00:00") + ("" if logic.startswith("local") else "Z")
    except OverflowError:
        pass
    return datum


def _from_primitive(schema: Any, tree: Any, at: tuple[str, ...]) -> Any:
    kind, logic = schema["type"], _logic_of(schema)
    if kind == "null" and tree is None:
        return None
    if kind == "boolean" and isinstance(tree, bool):
        return tree
    if kind == "string" and isinstance(tree, str):
        return tree
    if kind in ("bytes", "fixed"):
        return _from_decimal(schema, tree, at) if logic == "decimal" else _from_octets(schema, tree, at)
    if kind in ("float", "double") and not isinstance(tree, bool):
        if isinstance(tree, int | Decimal) and Decimal(tree).copy_abs() <= _MOST:
            return float(tree)
        if isinstance(tree, str) and tree in _NO_NUMBERS:
            return _NO_NUMBERS[tree]
    if kind in _INTEGERS:
        number = _read_time(logic, tree, at) if isinstance(tree, str) else tree
        if isinstance(number, int) and not isinstance(number, bool) and _has_bits(kind, number):
            return number
    raise _unfit(at, f"takes {_WANTED.get(logic) or _WANTED.get(kind, kind)}")


_WANTED: Final = {
    "null": "null",
    "boolean": "true or false",
    "int": "a whole number of 32 bits",
    "long": "a whole number of 64 bits",
    "float": "a number",
    "double": "a number",
    "string": "text",
    "date": "a date, 2026-12-31",
    "timestamp-millis": "a time, 2026-12-31T12:00:00Z",
    "timestamp-micros": "a time, 2026-12-31T12:00:00Z",
    "local-timestamp-millis": "a time, 2026-12-31T12:00:00",
    "local-timestamp-micros": "a time, 2026-12-31T12:00:00",
}


def _read_time(logic: str, text: str, at: tuple[str, ...]) -> int:
    try:
        if logic == "date":
            return (date.fromisoformat(text) - _DAY).days
        found = datetime.fromisoformat(text)
        if logic in _TICKS and (found.tzinfo is None) == logic.startswith("local"):
            ticks = (found.replace(tzinfo=found.tzinfo or UTC) - _EPOCH) // timedelta(microseconds=1)
            number, rest = divmod(ticks, 1_000_000 // _TICKS[logic])
            if not rest:
                return number
            raise _unfit(at, "has more digits of a second than its type")
    except ValueError:
        pass
    raise _unfit(at, f"takes {_WANTED.get(logic, 'a whole number')}")


def _from_decimal(schema: Any, tree: Any, at: tuple[str, ...]) -> bytes:
    scale, precision = schema.get("scale", 0), schema["precision"]
    if isinstance(tree, bool) or not isinstance(tree, int | Decimal):
        raise _unfit(at, "takes a number")
    number = Decimal(tree)
    # An exponent of a few digits may say a number longer than memory.
    whole = int(number.scaleb(scale, _EXACT)) if not number or number.adjusted() + scale < precision else None
    if whole is None or Decimal(whole).scaleb(-scale, _EXACT) != number:
        raise _unfit(at, f"takes a number of {precision} digits, {scale} of them behind the point")
    if schema["type"] == "fixed":
        try:
            return whole.to_bytes(schema["size"], signed=True)
        except OverflowError:
            raise _unfit(at, f"takes a number of {schema['size']} bytes") from None
    return whole.to_bytes((whole + (whole < 0)).bit_length() // 8 + 1, signed=True)


def _from_octets(schema: Any, tree: Any, at: tuple[str, ...]) -> bytes:
    try:
        made = tree.encode("latin-1") if isinstance(tree, str) else None
    except UnicodeEncodeError:
        made = None
    size = schema.get("size")
    if made is None or (schema["type"] == "fixed" and len(made) != size):
        what = f"{size} bytes" if schema["type"] == "fixed" else "bytes"
        raise _unfit(at, f"takes {what}, a character of \\u0000 to \\u00ff for each")
    return made


def _write_json(tree: Any) -> str:
    """Return a tree as JSON; decimals keep all their digits."""
    if isinstance(tree, dict):
        members = (f"{json.dumps(name, ensure_ascii=False)}:{_write_json(each)}" for name, each in tree.items())
        return "{" + ",".join(members) + "}"
    if isinstance(tree, list):
        return "[" + ",".join(map(_write_json, tree)) + "]"
    return f"{tree:f}" if isinstance(tree, Decimal) else json.dumps(tree, ensure_ascii=False)
