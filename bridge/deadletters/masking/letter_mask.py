"""Letters for a role that may not see every field: pages, lists and lines of an export (pure).

bridge/settings/masked_fields.py decides which fields are masked, bridge/console/auth/authorization.py for whom.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any, Final, NamedTuple

from bridge.deadletters.db.letter_payload import QuotableContent
from bridge.deadletters.db.letter_transfer import ExportedLetter
from bridge.deadletters.masking.text_redaction import MOST, NOTHING, UNKNOWN, HiddenQuotes, build_quotes
from bridge.deadletters.masking.value_mask import MASK, HiddenParts, find_hidden_parts, mask_value
from bridge.deadletters.model.letter_filter import LetterFilter
from bridge.deadletters.model.letter_view import LetterAct, LetterFailure, LetterLine, LetterView
from bridge.deadletters.model.payload_codec import PLAIN_PAYLOADS, PayloadCodec
from bridge.deadletters.model.stored_letter import pack_headers, unpack_headers
from bridge.errors import FilterFault
from bridge.formats.attempt_history import History, read_history, write_history
from bridge.formats.delivery import Headers
from bridge.settings.masked_fields import MaskedFields, MaskRules


class MaskedView(NamedTuple):
    """A letter as a role sees it.

    Attributes:
        letter: with masks in the place of hidden parts; without its bytes (`encoded`) if its value has any.
        value: the hidden parts of its value.
        quotes: to redact other texts that may quote the letter.
        parts: the number of hidden parts of value, key and headers.
    """

    letter: LetterView
    value: HiddenParts
    quotes: HiddenQuotes
    parts: int


class MaskedRecord(NamedTuple):
    """A record of a source topic as a role sees it, whether it failed or not.

    Attributes:
        value: for people, with masks in the place of hidden parts.
        encoded: the bytes in Kafka, if `value` is the JSON of others, and nothing of it is hidden.
        schema: the schema that wrote it, or why it was not read by it; empty: it names none.
        hidden: the hidden parts of its value.
        parts: the number of hidden parts of value, key and headers.
    """

    key: bytes | None
    headers: Headers
    value: bytes | None
    encoded: bytes | None
    schema: str
    hidden: HiddenParts
    parts: int


@dataclass(frozen=True, slots=True)
class LetterMasks:
    """The masks of a role."""

    rules: MaskRules

    def __bool__(self) -> bool:
        """Return whether a field is masked."""
        return bool(self.rules)

    def find_fields(self, topic: str) -> MaskedFields:
        """Return the masked fields of a source topic."""
        return self.rules.find_fields(topic)

    def letter(self, letter: LetterView) -> MaskedView:
        """Return a masked letter; every letter in full leaves the dead-letter store by this method.

        A value that cannot be parsed is not shown if its topic has masked fields, nor are texts that may quote it.
        """
        fields = self.find_fields(letter.listed.topic)
        found = find_hidden_parts(letter.value, fields)
        if not fields:
            return MaskedView(letter, found, NOTHING, 0)
        known = _mask_letter(letter, fields, found)
        shown = replace(
            letter,
            listed=mask_line(letter.listed, fields, known),
            value=mask_value(letter.value, found),
            encoded=None if found.is_any else letter.encoded,
            headers=mask_headers(letter.headers, fields, known),
            traceback=known.masked(letter.traceback),
            made=_mask_attempts(letter.made, known),
            history=tuple(_mask_failure(failure, fields, known) for failure in letter.history),
            # The handler's words when a plan left it out.
            plans=tuple(replace(plan, said=known.masked(plan.said)) for plan in letter.plans),
            edits=tuple(_mask_edit(edit, fields) for edit in letter.edits),
        )
        parts = len(found.found) or int(found.is_any)
        parts += int(fields.key and letter.listed.key is not None)
        return MaskedView(shown, found, known, parts + sum(fields.has_header(name) for name, _ in letter.headers))

    def record(
        self, topic: str, key: bytes | None, value: bytes | None, headers: Headers, payloads: PayloadCodec
    ) -> MaskedRecord:
        """Return a masked record of a source topic; every record leaves the console by this method.

        Parameters:
            payloads: reads its value, which may name a schema.
        """
        fields, read = self.find_fields(topic), payloads.read(value, headers)
        encoded = value if read.is_decoded else None
        if not fields:
            return MaskedRecord(key, headers, read.value, encoded, read.schema, HiddenParts(), 0)
        hidden = find_hidden_parts(read.value, fields)
        known = find_quotes(fields, [hidden], key, headers)
        parts = len(hidden.found) or int(hidden.is_any)
        parts += int(fields.key and key is not None)
        return MaskedRecord(
            mask_key(key, fields, known),
            mask_headers(headers, fields, known),
            mask_value(read.value, hidden),
            None if hidden.is_any else encoded,
            known.masked(read.schema),
            hidden,
            parts + sum(fields.has_header(name) for name, _ in headers),
        )

    def check(self, filter_: LetterFilter) -> LetterFilter:
        """Return a filter that does not search hidden fields.

        Raises:
            FilterFault: its matches would reveal hidden fields; the message says which topics can be searched.
        """
        tests: dict[str, Callable[[MaskedFields], bool]] = {}
        if filter_.text:
            tests["text"] = bool
        if filter_.key is not None:
            tests["key"] = lambda fields: fields.key
        if filter_.headers:
            tests["header"] = lambda fields: any(fields.has_header(name) for name, _ in filter_.headers)
        if filter_.values:
            tests["value"] = lambda fields: any(_hides_field(fields, name) for name, _ in filter_.values)
        for named, test in tests.items():
            if any(map(test, self._of(filter_.topics))):
                raise FilterFault(
                    f"Your role does not see every field of these letters, so they are not searched by {named}: name "
                    "topics of which you see all (topic), or search by handler, exception, reason or time."
                )
        return filter_

    def whole(self, topics: Sequence[str], what: str) -> None:
        """Refuse an action that shows or copies hidden fields.

        Parameters:
            topics: the source topics of the letters; empty: any.
            what: the action: "patch", "copy".

        Raises:
            FilterFault: something is hidden of one of these topics.
        """
        if any(self._of(topics)):
            raise FilterFault(
                f"Your role does not see every field of these letters, so it cannot {what} them: name topics of which "
                "you see all (topic), or ask somebody who sees them."
            )

    def searches_keys(self, topics: Sequence[str] = ()) -> bool:
        """Return whether letters and records of topics, or of all, may be searched by key."""
        return not any(fields.key for fields in self._of(topics))

    def _of(self, topics: Sequence[str]) -> Iterator[MaskedFields]:
        """Yield the masked fields of topics; without topics, of any."""
        return map(self.find_fields, topics) if topics else map(self.rules.of_rule, range(len(self.rules.rules)))


def _hides_field(fields: MaskedFields, name: str) -> bool:
    """Return whether a field is masked, or a part of a masked one: a match would tell of it."""
    path = name.split(".")
    return fields.value or any(fields.has(path[:depth]) for depth in range(1, len(path) + 1))


#: Masks of a role that sees everything.
NO_MASKS: Final = LetterMasks(MaskRules())


def mask_line(it: LetterLine, fields: MaskedFields, known: HiddenQuotes) -> LetterLine:
    """Return a masked line of a list."""
    return replace(it, key=mask_key(it.key, fields, known), error_message=known.masked(it.error_message))


def mask_key(data: bytes | None, fields: MaskedFields, known: HiddenQuotes) -> bytes | None:
    """Return a masked key: hidden, or without quotes of hidden fields."""
    return MASK.encode() if fields.key and data is not None else _mask_data(data, known)


def mask_headers(found: Headers, fields: MaskedFields, known: HiddenQuotes) -> Headers:
    """Return masked headers: hidden values, and the others without quotes of hidden fields."""
    return tuple(
        (name, MASK.encode() if fields.has_header(name) and value is not None else _mask_data(value, known))
        for name, value in found
    )


def find_quotes(
    fields: MaskedFields,
    values: Iterable[HiddenParts],
    data: bytes | None,
    found: Headers,
    *,
    whole: bool = True,
    most: int = MOST,
) -> HiddenQuotes:
    """Return the hidden texts that other texts of a letter may quote.

    Parameters:
        values: its current and earlier values.
        data: its key.
        whole: whether these are all its values.
        most: the most characters of hidden texts.
    """
    some = list(values)
    if fields.of_value and not (whole and all(each.readable for each in some)):
        return UNKNOWN
    said = [data] if fields.key else []
    said += [value for name, value in found if fields.has_header(name)]
    of_bytes = (each.decode("utf-8", "surrogateescape") for each in said if each is not None)
    return build_quotes(chain(*(each.texts() for each in some), of_bytes), most)


def find_content_quotes(fields: MaskedFields, content: QuotableContent, most: int = MOST) -> HiddenQuotes:
    """Return the hidden texts that shown texts of a stored letter may quote."""
    values = [find_hidden_parts(content.value, fields)]
    return find_quotes(fields, values, content.key, content.headers, whole=content.is_whole, most=most)


def _mask_letter(letter: LetterView, fields: MaskedFields, found: HiddenParts) -> HiddenQuotes:
    before = [*(failure.value for failure in letter.history), *(edit.value for edit in letter.edits)]
    values = [found, *(find_hidden_parts(each, fields) for each in before)]
    whole = letter.kept and all(failure.kept for failure in letter.history)
    return find_quotes(fields, values, letter.listed.key, letter.headers, whole=whole)


def _mask_failure(each: LetterFailure, fields: MaskedFields, known: HiddenQuotes) -> LetterFailure:
    return replace(
        each,
        error_message=known.masked(each.error_message),
        traceback=known.masked(each.traceback),
        made=_mask_attempts(each.made, known),
        value=mask_value(each.value, find_hidden_parts(each.value, fields)),
    )


def _mask_attempts(made: History, known: HiddenQuotes) -> History:
    return tuple(each._replace(error=known.masked(each.error)) for each in made)


def _mask_exported_attempts(text: str | None, known: HiddenQuotes) -> str | None:
    return write_history(_mask_attempts(read_history(text or ""), known)) or None


def _mask_edit(each: LetterAct, fields: MaskedFields) -> LetterAct:
    return replace(each, value=mask_value(each.value, find_hidden_parts(each.value, fields)))


def _mask_data(data: bytes | None, known: HiddenQuotes) -> bytes | None:
    """Return a key or a header without quotes of hidden texts."""
    if data is None or (known.unknown and not known.too_much):
        return data
    return known.masked(data.decode("utf-8", "surrogateescape")).encode("utf-8", "surrogateescape")


#: Hashes, by which a field with few values could be guessed. Without the first, `import` refuses the line.
_HASHES: Final = ("digest", "key_digest")


def mask_exported_letter(
    masks: LetterMasks, row: ExportedLetter, payloads: PayloadCodec = PLAIN_PAYLOADS
) -> ExportedLetter:
    """Return an exported letter without hidden parts; unchanged if nothing can be hidden.

    Parameters:
        payloads: reads its values, which may name schemas.
    """
    fields = masks.find_fields(row["topic"])
    if not fields:
        return row
    if fields.of_value:
        row = _read_exported_values(row, payloads)
    known = _build_row_quotes(row, fields)
    plain = {name: value for name, value in row.items() if name not in _HASHES}
    return plain | {
        "masked": True,
        "key": mask_key(_as_bytes(row["key"]), fields, known),
        "value": _mask_exported_value(row["value"], fields),
        "headers": pack_headers(mask_headers(unpack_headers(bytes(row["headers"])), fields, known)),
        "error_message": known.masked(row["error_message"]),
        "traceback": known.masked(row["traceback"]),
        "attempt_history": _mask_exported_attempts(row.get("attempt_history"), known),
        "history": [_mask_exported_failure(each, fields, known) for each in row["history"]],
        "edits": [{**each, "value": _mask_exported_value(each["value"], fields)} for each in row["edits"]],
    }


def _read_exported_values(row: ExportedLetter, payloads: PayloadCodec) -> ExportedLetter:
    headers = unpack_headers(bytes(row["headers"]))

    def read(each: ExportedLetter) -> ExportedLetter:
        return {**each, "value": payloads.read(_as_bytes(each["value"]), headers).value}

    return read(row) | {"history": [*map(read, row["history"])], "edits": [*map(read, row["edits"])]}


def _mask_exported_failure(row: ExportedLetter, fields: MaskedFields, known: HiddenQuotes) -> ExportedLetter:
    said = {name: known.masked(row[name]) for name in ("error_message", "traceback")}
    made = {"attempt_history": _mask_exported_attempts(row.get("attempt_history"), known)}
    return row | said | made | {"value": _mask_exported_value(row["value"], fields)}


def _build_row_quotes(row: ExportedLetter, fields: MaskedFields) -> HiddenQuotes:
    values: list[HiddenParts] = [
        find_hidden_parts(_as_bytes(each["value"]), fields) for each in (row, *row["history"], *row["edits"])
    ]
    # An earlier failure without a size had the same value as the next one.
    kept = all(each["value"] is not None or (each["value_size"] or -1) < 0 for each in (row, *row["history"]))
    return find_quotes(fields, values, _as_bytes(row["key"]), unpack_headers(bytes(row["headers"])), whole=kept)


def _mask_exported_value(data: Any, fields: MaskedFields) -> bytes | None:
    return mask_value(_as_bytes(data), find_hidden_parts(_as_bytes(data), fields))


def _as_bytes(data: Any) -> bytes | None:
    # PostgreSQL's driver may return a memoryview.
    return None if data is None else bytes(data)
