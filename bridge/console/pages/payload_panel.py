"""The panel of a value and the table of headers, for every page that shows a record (payload-macros.html)."""

from collections.abc import Collection, Iterator
from dataclasses import dataclass, replace
from typing import Final, NamedTuple

from markupsafe import Markup
from starlette.datastructures import QueryParams
from starlette.requests import Request

from bridge.console import filter_address
from bridge.console.payload_markup import TextMarks, render_lines, render_nodes
from bridge.deadletters.masking.letter_mask import LetterMasks
from bridge.deadletters.masking.value_mask import MASK, UNREADABLE, HiddenParts
from bridge.deadletters.model.filter_syntax import write_header_value
from bridge.deadletters.model.letter_filter import LetterFilter
from bridge.deadletters.model.payload_view import MAX_WORDS, PayloadMode, PayloadView, view_payload
from bridge.errors import FilterFault
from bridge.formats.delivery import Headers
from bridge.formats.text_forms import write_octets

#: The parameters of an address that select what of a value is shown.
_PARAMETERS: Final = ("value", "from", "search")
#: Lines from which on a value has a box.
_BOX_LINES: Final = 30
_BOX_CHARACTERS: Final = 2_000
#: The most headers that a page lists (payload-macros.html).
LISTED_HEADERS: Final = 100
#: The most bytes of a header's value that goes into an address.
_LINKED_BYTES: Final = 500


@dataclass(frozen=True, slots=True)
class PayloadPanel:
    """A value as a page shows it, in one part, one way, and with the addresses of the others.

    Attributes:
        path: of the page.
        query: the other parameters of its address.
        search: the text that is searched for.
        quoted: texts to mark: an error's quotes.
        hidden: the reason why the reader sees nothing of it; empty: they do.
    """

    view: PayloadView
    path: str
    query: QueryParams
    search: str = ""
    quoted: Collection[str] = ()
    hidden: str = ""

    def address(self, way: str = "", begins: int | None = None, search: str = "") -> str:
        """Return the address of the page with something else of the value."""
        given = {"value": way, "from": "" if begins is None else str(begins), "search": search}
        return filter_address.build_address(self.path, self.query, **given)

    @property
    def fields(self) -> list[tuple[str, str]]:
        """Return the hidden fields of the form that searches."""
        ways = [("value", self.view.way)] if self.view.way else []
        return [*((name, value) for name, value in self.query.multi_items() if name not in _PARAMETERS), *ways]

    @property
    def is_searched(self) -> bool:
        """Return whether it can be searched as it is shown."""
        return self.view.way in (PayloadMode.PRETTY, PayloadMode.SENT)

    @property
    def is_long(self) -> bool:
        """Return whether it is in a box."""
        view = self.view
        size = len(view.dump) or len(view.lines)
        return size > _BOX_LINES or sum(map(len, view.lines)) > _BOX_CHARACTERS

    @property
    def markup(self) -> Markup:
        """Return its lines as HTML."""
        marks = TextMarks(self.quoted, self.search)
        return render_nodes(self.view.nodes, marks) if self.view.nodes else render_lines(self.view.lines, marks)


def build_payload_panel(
    request: Request,
    value: bytes | None,
    hidden: HiddenParts,
    *,
    encoded: bytes | None = None,
    schema: str = "",
    quoted: Collection[str] = (),
) -> PayloadPanel:
    """Return the panel of a value, by the parameters of an address.

    Parameters:
        value: as people read it, with its masks.
        hidden: what is masked of it; then its bytes are not shown.
        encoded: its bytes in Kafka, if `value` is the JSON of these (payload_codec.py).
        schema: as `ReadableValue` has it.
        quoted: texts to mark.
    """
    query = request.query_params
    search = query.get("search", "")[:MAX_WORDS]
    view = _view_value(value, hidden, encoded, schema, query, search)
    kept = QueryParams([pair for pair in query.multi_items() if pair[0] not in _PARAMETERS])
    return PayloadPanel(view, request.url.path, kept, search, quoted, _explain_hidden(hidden))


def _explain_hidden(hidden: HiddenParts) -> str:
    if hidden.whole:
        return "All of it is masked for your role."
    return "" if hidden.readable else UNREADABLE


def _view_value(
    value: bytes | None, hidden: HiddenParts, encoded: bytes | None, schema: str, query: QueryParams, search: str
) -> PayloadView:
    mode, at = _read_mode(query), _read_offset(query)
    if hidden.is_any:
        shown = view_payload(value, PayloadMode.PRETTY, at, search)
        return replace(shown, ways=(PayloadMode.PRETTY,), way=PayloadMode.PRETTY, kind=schema or shown.kind)
    if encoded is None:
        shown = view_payload(value, mode, at, search)
        return replace(shown, kind=", ".join(filter(None, (shown.kind, schema))))
    # As JSON, or byte for byte.
    if mode in (PayloadMode.HEX, PayloadMode.SENT):
        shown = view_payload(encoded, PayloadMode.HEX, at or 0)
    else:
        shown = view_payload(value, PayloadMode.PRETTY, at, search)
    return replace(shown, kind=schema, ways=(PayloadMode.PRETTY, PayloadMode.HEX), fault_at=None)


def _read_mode(query: QueryParams) -> PayloadMode | None:
    mode = query.get("value", "")
    return PayloadMode(mode) if mode in list(PayloadMode) else None


def _read_offset(query: QueryParams) -> int | None:
    text = query.get("from", "")
    return int(text) if text.isascii() and text.isdecimal() and len(text) < 10 else None


class HeaderRow(NamedTuple):
    """A header of a record.

    Attributes:
        letters: the address of the letters that have it; `None`: they cannot be asked for.
    """

    name: str
    value: bytes | None
    letters: str | None


def list_header_rows(headers: Headers, topic: str, masks: LetterMasks) -> Iterator[HeaderRow]:
    """Yield headers, as a role sees them, those that are listed with the addresses of the letters that have them.

    Parameters:
        topic: the source topic.
    """
    for number, (name, value) in enumerate(headers):
        # A record may have a hundred thousand.
        letters = _address_letters(name, value, topic, masks) if number < LISTED_HEADERS else None
        yield HeaderRow(name, value, letters)


def _address_letters(name: str, value: bytes | None, topic: str, masks: LetterMasks) -> str | None:
    if value is None or len(value) > _LINKED_BYTES or "=" in name or not name or MASK.encode() in value:
        return None
    text = value.decode("utf-8", "surrogateescape")
    try:
        masks.check(LetterFilter(topics=(topic,), headers=((name, text),)))
        header = f"{name}={write_header_value(text)}"
        return filter_address.build_address("/letters", QueryParams(), topic=topic, header=header, status="any")
    except (FilterFault, UnicodeEncodeError):
        return None


def address_key_letters(key: bytes | None, topic: str, masks: LetterMasks) -> str | None:
    """Return the address of the letters of a topic with this key; `None`: they cannot be asked for."""
    if not key or len(key) > _LINKED_BYTES or MASK.encode() in key or not masks.searches_keys((topic,)):
        return None
    return filter_address.build_address("/letters", QueryParams(), topic=topic, key=write_octets(key), status="any")
