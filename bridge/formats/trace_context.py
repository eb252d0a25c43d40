"""The W3C trace context of a delivery: of its producer, in the record's own headers, and of its last hop (pure)."""

import re
from collections.abc import Iterable
from typing import Final

from bridge.formats.delivery import Header

#: The header with which a producer names its trace (W3C Trace Context).
TRACEPARENT: Final = "traceparent"
#: The member of the `kafka` header of a Celery message with the context of its hand-off, and of a delivery's metadata.
TRACE: Final = "trace"
#: What stands for the trace's id in DEADLETTERS_TRACE_URL.
TRACE_ID: Final = "{trace_id}"
_FORM: Final = re.compile(r"[0-9a-f]{2}-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})(-.*)?")
_NO_TRACE: Final = "0" * 32
_NO_SPAN: Final = "0" * 16


def format_context(trace_id: int, span_id: int, flags: int) -> str:
    """Return a span's context as a `traceparent`."""
    return f"00-{trace_id:032x}-{span_id:016x}-{flags:02x}"


def parse_context(text: str) -> tuple[int, int, int] | None:
    """Return the trace, the span and the flags of a `traceparent`; `None`: it is none.

    >>> parse_context("00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01")[1:]
    (67667974448284343, 1)
    """
    found = _FORM.fullmatch(text)
    if found is None or found[1] == _NO_TRACE or found[2] == _NO_SPAN:
        return None
    return int(found[1], 16), int(found[2], 16), int(found[3], 16)


def find_trace_id(headers: Iterable[Header], hop: str) -> str:
    """Return the trace id of a delivery, in hexadecimal: its producer's, or that of its last hop; empty: it has none.

    >>> find_trace_id([("traceparent", b"00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-00")], "")
    '4bf92f3577b34da6a3ce929d0e0e4736'
    """
    theirs = [value or b"" for name, value in headers if name == TRACEPARENT]
    for text in (*(value.decode("latin-1") for value in theirs[-1:]), hop):
        if (found := parse_context(text)) is not None:
            return f"{found[0]:032x}"
    return ""
