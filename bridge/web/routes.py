"""Every address of the console, and the role that it takes: nothing is answered that does not stand here."""

from collections.abc import Callable
from typing import Final, NamedTuple

from starlette.requests import Request
from starlette.responses import Response

from bridge.web.pages import (
    account,
    audit,
    edit,
    events,
    find,
    fixed,
    groups,
    halting,
    handler,
    letter,
    letters,
    oidc,
    overview,
    patch,
    plan,
    plans,
    policy,
    signing,
    tokens,
    topic,
    unmask,
    users,
    webhooks,
    welcome,
)
from bridge.web.roles import Role
from bridge.web.threads import Waits


class Page(NamedTuple):
    """An address.

    Attributes:
        method: GET shows, and changes nothing; POST acts, and wants the token of the session.
        answer: is called in a thread: it may wait for the database, and for what `waits` says.
        form: the address of the form that is sent here: who had to sign in meanwhile goes back there, with what was
            filled in. `{from}` is what the form itself says. "": of what is sent here nothing is kept.
    """

    path: str
    method: str
    role: Role
    answer: Callable[[Request], Response]
    form: str = ""
    waits: Waits = Waits.DATABASE


PAGES: Final = (
    Page("/", "GET", Role.VIEWER, overview.shown, waits=Waits.STANDING),
    Page("/topics/{topic}", "GET", Role.VIEWER, topic.shown, waits=Waits.STANDING),
    Page("/topics/{topic}/decisions", "GET", Role.VIEWER, topic.decided, waits=Waits.SERVERS),
    Page("/topics/{topic}/halt", "GET", Role.OPERATOR, halting.form, waits=Waits.SERVERS),
    Page("/topics/{topic}/halt", "POST", Role.OPERATOR, halting.halt, "/topics/{topic}/halt", waits=Waits.SERVERS),
    Page("/topics/{topic}/resume", "GET", Role.OPERATOR, halting.form, waits=Waits.SERVERS),
    Page(
        "/topics/{topic}/resume", "POST", Role.OPERATOR, halting.resume, "/topics/{topic}/resume", waits=Waits.SERVERS
    ),
    Page("/handlers/{name}", "GET", Role.VIEWER, handler.shown, waits=Waits.STANDING),
    Page("/handlers/{name}/policy", "GET", Role.VIEWER, policy.form, waits=Waits.SERVERS),
    Page(
        "/handlers/{name}/policy", "POST", Role.OPERATOR, policy.change, "/handlers/{name}/policy", waits=Waits.SERVERS
    ),
    Page("/find", "GET", Role.VIEWER, find.shown, waits=Waits.SERVERS),
    Page("/audit", "GET", Role.VIEWER, audit.shown),
    Page("/audit", "POST", Role.VIEWER, audit.count, waits=Waits.SERVERS),
    Page("/audit/{topic}", "POST", Role.VIEWER, audit.count, waits=Waits.SERVERS),
    Page("/groups", "GET", Role.VIEWER, groups.listed, waits=Waits.STANDING),
    Page("/groups/{id:int}", "GET", Role.VIEWER, groups.one, waits=Waits.STANDING),
    Page("/groups/{id:int}/common", "GET", Role.VIEWER, groups.common),
    Page("/groups/{id:int}/fixed", "GET", Role.OPERATOR, fixed.form, waits=Waits.STANDING),
    Page("/groups/{id:int}/fixed", "POST", Role.OPERATOR, fixed.mark, "/groups/{id}/fixed", waits=Waits.STANDING),
    Page("/groups/{id:int}/not-fixed", "POST", Role.OPERATOR, fixed.unmark, "/groups/{id}"),
    Page("/groups/{id:int}/note", "POST", Role.OPERATOR, fixed.note, "/groups/{id}#h-trail"),
    Page("/letters", "GET", Role.VIEWER, letters.listed),
    Page("/letters/export", "POST", Role.VIEWER, letters.export),
    Page("/letters/{id:int}", "GET", Role.VIEWER, letter.one),
    Page("/letters/{id:int}/value", "GET", Role.VIEWER, letter.value, waits=Waits.SERVERS),
    Page("/letters/{id:int}/elsewhere", "GET", Role.VIEWER, letter.others, waits=Waits.SERVERS),
    Page("/letters/{id:int}/notes", "POST", Role.OPERATOR, letter.note, "/letters/{id}#note"),
    Page("/letters/{id:int}/reopen", "POST", Role.OPERATOR, letter.reopen, "/letters/{id}#end"),
    Page("/letters/{id:int}/resolve", "POST", Role.OPERATOR, letter.resolve, "/letters/{id}#end"),
    Page("/letters/{id:int}/edit", "GET", Role.OPERATOR, edit.form),
    Page("/letters/{id:int}/edit", "POST", Role.OPERATOR, edit.send, "/letters/{id}/edit"),
    Page("/letters/{id:int}/check", "POST", Role.OPERATOR, edit.check),
    Page("/plans", "GET", Role.VIEWER, plans.listed),
    Page("/plans/new", "POST", Role.OPERATOR, plans.new, "{from}", waits=Waits.SERVERS),
    Page("/plans/patch", "GET", Role.OPERATOR, patch.form),
    Page("/plans/patch", "POST", Role.OPERATOR, patch.make, "{from}"),
    Page("/plans/patch/check", "POST", Role.OPERATOR, patch.check),
    Page("/plans/{id:int}", "GET", Role.VIEWER, plan.one),
    Page("/plans/{id:int}/differences", "GET", Role.VIEWER, plan.differences),
    Page("/plans/{id:int}/apply", "POST", Role.OPERATOR, plan.apply, "/plans/{id}"),
    Page("/plans/{id:int}/stop", "POST", Role.OPERATOR, plan.stop, "/plans/{id}"),
    Page("/events", "GET", Role.VIEWER, events.answer),
    Page("/sign-in", "GET", Role.NOBODY, signing.form),
    Page("/sign-in", "POST", Role.NOBODY, signing.enter),
    Page("/sign-in/oidc", "GET", Role.NOBODY, oidc.begin, waits=Waits.ISSUER),
    Page("/sign-in/oidc/back", "GET", Role.NOBODY, oidc.back, waits=Waits.ISSUER),
    Page("/sign-in/{token}", "GET", Role.NOBODY, signing.link),
    Page("/sign-in/{token}", "POST", Role.NOBODY, signing.by_link),
    Page("/account", "GET", Role.VIEWER, account.one),
    Page("/account/password", "POST", Role.VIEWER, account.password),
    Page("/account/sign-out", "POST", Role.VIEWER, account.sign_out_everywhere),
    Page("/admin/users", "GET", Role.ADMIN, users.listed),
    Page("/admin/users", "POST", Role.ADMIN, users.invite, "/admin/users"),
    Page("/admin/users/{id:int}", "GET", Role.ADMIN, users.one),
    Page("/admin/users/{id:int}/role", "POST", Role.ADMIN, users.role, "/admin/users/{id}"),
    Page("/admin/users/{id:int}/link", "POST", Role.ADMIN, users.link, "/admin/users/{id}"),
    Page("/admin/users/{id:int}/sign-out", "POST", Role.ADMIN, users.sign_out, "/admin/users/{id}"),
    Page("/admin/users/{id:int}/remove", "POST", Role.ADMIN, users.remove, "/admin/users/{id}"),
    Page("/admin/issued/sign-out", "POST", Role.ADMIN, users.sign_out_issued),
    Page("/welcome/{id:int}/{token}", "GET", Role.NOBODY, welcome.form),
    Page("/welcome/{id:int}/{token}", "POST", Role.NOBODY, welcome.choose),
    Page("/admin/unmask", "GET", Role.ADMIN, unmask.form),
    Page("/admin/unmask", "POST", Role.ADMIN, unmask.lift),
    Page("/admin/mask", "POST", Role.ADMIN, unmask.put_back),
    Page("/admin/webhooks", "GET", Role.ADMIN, webhooks.listed),
    Page("/admin/webhooks", "POST", Role.ADMIN, webhooks.add),
    Page("/admin/webhooks/{name}/test", "POST", Role.ADMIN, webhooks.test),
    Page("/admin/webhooks/{name}/off", "POST", Role.ADMIN, webhooks.off),
    Page("/admin/webhooks/{name}/on", "POST", Role.ADMIN, webhooks.on),
    Page("/admin/webhooks/{name}/remove", "POST", Role.ADMIN, webhooks.remove),
    Page("/admin/tokens", "GET", Role.ADMIN, tokens.listed),
    Page("/admin/tokens", "POST", Role.ADMIN, tokens.make, "/admin/tokens"),
    Page("/admin/tokens/{id:int}/revoke", "POST", Role.ADMIN, tokens.revoke, "/admin/tokens"),
    Page("/sign-out", "POST", Role.VIEWER, signing.out),
    Page("/healthz", "GET", Role.NOBODY, signing.alive),
)
