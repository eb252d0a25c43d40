"""The pages of any record of a source topic: its content, and its difference from the last good record before it.

Both are read from Kafka when they are asked for, within the limits that bridge/inspection declares.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, NamedTuple
from urllib.parse import urlencode

from starlette.datastructures import QueryParams
from starlette.requests import Request
from starlette.responses import Response

from bridge.console import console
from bridge.console.console import Console
from bridge.console.pages.diff_rows import DiffRow, build_diff_rows
from bridge.console.pages.payload_panel import address_key_letters, build_payload_panel, list_header_rows
from bridge.console.record_lookup import find_scope_fault
from bridge.console.shown_record import mask_content, read_shown_record
from bridge.deadletters.dead_letter_service import DeadLetterService
from bridge.deadletters.editing.value_diff import diff_values
from bridge.deadletters.inspection.topic_letters import fetch_letter_value
from bridge.deadletters.masking.letter_mask import MaskedRecord
from bridge.deadletters.masking.value_mask import HiddenParts
from bridge.deadletters.model.letter_parser import OURS
from bridge.deadletters.model.letter_view import LetterLine, LetterView
from bridge.errors import KafkaUnavailable, LedgerUnavailable, NoSuchRecord, UnknownHandler
from bridge.formats.delivery import Headers
from bridge.formats.text_forms import make_printable
from bridge.inspection.last_good_record import GoodRecordSearch, find_last_good_record

#: The most bytes of two values that are compared.
MAX_COMPARED_BYTES: Final = 1_000_000


def show_record(request: Request) -> Response:
    """Show a record with its value, key and headers."""
    return _render_record(request, "record.html")


def show_content(request: Request) -> Response:
    """Show a record's value, key and headers: a part of the page Find."""
    return _render_record(request, "record-content.html")


def _render_record(request: Request, template: str) -> Response:
    here, place = console.get_console(request), request.path_params
    shown = read_shown_record(
        here.desk, console.get_masks(request), place["topic"], place["partition"], place["offset"]
    )
    address = f"/topics/{place['topic']}/records/{place['partition']}/{place['offset']}"
    content: dict[str, Any] = {"panel": None, "headers": [], "key_letters": None}
    if (masked := shown.masked) is not None:
        masks = console.get_masks(request)
        panel = build_payload_panel(request, masked.value, masked.hidden, encoded=masked.encoded, schema=masked.schema)
        content = {
            # Also in a part of another page, the links lead to the record's own.
            "panel": replace(panel, path=address),
            "headers": list(list_header_rows(masked.headers, place["topic"], masks)),
            "key_letters": address_key_letters(masked.key, place["topic"], masks),
        }
    return here.page(
        request,
        template,
        shown.status if template == "record.html" else 200,
        **place,
        **content,
        shown=shown,
        address=address,
        handlers=[handler.name for handler in here.desk.routes.of(place["topic"])],
        shows=here.masking.may_lift(console.get_principal(request)),
    )


@dataclass(frozen=True, slots=True)
class ComparedSide:
    """One side of a comparison, as a role sees it.

    Attributes:
        address: of its page.
        at: ms since the epoch; `None`: not known.
    """

    name: str
    address: str
    at: int | None
    headers: Headers
    value: bytes | None
    hidden: HiddenParts

    @property
    def is_shown(self) -> bool:
        """Return whether its value can be compared."""
        return self.hidden.readable and not self.hidden.whole


@dataclass(frozen=True, slots=True)
class Comparison:
    """A record beside the last good one.

    Attributes:
        value: the difference of the values; `None`: they cannot be compared, and `why` says why.
        headers: the difference of the headers.
    """

    this: ComparedSide
    good: ComparedSide
    value: list[DiffRow] | None
    headers: list[DiffRow]
    why: str = ""


class GoodQuery(NamedTuple):
    """The question for a last good record.

    Attributes:
        key: the key that it must have; `None`: any.
        log: the id of the log in which `offset` is; empty: the partition's present one.
    """

    topic: str
    partition: int
    offset: int
    handler: str
    key: bytes | None
    log: str = ""


def compare_record(request: Request) -> Response:
    """Compare a record with the last good one before it."""
    here, place, masks = console.get_console(request), request.path_params, console.get_masks(request)
    shown = read_shown_record(here.desk, masks, place["topic"], place["partition"], place["offset"])
    handlers = [handler.name for handler in here.desk.routes.of(place["topic"])]
    handler = _choose_handler(request.query_params, handlers)
    address = f"/topics/{place['topic']}/records/{place['partition']}/{place['offset']}"
    if shown.content is None or shown.masked is None:
        return _render_comparison(
            request, shown.name, address, handlers, handler, None, None, shown.absent, shown.status
        )
    this = _make_side(shown.name, address, shown.content.timestamp, shown.masked)
    wanted = GoodQuery(place["topic"], place["partition"], place["offset"], handler, shown.content.key)
    return _compare(request, this, wanted, handlers, address)


def compare_letter(request: Request) -> Response:
    """Compare a letter with the last good record before its own."""
    here = console.get_console(request)
    letter = here.desk.letters.one(request.path_params["id"])
    it, address = letter.listed, f"/letters/{letter.listed.id}"
    name = f"{it.topic}-{it.partition}-{it.offset}"
    handlers = [here.desk.routes.current_names.get(it.handler, it.handler)]
    if why := _explain_unknown_fates(here.desk, it):
        return _render_comparison(request, name, address, handlers, handlers[0], None, None, why, 404)
    try:
        letter = here.desk.database.payloads.read_letter(fetch_letter_value(here.desk.settings, letter))
    except KafkaUnavailable as error:
        return _render_comparison(request, name, address, handlers, handlers[0], None, None, str(error), 503)
    if not letter.kept:
        why = "Its value is too large for the database, and Kafka does not have it any more."
        return _render_comparison(request, name, address, handlers, handlers[0], None, None, why, 404)
    wanted = GoodQuery(it.topic, it.partition, it.offset, handlers[0], it.key, letter.topic_id)
    return _compare(request, _make_letter_side(request, name, address, letter), wanted, handlers, address)


def _explain_unknown_fates(desk: DeadLetterService, letter: LetterLine) -> str:
    """Return why this console's ledger does not know which records are good for a letter's handler; empty: it does."""
    if letter.origin != OURS or letter.topic not in desk.routes.topics:
        return "No handler here has this letter's topic, so the ledger does not know which of its records are good."
    if letter.consumer_group != desk.settings.group:
        return (
            f"This letter is of the consumer group {letter.consumer_group!r}, and this console asks the ledger of "
            f"{desk.settings.group!r}: which records are good for another group's handler it does not know."
        )
    return find_scope_fault(desk, letter.topic)


def _make_letter_side(request: Request, name: str, address: str, letter: LetterView) -> ComparedSide:
    view = console.get_masks(request).letter(letter)
    return ComparedSide(name, address, None, view.letter.headers, view.letter.value, view.value)


def _choose_handler(query: QueryParams, handlers: Sequence[str]) -> str:
    handler = query.get("handler", handlers[0])
    if handler not in handlers:
        raise UnknownHandler(f"{handler!r} is no handler of this topic: {', '.join(handlers)}.")
    return handler


def _compare(
    request: Request, this: ComparedSide, wanted: GoodQuery, handlers: Sequence[str], address: str
) -> Response:
    here, query = console.get_console(request), request.query_params
    keyed = wanted.key is not None
    same_key = keyed and query.get("by", "key") == "key"
    if not same_key:
        wanted = wanted._replace(key=None)
    none_of_key = False
    before = query.get("before", "")
    below = min(wanted.offset, int(before)) if before.isascii() and before.isdecimal() and len(before) < 19 else None
    try:
        found = _search(here, wanted, below)
        if same_key and "by" not in query and found.record is None and not found.limit:
            # A key that never succeeded is no dead end.
            any_key = _search(here, wanted._replace(key=None), below)
            if any_key.record is not None:
                found, same_key, none_of_key = any_key, False, True
    except (KafkaUnavailable, LedgerUnavailable, NoSuchRecord) as error:
        status = 404 if isinstance(error, NoSuchRecord) else 503
        return _render_comparison(
            request,
            this.name,
            address,
            handlers,
            wanted.handler,
            None,
            None,
            str(error),
            status,
            same_key=same_key,
            keyed=keyed,
        )
    made = None
    if found.record is not None:
        record = found.record
        masked = mask_content(here.desk, console.get_masks(request), record)
        place = f"/topics/{record.topic}/records/{record.partition}/{record.offset}"
        made = compare_sides(this, _make_side(record.name, place, record.timestamp, masked))
    return _render_comparison(
        request,
        this.name,
        address,
        handlers,
        wanted.handler,
        found,
        made,
        "",
        200,
        same_key=same_key,
        keyed=keyed,
        none_of_key=none_of_key,
    )


def _search(here: Console, wanted: GoodQuery, below: int | None) -> GoodRecordSearch:
    return find_last_good_record(
        here.desk.settings,
        (wanted.topic, wanted.partition),
        wanted.offset if below is None else below,
        wanted.handler,
        wanted.key,
        log="" if below is not None else wanted.log,
    )


def _make_side(name: str, address: str, at: int | None, masked: MaskedRecord) -> ComparedSide:
    return ComparedSide(name, address, at, masked.headers, masked.value, masked.hidden)


def compare_sides(this: ComparedSide, good: ComparedSide) -> Comparison:
    """Return the difference of a record from a good one (pure)."""
    headers = build_diff_rows(diff_values(_write_headers(good.headers), _write_headers(this.headers)))
    if not (this.is_shown and good.is_shown):
        return Comparison(this, good, None, headers, "Your role does not see these values, so they are not compared.")
    if max(len(this.value or b""), len(good.value or b"")) > MAX_COMPARED_BYTES:
        return Comparison(
            this, good, None, headers, f"Values above {MAX_COMPARED_BYTES:,} bytes are not compared here."
        )
    return Comparison(this, good, build_diff_rows(diff_values(good.value, this.value)), headers)


def _write_headers(headers: Headers) -> bytes:
    # A line for each header: its text begins no other one.
    lines = (make_printable(f"{name}: {_write_data(data)}") for name, data in headers)
    return "\n".join(lines).encode("utf-8", "surrogatepass")


def _write_data(data: bytes | None) -> str:
    if data is None:
        return "(none)"
    try:
        return data.decode()
    except UnicodeDecodeError:
        return f"0x{data.hex()}"


def _render_comparison(
    request: Request,
    name: str,
    address: str,
    handlers: Sequence[str],
    handler: str,
    found: GoodRecordSearch | None,
    made: Comparison | None,
    absent: str,
    status: int,
    *,
    same_key: bool = False,
    keyed: bool = False,
    none_of_key: bool = False,
) -> Response:
    here = console.get_console(request)

    def link(**other: Any) -> str:
        asked = {"by": "key" if same_key else "handler"} | ({"handler": handler} if len(handlers) > 1 else {}) | other
        return f"{request.url.path}?{urlencode(asked)}"

    return here.page(
        request,
        "good-record.html",
        status,
        name=name,
        address=address,
        handlers=handlers,
        handler=handler,
        found=found,
        made=made,
        absent=absent,
        same_key=same_key,
        keyed=keyed,
        none_of_key=none_of_key,
        link=link,
        days=here.desk.settings.file.kafka_ledger_days,
    )
