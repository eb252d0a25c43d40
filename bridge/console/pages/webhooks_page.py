"""The page of webhooks: add, try, switch and remove them."""

from collections.abc import Callable
from typing import Final
from urllib.parse import quote

from starlette.requests import Request
from starlette.responses import Response

from bridge.console import console
from bridge.console.confirmation import UndoForm
from bridge.console.pages.form_submission import answer_done
from bridge.deadletters.alarms.alarm_event import ALL, AlarmKind
from bridge.deadletters.alarms.webhook_format import WebhookFormat
from bridge.deadletters.alarms.webhook_service import AddedWebhook
from bridge.errors import WebhookRefused

WEBHOOKS_PATH: Final = "/admin/webhooks"


def list_webhooks(request: Request) -> Response:
    """List the webhooks with their last messages, and a form to add one."""
    return _render_webhooks(request)


def add_webhook(request: Request) -> Response:
    """Add a webhook, and show its secret once."""
    here, said = console.get_console(request), request.state.form
    about = [each for each in ALL if said.get(f"of-{each}")]
    if not about:
        return _render_webhooks(request, 400, "Select at least one kind of event.")
    try:
        format_ = WebhookFormat(said.get("format", ""))
        given = (said.get("name", ""), format_, about, said.get("address", ""), said.get("key", ""))
        added = here.desk.webhooks.add(*given, console.get_principal(request).name)
    except WebhookRefused as error:
        return _render_webhooks(request, 400, str(error))
    except ValueError:
        return _render_webhooks(request, 400, "Unknown format: choose Standard, Slack or PagerDuty.")
    return _render_webhooks(request, added=added)


def try_webhook(request: Request) -> Response:
    """Have a recorder send a test message."""
    return _change_webhook(request, console.get_console(request).desk.webhooks.test, "A recorder sends a test to")


def switch_webhook_off(request: Request) -> Response:
    """Switch a webhook off."""
    on = ("on", "Switch it on")
    return _change_webhook(request, console.get_console(request).desk.webhooks.switch_off, "Switched off", on)


def switch_webhook_on(request: Request) -> Response:
    """Switch a webhook on."""
    off = ("off", "Switch it off")
    return _change_webhook(request, console.get_console(request).desk.webhooks.switch_on, "Switched on", off)


def remove_webhook(request: Request) -> Response:
    """Remove a webhook whose name was typed."""
    name = request.path_params["name"]
    if request.state.form.get("typed", "").strip().lower() != name:
        return _render_webhooks(request, 400, f"To remove {name}, type its name. Nothing was changed.")
    return _change_webhook(request, console.get_console(request).desk.webhooks.remove, "Removed")


def _change_webhook(
    request: Request, act: Callable[[str, str], object], done: str, opposite: tuple[str, str] | None = None
) -> Response:
    """Change a webhook.

    Parameters:
        done: the words for it, before the name.
        opposite: the last part of the address of the opposite act, and the words of its button.
    """
    name = request.path_params["name"]
    try:
        act(name, console.get_principal(request).name)
    except WebhookRefused as error:
        return _render_webhooks(request, 409, str(error))
    address = f"{WEBHOOKS_PATH}/{quote(name, safe='')}"
    undo = opposite and UndoForm(opposite[1], f"{address}/{opposite[0]}", {})
    return answer_done(request, WEBHOOKS_PATH, f"{done} {name}.", undo)


def _render_webhooks(
    request: Request, status: int = 200, trouble: str = "", added: AddedWebhook | None = None
) -> Response:
    here = console.get_console(request)
    return here.page(
        request,
        "webhooks.html",
        status,
        webhooks=here.desk.webhooks.list_webhooks(),
        abouts=_SUBJECT_LABELS,
        formats=_FORMAT_LABELS,
        trouble=trouble,
        added=added,
        address=here.desk.settings.environment.DEADLETTERS_CONSOLE_URL,
        typed=request.state.form if trouble and request.method == "POST" else {},
    )


#: The kinds of messages that can be chosen, in words.
_SUBJECT_LABELS: Final = (
    (AlarmKind.NEW, "a new group"),
    (AlarmKind.REGRESSION, "a regression"),
    (AlarmKind.GROWTH, "a group that grows"),
    (AlarmKind.HALT, "a topic that is halted"),
    (AlarmKind.BREAKER, "a circuit breaker that is open"),
    (AlarmKind.APPROVAL, "a plan that awaits a second person"),
)
_FORMAT_LABELS: Final = (
    (WebhookFormat.STANDARD, "Standard Webhooks, signed"),
    (WebhookFormat.SLACK, "Slack (incoming webhook)"),
    (WebhookFormat.PAGERDUTY, "PagerDuty (Events API v2)"),
)
