"""The tables of the addresses of pages, each with its role, and of the live pages: the console answers no other."""

from collections.abc import Callable
from datetime import UTC
from functools import partial
from typing import Final, NamedTuple

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from bridge.console import console, shown_zone
from bridge.console.auth import authentication
from bridge.console.auth import permissions as may
from bridge.console.auth.authorization import Principal, ScopeRule
from bridge.console.console import Console
from bridge.console.live_snapshot import LiveSnapshot
from bridge.console.pages import (
    account_page,
    activity_page,
    audit_page,
    blocking_rows,
    edit_page,
    find_page,
    groups_page,
    halt_page,
    handler_page,
    letters_page,
    overview_page,
    plans_page,
    record_page,
    saved_view_forms,
    sign_in_page,
    topic_page,
    users_page,
    webhooks_page,
)
from bridge.console.pages.chart_options import ChartOptions, read_chart_options
from bridge.console.thread_pools import WaitKind
from bridge.deadletters.accounts.user_account import Role
from bridge.deadletters.masking.letter_mask import LetterMasks

#: The subjects, by the prefix of their names; each raises if the subject does not exist.
LIVE_SUBJECTS: Final[dict[str, Callable[[Console, str, ChartOptions], Callable[[], LiveSnapshot]]]] = {
    "overview": overview_page.watch_overview,
    "topic": topic_page.watch_topic,
    "handler": handler_page.watch_handler,
}
#: The subjects with content of letters, which not every role sees.
MASKED_SUBJECTS: Final[dict[str, Callable[[Console, str, LetterMasks], Callable[[], LiveSnapshot]]]] = {
    "letters": letters_page.watch_letters,
    "plan": plans_page.watch_plan,
}


def stream_events(request: Request) -> Response:
    """Stream the live parts of the page that `of` names, such as `plan-118`, for a minute."""
    of, here = request.query_params.get("of", ""), console.get_console(request)
    kind, _, rest = of.partition("-")
    masks = console.get_masks(request)
    if kind in MASKED_SUBJECTS:
        make, waits = MASKED_SUBJECTS[kind](here, rest, masks), WaitKind.DATABASE
    elif kind in LIVE_SUBJECTS:
        options = read_chart_options(request.query_params)
        make, waits = LIVE_SUBJECTS[kind](here, rest, options), WaitKind.STATUS
        of = f"{of} {options.text}"
    else:
        raise HTTPException(404)
    # The status of the group is read every three seconds (bridge/console/status_cache.py); a wave can end within one.
    pace = 1.0 if kind == "plan" else 2.0
    # Nginx would buffer events.
    headers = {"x-accel-buffering": "no"}
    # Viewers who see the same share a snapshot.
    who = console.get_principal(request)
    name = f"{of} masked" if masks else of
    if (zone := shown_zone.get_zone()) is not UTC:
        # A snapshot is made in the context of a request, with its zone.
        name = f"{name} {zone}"
    if who.scope:
        # A plan without letters is shown to its maker alone.
        name = f"{name} {who.scope!r} {who.name}"
    goes_on = partial(_is_same_session, request, who, masks)
    events = here.live.stream(name, make, pace, waits, goes_on, release=console.compute_release())
    return StreamingResponse(events, media_type="text/event-stream", headers=headers)


def _is_same_session(request: Request, who: Principal, masks: LetterMasks) -> bool:
    """Return whether the session is still valid, with the same role and the same masks."""
    here = console.get_console(request)
    return authentication.authenticate(here, request) == who and here.masking.of_who(who) == masks


class PageRoute(NamedTuple):
    """The address of a page or of a form.

    Attributes:
        method: GET shows and changes nothing; POST acts and requires the form token.
        scope: what it answers to a principal with a scope.
        answer: runs in a thread; it may wait for the database and for the server that `waits` names.
        form: the address of the form that is sent here: after a new sign-in the user returns there, with the typed
            values. `{from}` stands for the form's own field. "": the form is not kept.
    """

    path: str
    method: str
    role: Role
    answer: Callable[[Request], Response]
    form: str = ""
    waits: WaitKind = WaitKind.DATABASE
    scope: ScopeRule = ScopeRule.CLOSED


PAGE_ROUTES: Final = (
    PageRoute("/", "GET", may.VIEW, overview_page.show_overview, waits=WaitKind.STATUS, scope=ScopeRule.NARROWED),
    PageRoute("/topics/{topic}", "GET", may.VIEW, topic_page.show_topic, waits=WaitKind.STATUS, scope=ScopeRule.TOPIC),
    PageRoute(
        "/topics/{topic}/decisions",
        "GET",
        may.VIEW,
        topic_page.show_decisions,
        waits=WaitKind.SERVERS,
        scope=ScopeRule.TOPIC,
    ),
    PageRoute(
        "/topics/{topic}/blocking",
        "GET",
        may.VIEW,
        blocking_rows.show_blocking,
        waits=WaitKind.SERVERS,
        scope=ScopeRule.TOPIC,
    ),
    PageRoute(
        "/topics/{topic}/halt",
        "GET",
        may.HALT_TOPIC,
        halt_page.show_halt_form,
        waits=WaitKind.SERVERS,
        scope=ScopeRule.TOPIC,
    ),
    PageRoute(
        "/topics/{topic}/halt",
        "POST",
        may.HALT_TOPIC,
        halt_page.halt_topic,
        "/topics/{topic}/halt",
        waits=WaitKind.SERVERS,
        scope=ScopeRule.TOPIC,
    ),
    PageRoute(
        "/topics/{topic}/resume",
        "GET",
        may.RESUME_TOPIC,
        halt_page.show_halt_form,
        waits=WaitKind.SERVERS,
        scope=ScopeRule.TOPIC,
    ),
    PageRoute(
        "/topics/{topic}/resume",
        "POST",
        may.RESUME_TOPIC,
        halt_page.resume_topic,
        "/topics/{topic}/resume",
        waits=WaitKind.SERVERS,
        scope=ScopeRule.TOPIC,
    ),
    PageRoute(
        "/topics/{topic}/records/{partition:int}/{offset:int}",
        "GET",
        may.VIEW,
        record_page.show_record,
        waits=WaitKind.SERVERS,
        scope=ScopeRule.TOPIC,
    ),
    PageRoute(
        "/topics/{topic}/records/{partition:int}/{offset:int}/content",
        "GET",
        may.VIEW,
        record_page.show_content,
        waits=WaitKind.SERVERS,
        scope=ScopeRule.TOPIC,
    ),
    PageRoute(
        "/topics/{topic}/records/{partition:int}/{offset:int}/good",
        "GET",
        may.VIEW,
        record_page.compare_record,
        waits=WaitKind.SERVERS,
        scope=ScopeRule.TOPIC,
    ),
    PageRoute(
        "/handlers/{name}", "GET", may.VIEW, handler_page.show_handler, waits=WaitKind.STATUS, scope=ScopeRule.HANDLER
    ),
    PageRoute(
        "/handlers/{name}/policy",
        "GET",
        may.VIEW,
        handler_page.show_policy_form,
        waits=WaitKind.SERVERS,
        scope=ScopeRule.WHOLE_HANDLER,
    ),
    PageRoute(
        "/handlers/{name}/policy",
        "POST",
        may.CHANGE_POLICY,
        handler_page.change_policy,
        "/handlers/{name}/policy",
        waits=WaitKind.SERVERS,
        scope=ScopeRule.WHOLE_HANDLER,
    ),
    PageRoute("/find", "GET", may.VIEW, find_page.show_find, waits=WaitKind.SERVERS, scope=ScopeRule.NARROWED),
    PageRoute("/activity", "GET", may.VIEW, activity_page.show_activity, scope=ScopeRule.NARROWED),
    PageRoute("/activity/export", "POST", may.EXPORT, activity_page.export_activity, scope=ScopeRule.NARROWED),
    PageRoute("/audit", "GET", may.VIEW, audit_page.show_audit, scope=ScopeRule.NARROWED),
    PageRoute(
        "/audit", "POST", may.COUNT_TOPICS, audit_page.count_topics, waits=WaitKind.SERVERS, scope=ScopeRule.NARROWED
    ),
    PageRoute(
        "/audit/{topic}",
        "POST",
        may.COUNT_TOPICS,
        audit_page.count_topics,
        waits=WaitKind.SERVERS,
        scope=ScopeRule.TOPIC,
    ),
    PageRoute("/groups", "GET", may.VIEW, groups_page.list_groups, waits=WaitKind.STATUS, scope=ScopeRule.NARROWED),
    PageRoute(
        "/groups/fixed",
        "GET",
        may.MARK_GROUP_FIXED,
        groups_page.show_fixed_groups,
        waits=WaitKind.STATUS,
        scope=ScopeRule.NARROWED,
    ),
    PageRoute(
        "/groups/fixed",
        "POST",
        may.MARK_GROUP_FIXED,
        groups_page.mark_groups_fixed,
        "{from}",
        waits=WaitKind.STATUS,
        scope=ScopeRule.NARROWED,
    ),
    PageRoute(
        "/groups/{id:int}", "GET", may.VIEW, groups_page.show_group, waits=WaitKind.STATUS, scope=ScopeRule.NARROWED
    ),
    PageRoute(
        "/groups/{id:int}/common",
        "GET",
        may.VIEW,
        groups_page.show_common,
        waits=WaitKind.SERVERS,
        scope=ScopeRule.NARROWED,
    ),
    PageRoute(
        "/groups/{id:int}/fixed",
        "GET",
        may.MARK_GROUP_FIXED,
        groups_page.show_fixed_form,
        waits=WaitKind.STATUS,
        scope=ScopeRule.NARROWED,
    ),
    PageRoute(
        "/groups/{id:int}/fixed",
        "POST",
        may.MARK_GROUP_FIXED,
        groups_page.mark_fixed,
        "/groups/{id}/fixed",
        waits=WaitKind.STATUS,
        scope=ScopeRule.NARROWED,
    ),
    PageRoute(
        "/groups/{id:int}/not-fixed",
        "POST",
        may.MARK_GROUP_FIXED,
        groups_page.unmark_fixed,
        "/groups/{id}",
        scope=ScopeRule.NARROWED,
    ),
    PageRoute(
        "/groups/{id:int}/note",
        "POST",
        may.WRITE_NOTE,
        groups_page.note_on_group,
        "/groups/{id}#h-trail",
        scope=ScopeRule.NARROWED,
    ),
    PageRoute("/letters", "GET", may.VIEW, letters_page.list_letters, scope=ScopeRule.NARROWED),
    PageRoute("/letters/export", "POST", may.EXPORT, letters_page.export_letters, scope=ScopeRule.NARROWED),
    PageRoute("/letters/{id:int}", "GET", may.VIEW, letters_page.show_letter, scope=ScopeRule.NARROWED),
    PageRoute(
        "/letters/{id:int}/value",
        "GET",
        may.VIEW,
        letters_page.download_value,
        waits=WaitKind.SERVERS,
        scope=ScopeRule.NARROWED,
    ),
    PageRoute(
        "/letters/{id:int}/elsewhere",
        "GET",
        may.VIEW,
        letters_page.show_sibling_deliveries,
        waits=WaitKind.SERVERS,
        scope=ScopeRule.NARROWED,
    ),
    PageRoute(
        "/letters/{id:int}/good",
        "GET",
        may.VIEW,
        record_page.compare_letter,
        waits=WaitKind.SERVERS,
        scope=ScopeRule.NARROWED,
    ),
    PageRoute("/views", "POST", may.VIEW, saved_view_forms.save_view, "/letters", scope=ScopeRule.NARROWED),
    PageRoute("/views/{id:int}/remove", "POST", may.VIEW, saved_view_forms.remove_view, scope=ScopeRule.NARROWED),
    PageRoute(
        "/letters/{id:int}/notes",
        "POST",
        may.WRITE_NOTE,
        letters_page.note_on_letter,
        "/letters/{id}#note",
        scope=ScopeRule.NARROWED,
    ),
    PageRoute(
        "/letters/{id:int}/reopen",
        "POST",
        may.REOPEN_LETTER,
        letters_page.reopen,
        "/letters/{id}#end",
        scope=ScopeRule.NARROWED,
    ),
    PageRoute(
        "/letters/{id:int}/resolve",
        "POST",
        may.RESOLVE_LETTER,
        letters_page.resolve,
        "/letters/{id}#end",
        scope=ScopeRule.NARROWED,
    ),
    PageRoute("/letters/{id:int}/edit", "GET", may.EDIT_LETTER, edit_page.show_edit_form, scope=ScopeRule.NARROWED),
    PageRoute(
        "/letters/{id:int}/edit",
        "POST",
        may.EDIT_LETTER,
        edit_page.send_edit,
        "/letters/{id}/edit",
        scope=ScopeRule.NARROWED,
    ),
    PageRoute("/letters/{id:int}/check", "POST", may.EDIT_LETTER, edit_page.check_edit, scope=ScopeRule.NARROWED),
    PageRoute("/plans", "GET", may.VIEW, plans_page.list_plans, scope=ScopeRule.NARROWED),
    PageRoute(
        "/plans/new",
        "POST",
        may.MAKE_PLAN,
        plans_page.draft_plan,
        "{from}",
        waits=WaitKind.SERVERS,
        scope=ScopeRule.NARROWED,
    ),
    PageRoute("/plans/patch", "GET", may.MAKE_PLAN, edit_page.show_patch_form, scope=ScopeRule.NARROWED),
    PageRoute("/plans/patch", "POST", may.MAKE_PLAN, edit_page.make_patch, "{from}", scope=ScopeRule.NARROWED),
    PageRoute("/plans/patch/check", "POST", may.MAKE_PLAN, edit_page.check_patch, scope=ScopeRule.NARROWED),
    PageRoute("/plans/{id:int}", "GET", may.VIEW, plans_page.show_plan, scope=ScopeRule.NARROWED),
    PageRoute("/plans/{id:int}/differences", "GET", may.VIEW, plans_page.show_differences, scope=ScopeRule.NARROWED),
    PageRoute(
        "/plans/{id:int}/apply", "POST", may.APPLY_PLAN, plans_page.apply_plan, "/plans/{id}", scope=ScopeRule.NARROWED
    ),
    PageRoute(
        "/plans/{id:int}/stop", "POST", may.STOP_PLAN, plans_page.stop_plan, "/plans/{id}", scope=ScopeRule.NARROWED
    ),
    PageRoute("/events", "GET", may.VIEW, stream_events, scope=ScopeRule.NARROWED),
    PageRoute("/sign-in", "GET", may.SIGN_IN, sign_in_page.show_sign_in, scope=ScopeRule.NARROWED),
    PageRoute("/sign-in", "POST", may.SIGN_IN, sign_in_page.sign_in, scope=ScopeRule.NARROWED),
    PageRoute(
        "/sign-in/oidc", "GET", may.SIGN_IN, sign_in_page.begin_oidc, waits=WaitKind.ISSUER, scope=ScopeRule.NARROWED
    ),
    PageRoute(
        "/sign-in/oidc/back",
        "GET",
        may.SIGN_IN,
        sign_in_page.finish_oidc,
        waits=WaitKind.ISSUER,
        scope=ScopeRule.NARROWED,
    ),
    PageRoute("/sign-in/{token}", "GET", may.SIGN_IN, sign_in_page.show_link, scope=ScopeRule.NARROWED),
    PageRoute("/sign-in/{token}", "POST", may.SIGN_IN, sign_in_page.sign_in_by_link, scope=ScopeRule.NARROWED),
    PageRoute("/account", "GET", may.VIEW, account_page.show_account, scope=ScopeRule.NARROWED),
    PageRoute(
        "/account/password", "POST", may.CHANGE_OWN_ACCOUNT, account_page.change_password, scope=ScopeRule.NARROWED
    ),
    PageRoute(
        "/account/sign-out", "POST", may.CHANGE_OWN_ACCOUNT, account_page.sign_out_everywhere, scope=ScopeRule.NARROWED
    ),
    PageRoute("/admin/users", "GET", may.MANAGE_USERS, users_page.list_users),
    PageRoute("/admin/users", "POST", may.MANAGE_USERS, users_page.invite_user, "/admin/users"),
    PageRoute("/admin/users/{id:int}", "GET", may.MANAGE_USERS, users_page.show_user),
    PageRoute("/admin/users/{id:int}/role", "POST", may.MANAGE_USERS, users_page.change_role, "/admin/users/{id}"),
    PageRoute("/admin/users/{id:int}/scope", "POST", may.MANAGE_USERS, users_page.change_scope, "/admin/users/{id}"),
    PageRoute("/admin/users/{id:int}/link", "POST", may.MANAGE_USERS, users_page.renew_link, "/admin/users/{id}"),
    PageRoute(
        "/admin/users/{id:int}/sign-out", "POST", may.MANAGE_USERS, users_page.sign_out_user, "/admin/users/{id}"
    ),
    PageRoute("/admin/users/{id:int}/remove", "POST", may.MANAGE_USERS, users_page.remove_user, "/admin/users/{id}"),
    PageRoute("/admin/issued/sign-out", "POST", may.MANAGE_USERS, users_page.sign_out_issued_users),
    PageRoute("/welcome/{id:int}/{token}", "GET", may.SIGN_IN, account_page.show_invitation, scope=ScopeRule.NARROWED),
    PageRoute("/welcome/{id:int}/{token}", "POST", may.SIGN_IN, account_page.choose_password, scope=ScopeRule.NARROWED),
    PageRoute("/admin/unmask", "GET", may.UNMASK, account_page.show_unmask_form, scope=ScopeRule.NARROWED),
    PageRoute("/admin/unmask", "POST", may.UNMASK, account_page.lift_masks, scope=ScopeRule.NARROWED),
    PageRoute("/admin/mask", "POST", may.UNMASK, account_page.restore_masks, scope=ScopeRule.NARROWED),
    PageRoute("/admin/webhooks", "GET", may.MANAGE_WEBHOOKS, webhooks_page.list_webhooks),
    PageRoute("/admin/webhooks", "POST", may.MANAGE_WEBHOOKS, webhooks_page.add_webhook),
    PageRoute("/admin/webhooks/{name}/test", "POST", may.MANAGE_WEBHOOKS, webhooks_page.try_webhook),
    PageRoute("/admin/webhooks/{name}/off", "POST", may.MANAGE_WEBHOOKS, webhooks_page.switch_webhook_off),
    PageRoute("/admin/webhooks/{name}/on", "POST", may.MANAGE_WEBHOOKS, webhooks_page.switch_webhook_on),
    PageRoute("/admin/webhooks/{name}/remove", "POST", may.MANAGE_WEBHOOKS, webhooks_page.remove_webhook),
    PageRoute("/admin/tokens", "GET", may.MANAGE_TOKENS, users_page.list_tokens),
    PageRoute("/admin/tokens", "POST", may.MANAGE_TOKENS, users_page.make_token, "/admin/tokens"),
    PageRoute("/admin/tokens/{id:int}/revoke", "POST", may.MANAGE_TOKENS, users_page.revoke_token, "/admin/tokens"),
    PageRoute("/sign-out", "POST", may.CHANGE_OWN_ACCOUNT, sign_in_page.sign_out, scope=ScopeRule.NARROWED),
    PageRoute("/healthz", "GET", may.SIGN_IN, sign_in_page.answer_health, scope=ScopeRule.NARROWED),
)
