"""Audit: the ledger's proof that nothing is lost, counted when it is asked for, and the audit log of who did what."""

from collections.abc import Sequence
from typing import Final

from starlette.datastructures import QueryParams
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from bridge.deadletters.questions.trail import Done
from bridge.errors import DeskUnavailable, FilterFault, KafkaUnavailable, LedgerUnavailable, UnknownTopic
from bridge.web import asked as asked_for
from bridge.web import console

#: Rows of the audit log.
ROWS: Final = 50
#: What people do, as the audit log says it: by what a filter is called.
DID: Final = {
    "replay": ("replay",),
    "discard": ("discard",),
    "archive": ("archive",),
    "edit, patch": ("edit", "patch"),
    "copy, redrive": ("copy", "redrive"),
    "plan applied, stopped": ("apply", "stop"),
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


def shown(request: Request) -> Response:
    """The last counts, and a page of the audit log."""
    return _page(request, 200, [])


def count(request: Request) -> Response:
    """Count a topic, or all of them, and show it."""
    asked = console.of(request)
    named = request.path_params.get("topic")
    silent = []
    if asked.desk.settings.ledger_url is None:
        silent.append("An audit reads the ledger, and the broker is no Redis: set LEDGER_URL.")
    else:
        try:
            for topic in asked.desk.routes.topics if named is None else [named]:
                asked.proofs.count(topic)
        except (KafkaUnavailable, LedgerUnavailable, UnknownTopic) as error:
            silent.append(str(error))
    return _page(request, 503, silent) if silent else RedirectResponse("/audit", 303)


def _page(request: Request, status: int, silent: list[str]) -> Response:
    asked, query = console.of(request), request.query_params
    proofs = asked.proofs.all()
    counted = {proof.audit.topic for proof in proofs}
    trail = Done((), None)
    try:
        trail = asked.desk.trail.page(query.get("who", "").strip(), _did(query.get("did", "")), _before(query), ROWS)
    except DeskUnavailable as error:
        silent.append(str(error))
    return asked.page(
        request,
        "audit.html",
        status,
        proofs=sorted(proofs, key=lambda proof: (-proof.unaccounted, proof.audit.topic)),
        uncounted=[topic for topic in asked.desk.routes.topics if topic not in counted],
        silent=silent,
        trail=trail.entries,
        older=asked_for.address("/audit", query, before=str(trail.next)) if trail.next else None,
        query=query,
        did=DID,
    )


def _did(name: str) -> Sequence[str]:
    if name in ("", asked_for.ANY):
        return ()
    if name not in DID:
        raise FilterFault(f"Nothing that people do is called {name!r}: {', '.join(DID)}.")
    return DID[name]


def _before(query: QueryParams) -> int | None:
    said = query.get("before", "")
    if said and not (said.isascii() and said.isdecimal() and len(said) < 19):
        raise FilterFault(f"{said!r} is no place in the audit log.")
    return int(said) if said else None
