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
    letter,
    letters,
    overview,
    plan,
    plans,
    policy,
    signing,
    users,
)
from bridge.web.roles import Role


class Page(NamedTuple):
    """An address.

    Attributes:
        method: GET shows, and changes nothing; POST acts, and wants the token of the session.
        answer: is called in a thread: it may wait for the database.
    """

    path: str
    method: str
    role: Role
    answer: Callable[[Request], Response]


PAGES: Final = (
    Page("/", "GET", Role.VIEWER, overview.shown),
    Page("/topics/{topic}/halt", "GET", Role.OPERATOR, halting.form),
    Page("/topics/{topic}/halt", "POST", Role.OPERATOR, halting.halt),
    Page("/topics/{topic}/resume", "GET", Role.OPERATOR, halting.form),
    Page("/topics/{topic}/resume", "POST", Role.OPERATOR, halting.resume),
    Page("/handlers/{name}/policy", "GET", Role.VIEWER, policy.form),
    Page("/handlers/{name}/policy", "POST", Role.OPERATOR, policy.change),
    Page("/find", "GET", Role.VIEWER, find.shown),
    Page("/audit", "GET", Role.VIEWER, audit.shown),
    Page("/audit", "POST", Role.VIEWER, audit.count),
    Page("/audit/{topic}", "POST", Role.VIEWER, audit.count),
    Page("/groups", "GET", Role.VIEWER, groups.listed),
    Page("/groups/{id:int}", "GET", Role.VIEWER, groups.one),
    Page("/groups/{id:int}/fixed", "GET", Role.OPERATOR, fixed.form),
    Page("/groups/{id:int}/fixed", "POST", Role.OPERATOR, fixed.mark),
    Page("/groups/{id:int}/not-fixed", "POST", Role.OPERATOR, fixed.unmark),
    Page("/groups/{id:int}/note", "POST", Role.OPERATOR, fixed.note),
    Page("/letters", "GET", Role.VIEWER, letters.listed),
    Page("/letters/{id:int}", "GET", Role.VIEWER, letter.one),
    Page("/letters/{id:int}/value", "GET", Role.VIEWER, letter.value),
    Page("/letters/{id:int}/elsewhere", "GET", Role.VIEWER, letter.others),
    Page("/letters/{id:int}/notes", "POST", Role.OPERATOR, letter.note),
    Page("/letters/{id:int}/edit", "GET", Role.OPERATOR, edit.form),
    Page("/letters/{id:int}/edit", "POST", Role.OPERATOR, edit.send),
    Page("/letters/{id:int}/check", "POST", Role.OPERATOR, edit.check),
    Page("/plans", "GET", Role.VIEWER, plans.listed),
    Page("/plans/new", "POST", Role.OPERATOR, plans.new),
    Page("/plans/{id:int}", "GET", Role.VIEWER, plan.one),
    Page("/plans/{id:int}/apply", "POST", Role.OPERATOR, plan.apply),
    Page("/plans/{id:int}/stop", "POST", Role.OPERATOR, plan.stop),
    Page("/events", "GET", Role.VIEWER, events.answer),
    Page("/sign-in", "GET", Role.NOBODY, signing.form),
    Page("/sign-in", "POST", Role.NOBODY, signing.enter),
    Page("/sign-in/{token}", "GET", Role.NOBODY, signing.link),
    Page("/sign-in/{token}", "POST", Role.NOBODY, signing.by_link),
    Page("/account", "GET", Role.VIEWER, account.one),
    Page("/account/password", "POST", Role.VIEWER, account.password),
    Page("/account/sign-out", "POST", Role.VIEWER, account.sign_out_everywhere),
    Page("/admin/users", "GET", Role.ADMIN, users.listed),
    Page("/sign-out", "POST", Role.VIEWER, signing.out),
    Page("/healthz", "GET", Role.NOBODY, signing.alive),
)
