"""Letters as lines of an export for somebody who does not see all of them (pure)."""

from typing import Any, Final

from bridge.deadletters.letters.letter import packed, unpacked
from bridge.deadletters.masking.hidden import Hidden, hidden, masked
from bridge.deadletters.masking.masks import Masks, headers, key, quoted
from bridge.deadletters.masking.quotes import Quotes
from bridge.deadletters.store.whole import Row
from bridge.settings.masks import Fields

#: Hashes: what has few values, one could guess by them. Without the first, `import` takes no such line.
_HASHES: Final = ("digest", "key_digest")


def shown(masks: Masks, row: Row) -> Row:
    """A letter with all that the database has of it, without what is hidden; as it is, where nothing can be."""
    fields = masks.of(row["topic"])
    if not fields:
        return row
    known = _quotes(row, fields)
    plain = {name: value for name, value in row.items() if name not in _HASHES}
    return plain | {
        "masked": True,
        "key": key(_bytes(row["key"]), fields, known),
        "value": _value(row["value"], fields),
        "headers": packed(headers(unpacked(bytes(row["headers"])), fields, known)),
        "error_message": known.masked(row["error_message"]),
        "traceback": known.masked(row["traceback"]),
        "history": [_failed(each, fields, known) for each in row["history"]],
        "edits": [{**each, "value": _value(each["value"], fields)} for each in row["edits"]],
    }


def _failed(row: Row, fields: Fields, known: Quotes) -> Row:
    said = {name: known.masked(row[name]) for name in ("error_message", "traceback")}
    return row | said | {"value": _value(row["value"], fields)}


def _quotes(row: Row, fields: Fields) -> Quotes:
    values: list[Hidden] = [hidden(_bytes(each["value"]), fields) for each in (row, *row["history"], *row["edits"])]
    # Of what failed before and has no size of its own, the value was the one that failed after it.
    kept = all(each["value"] is not None or (each["value_size"] or -1) < 0 for each in (row, *row["history"]))
    return quoted(fields, values, _bytes(row["key"]), unpacked(bytes(row["headers"])), whole=kept)


def _value(data: Any, fields: Fields) -> bytes | None:
    return masked(_bytes(data), hidden(_bytes(data), fields))


def _bytes(data: Any) -> bytes | None:
    # Drivers of PostgreSQL may give a view of memory.
    return None if data is None else bytes(data)
