"""The address of a delivery's log lines, by the template of DEADLETTERS_LOGS_URL (pure)."""

import re
from typing import Final
from urllib.parse import quote

#: What a template may have: the field `delivery` of log lines, the trace's id, and a range in ms since the epoch.
_NAMES: Final = ("delivery", "trace_id", "from", "until")
_PLACEHOLDER: Final = re.compile(r"\{(\w*)\}")
#: Milliseconds before and behind an attempt: clocks differ, and log lines are written a little later.
_MARGIN: Final = 60_000


def find_template_fault(template: str) -> str:
    """Return what is wrong with the placeholders of a template; empty if nothing is."""
    names = _PLACEHOLDER.findall(template)
    if unknown := [name for name in names if name not in _NAMES]:
        return f"there is no {{{unknown[0]}}}: use {', '.join(f'{{{name}}}' for name in _NAMES)}"
    return "" if "delivery" in names or "trace_id" in names else "it needs {delivery} or {trace_id}"


def fill_log_link(template: str, delivery: str, trace_id: str, begins: int, ends: int) -> str | None:
    """Return the address of log lines; `None` if there is no template, or it needs a trace and there is none.

    Parameters:
        begins, ends: of the time that is asked for, ms since the epoch; a minute is added at each end.
    """
    if not template or ("{trace_id}" in template and not trace_id):
        return None
    values = {"delivery": delivery, "trace_id": trace_id, "from": str(begins - _MARGIN), "until": str(ends + _MARGIN)}
    return _PLACEHOLDER.sub(lambda match: quote(values[match[1]].encode("utf-8", "replace"), safe=""), template)
