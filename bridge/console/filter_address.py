"""The dead-letter filter as query parameters or form fields, in the words of the command line."""

import shlex
import time
from typing import Final, NamedTuple
from urllib.parse import urlencode

from starlette.datastructures import QueryParams

from bridge.deadletters.model.filter_syntax import FLAG, HEADERS, VALUE_FIELDS, parse_number, write_header_value
from bridge.deadletters.model.letter_filter import FILTER_FIELDS, LetterFilter
from bridge.deadletters.model.stored_letter import LetterStatus
from bridge.deadletters.model.trait_comparison import LetterTrait
from bridge.errors import FilterFault
from bridge.formats.text_forms import write_octets

#: The choice that does not restrict a list, and the fields that have it.
ANY: Final = "any"
_CHOICES: Final = frozenset(field.word for field in FILTER_FIELDS if field.choices)
#: The parameters of an address that belong to the filter, with the words of their options.
_OPTIONS: Final = {field.word: f"--{field.option or field.word}" for field in FILTER_FIELDS}
_LABELS: Final = {field.word: field.label for field in FILTER_FIELDS}
#: The parameters that select the page of a list, and their values for its first.
PAGE_PARAMETERS: Final = {"before": "", "after": "", "kept": ""}
#: The fields without a value on the command line.
_FLAGS: Final = frozenset(field.word for field in FILTER_FIELDS if field.type is FLAG)


def read_filter(query: QueryParams) -> LetterFilter:
    """Return the filter of an address, or of the hidden fields of a form.

    Raises:
        FilterFault: a field is malformed.
    """
    texts = {word: [text for text in query.getlist(word) if text and not _is_any(word, text)] for word in _OPTIONS}
    return LetterFilter.parse(texts, time.time())


#: The fields that an address may also name with a dot: `value.order.currency=EUR` is `value=order.currency=EUR`.
_DOTTED: Final = frozenset(field.word for field in FILTER_FIELDS if field.type in (HEADERS, VALUE_FIELDS))


def spell_dotted_fields(query: QueryParams) -> QueryParams:
    """Return an address with `value.order.currency=EUR` and `header.tenant=blue` as parameters of the filter."""
    found = []
    for name, text in query.multi_items():
        word, dot, rest = name.partition(".")
        found.append((word, f"{rest}={text}") if dot and word in _DOTTED else (name, text))
    return QueryParams(found)


def address_trait(group: int, trait: LetterTrait) -> str | None:
    """Return the address of a group's open letters that have a trait; `None`: no filter means it."""
    if trait.says is None or "=" in trait.name:
        return None
    match trait.what:
        case "key" if trait.says:
            given = {"key": write_octets(trait.says.encode())}
        case "header" if trait.name and trait.says:
            given = {"header": f"{trait.name}={write_header_value(trait.says)}"}
        case "field" if all(trait.name.split(".")):
            given = {"value": f"{trait.name}={trait.says}"}
        case _:
            return None
    return build_address("/letters", QueryParams(), group=str(group), status="open", **given)


def _is_any(word: str, value: str) -> bool:
    return value == ANY and word in _CHOICES


def build_address(path: str, query: QueryParams, **other: str) -> str:
    """Return an address with the same filter, and with the other parameters added or replaced."""
    kept = [(name, value) for name, value in query.multi_items() if name not in other and value]
    encoded = urlencode([*kept, *((name, value) for name, value in other.items() if value)])
    return f"{path}?{encoded}" if encoded else path


def read_chosen_filter(form: QueryParams) -> LetterFilter:
    """Return a filter for the letters that a form of a list means: the ticked ones, or all that match.

    `scope` is "ids", "groups" or "filter"; `ids` is repeated for each letter, or comma-separated; `group` is repeated
    for each group; the filter's own fields are named as in its address.

    Raises:
        FilterFault: a field is malformed, or nothing is ticked.
    """
    if form.get("scope") == "groups":
        return LetterFilter(groups=read_group_ids(form), statuses=(LetterStatus.OPEN,))
    if form.get("scope") == "filter":
        return read_filter(form)
    ids = [number.strip() for text in form.getlist("ids") for number in text.split(",") if number.strip()]
    if not ids:
        raise FilterFault("No letter is ticked: tick some, or choose all that match.")
    return LetterFilter(ids=tuple(map(parse_number, ids)))


def read_group_ids(form: QueryParams) -> tuple[int, ...]:
    """Return the groups that are ticked in a list.

    Raises:
        FilterFault: none is ticked, or one is no number.
    """
    ids = [text for text in form.getlist("group") if text]
    if not ids:
        raise FilterFault("No group is ticked: tick some.")
    return tuple(dict.fromkeys(map(parse_number, ids)))


def list_filter_fields(query: QueryParams) -> list[tuple[str, str]]:
    """Return a filter as fields of a form or of an address."""
    return [(name, value) for name, value in query.multi_items() if name in _OPTIONS and value]


class FilterChip(NamedTuple):
    """A value of a filter, and the address of the list without it.

    Attributes:
        name: the label of its field.
    """

    name: str
    value: str
    without: str


def list_filter_chips(path: str, query: QueryParams) -> list[FilterChip]:
    """Return the values of a filter that restrict a list, in the order of the address.

    Parameters:
        query: with the status that holds if the address names none (`add_open_status`).
    """
    given = [(name, value) for name, value in list_filter_fields(query) if not _is_any(name, value)]
    return [FilterChip(_LABELS[name], value, _drop_value(path, query, name, value)) for name, value in given]


def _drop_value(path: str, query: QueryParams, name: str, value: str) -> str:
    kept = [each for each in query.multi_items() if each != (name, value) and each[0] not in PAGE_PARAMETERS]
    # A list without a status is one of open letters.
    any_status = [("status", ANY)] if name == "status" and all(each != "status" for each, _ in kept) else []
    return f"{path}?{urlencode([*kept, *any_status])}"


#: The presets of time: words, and how long ago the letters failed at most; empty: at any time.
TIME_PRESETS: Final = (("15 min", "15m"), ("1 h", "1h"), ("24 h", "24h"), ("7 d", "7d"), ("any time", ""))


def list_time_presets(path: str, query: QueryParams) -> list[tuple[str, str, bool]]:
    """Return the words of each preset of time, the address of the list with it, and whether it is chosen."""
    rest: dict[str, str] = {"until": "", **PAGE_PARAMETERS}
    now = (query.get("since", ""), query.get("until", ""))
    return [(words, build_address(path, query, since=ago, **rest), now == (ago, "")) for words, ago in TIME_PRESETS]


def build_command(verb: str, query: QueryParams) -> str:
    """Return the command line with the same filter."""
    words = ["bridge", "deadletters", verb]
    for name, value in list_filter_fields(query):
        if not _is_any(name, value):
            words += [value] if name == "id" else [_OPTIONS[name]] if name in _FLAGS else [_OPTIONS[name], value]
    return shlex.join(words)


def add_open_status(query: QueryParams) -> QueryParams:
    """Return the query, with the status `open` added if it has no status."""
    return query if query.get("status") else QueryParams([*query.multi_items(), ("status", "open")])
