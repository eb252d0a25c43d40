"""The page Audit: the last audit count of each topic, and the audit log."""

from collections.abc import Sequence
from typing import Final

from starlette.datastructures import QueryParams
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from bridge.console import console
from bridge.console import filter_address as asked_for
from bridge.deadletters.accounts.audit_log import AuditPage
from bridge.errors import DeskUnavailable, FilterFault, KafkaUnavailable, LedgerUnavailable, UnknownTopic

#: The rows of a page of the audit log.
LOG_ROWS: Final = 50
#: The actions in the audit log, by the name of the filter for them.
ACTION_FILTERS: Final = {
    "replay": ("replay",),
    "discard": ("discard",),
    "archive": ("archive",),
    "edit, patch": ("edit", "patch"),
    "copy, redrive": ("copy", "redrive"),
    "plan applied, stopped": ("apply", "stop"),
    "plan approved, rejected": ("request", "approve", "reject"),
    "note": ("note",),
    "reopen, resolve": ("reopen", "resolve"),
    "fixed": ("fixed", "not fixed", "regressed"),
    "export, import": ("export", "import"),
    "halt, resume": ("halt", "resume"),
    "policy": ("policy",),
    "users, tokens": ("user", "token"),
    "unmask": ("unmask",),
    "webhooks": ("webhook",),
}


def show_audit(request: Request) -> Response:
    """Show the last audit of each topic, and a page of the audit log."""
    return _render_audit(request, 200, [])


def count_topics(request: Request) -> Response:
    """Audit a topic, or all of them, and show the result."""
    asked = console.get_console(request)
    named = request.path_params.get("topic")
    silent = []
    if asked.desk.settings.ledger_url is None:
        silent.append("An audit reads the ledger, and the broker is no Redis: set LEDGER_URL.")
    else:
        try:
            for topic in asked.desk.routes.topics if named is None else [named]:
                asked.audit_cache.count(topic)
        except (KafkaUnavailable, LedgerUnavailable, UnknownTopic) as error:
            silent.append(str(error))
    return _render_audit(request, 503, silent) if silent else RedirectResponse("/audit", 303)


def _render_audit(request: Request, status: int, silent: list[str]) -> Response:
    asked, query = console.get_console(request), request.query_params
    audits = asked.audit_cache.all()
    counted = {count.audit.topic for count in audits}
    trail = AuditPage((), None)
    try:
        trail = asked.desk.trail.page(
            query.get("who", "").strip(), _read_actions(query.get("did", "")), _read_before(query), LOG_ROWS
        )
    except DeskUnavailable as error:
        silent.append(str(error))
    return asked.page(
        request,
        "audit.html",
        status,
        audits=sorted(audits, key=lambda count: (-count.unaccounted, count.audit.topic)),
        uncounted=[topic for topic in asked.desk.routes.topics if topic not in counted],
        silent=silent,
        trail=trail.entries,
        older=asked_for.build_address("/audit", query, before=str(trail.next)) if trail.next else None,
        query=query,
        did=ACTION_FILTERS,
    )


def _read_actions(name: str) -> Sequence[str]:
    if name in ("", asked_for.ANY):
        return ()
    if name not in ACTION_FILTERS:
        raise FilterFault(f"Nothing that people do is called {name!r}: {', '.join(ACTION_FILTERS)}.")
    return ACTION_FILTERS[name]


def _read_before(query: QueryParams) -> int | None:
    said = query.get("before", "")
    if said and not (said.isascii() and said.isdecimal() and len(said) < 19):
        raise FilterFault(f"{said!r} is no place in the audit log.")
    return int(said) if said else None
