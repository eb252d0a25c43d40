"""The page Audit: the last audit count of each topic. The acts of people are on the page Activity."""

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from bridge.console import console
from bridge.errors import KafkaUnavailable, LedgerUnavailable, UnknownTopic


def show_audit(request: Request) -> Response:
    """Show the last audit of each topic."""
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
    asked = console.get_console(request)
    audits = asked.audit_cache.all()
    counted = {count.audit.topic for count in audits}
    return asked.page(
        request,
        "audit.html",
        status,
        audits=sorted(audits, key=lambda count: (-count.unaccounted, count.audit.topic)),
        uncounted=[topic for topic in asked.desk.routes.topics if topic not in counted],
        silent=silent,
    )
