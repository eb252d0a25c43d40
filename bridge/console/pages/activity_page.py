"""The page Activity: who did what and when, from the audit log, in a range of time; and its export as CSV or JSON."""

import csv
import io
import json
from collections.abc import Iterable, Iterator
from datetime import datetime, timedelta, tzinfo
from typing import Final, NamedTuple
from urllib.parse import urlencode

from starlette.datastructures import QueryParams
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from bridge.console import bulk_actions, console, filter_address, shown_zone
from bridge.deadletters.accounts.activity_kinds import ACTIVITY_KINDS, filter_for_reader
from bridge.deadletters.accounts.audit_log import describe_entry
from bridge.deadletters.db.audit_rows import AuditEntry, EntryFilter
from bridge.deadletters.model.filter_syntax import parse_moment
from bridge.errors import FilterFault
from bridge.formats.text_forms import format_count

#: The entries of a page, and the people that its heading names.
LOG_ROWS: Final = 50
SHOWN_PEOPLE: Final = 12
#: The most entries of an export: a minute of a core, and 20 MB.
MAX_EXPORTED: Final = 50_000
#: The ranges to choose from, by the word of the address.
RANGES: Final = {"today": "Today", "yesterday": "Yesterday", "7d": "7 days", "30d": "30 days", "all": "All"}
DEFAULT_RANGE: Final = "7d"
_DAYS: Final = {"7d": 7, "30d": 30}
#: The parameters of the address that say what is listed.
FIELDS: Final = ("range", "since", "until", "who", "did")


class ActivityRange(NamedTuple):
    """A range of time.

    Attributes:
        name: of `RANGES`; "": its ends were typed.
        since, until: ms since the epoch; `None`: no end.
    """

    name: str
    since: int | None
    until: int | None = None


def resolve_range(query: QueryParams, now: datetime) -> ActivityRange:
    """Return the range that an address means (pure).

    Parameters:
        now: with the zone in which days begin.

    Raises:
        FilterFault: there is no such range, or a time is none.
    """
    ends = [query.get(name, "").strip() for name in ("since", "until")]
    if any(ends):
        since, until = (parse_moment(text, now.timestamp()) if text else None for text in ends)
        if since is not None and until is not None and since >= until:
            raise FilterFault("The begin must be earlier than the end.")
        return ActivityRange("", since, until)
    name = query.get("range") or DEFAULT_RANGE
    today = now.replace(hour=0, minute=0, second=0, microsecond=0)
    if name == "today":
        return ActivityRange(name, _to_ms(today))
    if name == "yesterday":
        return ActivityRange(name, _to_ms(today - timedelta(days=1)), _to_ms(today))
    if name in _DAYS:
        return ActivityRange(name, _to_ms(now - timedelta(days=_DAYS[name])))
    if name != "all":
        raise FilterFault(f"There is no range {name[:100]!r}: {', '.join(RANGES)}, or since and until.")
    return ActivityRange(name, None)


def show_activity(request: Request) -> Response:
    """Show who did what in a range of time, newest first."""
    here, query = console.get_console(request), request.query_params
    chosen, wanted = _read_filter(request, query)
    page = here.desk.trail.page(wanted, _read_before(query), LOG_ROWS)
    people = here.desk.trail.count_by_actor(wanted._replace(by=""), SHOWN_PEOPLE)
    count = here.desk.trail.count(wanted)
    return here.page(
        request,
        "activity.html",
        entries=page.entries,
        older=filter_address.build_address("/activity", query, before=str(page.next)) if page.next else None,
        heading=_build_heading(chosen, count),
        people=[(name, n, _build_address(query, who="" if name == wanted.by else name)) for name, n in people],
        ranges=[(words, _build_address(query, range=name), name == chosen.name) for name, words in RANGES.items()],
        kinds=ACTIVITY_KINDS,
        query=query,
        since=chosen.since,
        until=chosen.until,
        kept={name: query[name] for name in FIELDS if query.get(name)},
        too_many=count if count > MAX_EXPORTED else 0,
        most=MAX_EXPORTED,
        build_address=_build_address,
    )


def export_activity(request: Request) -> Response:
    """Export the entries that the page lists; by a form, since the audit log has every export."""
    here, form = console.get_console(request), request.state.form
    _, wanted = _read_filter(request, form)
    kind = form.get("format", "")
    if kind not in _FORMATS:
        raise FilterFault(f"There is no format {kind[:100]!r}: {', '.join(_FORMATS)}.")
    if (count := here.desk.trail.count(wanted)) > MAX_EXPORTED:
        raise FilterFault(
            f"These are {count:,} entries, and an export has {MAX_EXPORTED:,} at most: choose a shorter range, a "
            "person or a kind. Programs export all by the API (/api/v1/trail/export)."
        )
    write, media = _FORMATS[kind]
    entries = here.desk.trail.entries(console.get_principal(request).name, wanted)
    content = bulk_actions.start_stream(write(entries), end="")
    return StreamingResponse(content, 200, bulk_actions.build_download_headers(f"activity.{kind}"), media)


def write_csv(entries: Iterable[AuditEntry]) -> Iterator[str]:
    """Yield entries as lines of CSV, with a head; no spreadsheet takes what people wrote for a formula (pure)."""
    yield _write_row([*AuditEntry._fields])
    for entry in entries:
        fields = ("" if field is None else str(field) for field in describe_entry(entry).values())
        yield _write_row([f"'{text}" if text.startswith(_FORMULA_BEGINS) else text for text in fields])


def write_json(entries: Iterable[AuditEntry]) -> Iterator[str]:
    """Yield the parts of a JSON list of entries (pure)."""
    before = "[\n"
    for entry in entries:
        yield before + json.dumps(describe_entry(entry))
        before = ",\n"
    yield "\n]\n" if before != "[\n" else "[]\n"


#: The beginnings of a cell that spreadsheets calculate.
_FORMULA_BEGINS: Final = ("=", "+", "-", "@", "\t", "\r")
_FORMATS: Final = {"csv": (write_csv, "text/csv; charset=utf-8"), "json": (write_json, "application/json")}


def _write_row(fields: list[str]) -> str:
    text = io.StringIO()
    csv.writer(text).writerow(fields)
    return text.getvalue()


def _read_filter(request: Request, query: QueryParams) -> tuple[ActivityRange, EntryFilter]:
    who, did = console.get_principal(request), query.get("did", "")
    if did not in ("", filter_address.ANY) and did not in ACTIVITY_KINDS:
        raise FilterFault(f"Nothing that people do is called {did[:100]!r}: {', '.join(ACTIVITY_KINDS)}.")
    chosen = resolve_range(query, _read_clock(request, shown_zone.get_zone()))
    wanted = EntryFilter(query.get("who", "").strip(), ACTIVITY_KINDS.get(did, ()), chosen.since, chosen.until)
    return chosen, filter_for_reader(wanted, who.name, is_admin=who.is_admin)


def _read_clock(request: Request, zone: tzinfo) -> datetime:
    return datetime.fromtimestamp(console.get_console(request).clock() / 1000, zone)


def _read_before(query: QueryParams) -> int | None:
    said = query.get("before", "")
    if said and not (said.isascii() and said.isdecimal() and len(said) < 19):
        raise FilterFault(f"{said[:100]!r} is no place in the audit log.")
    return int(said) if said else None


def _build_address(query: QueryParams, **other: str) -> str:
    """Return the address with another range, person or kind; a chosen range takes the place of typed ends."""
    left_out = {"before", *other, *(("since", "until") if "range" in other else ())}
    kept = [(name, query[name]) for name in FIELDS if query.get(name) and name not in left_out]
    return f"/activity?{urlencode([*kept, *((name, value) for name, value in other.items() if value)])}"


def _build_heading(chosen: ActivityRange, count: int) -> str:
    words = {"": "in this range", "7d": "in 7 days", "30d": "in 30 days", "all": "in all"}
    when = words.get(chosen.name, chosen.name)
    return f"{format_count(count, 'act')} {when}" if count else f"No acts {when}"


def _to_ms(at: datetime) -> int:
    return int(at.timestamp() * 1000)
