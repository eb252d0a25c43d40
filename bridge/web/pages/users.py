"""Users: who may sign in, and what they may; added, changed, signed out and removed by an admin."""

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from bridge.deadletters.desk import Desk
from bridge.deadletters.store.users import User
from bridge.errors import UserChanged, UserRefused
from bridge.web import console
from bridge.web.roles import Role

_ONESELF = "What you may yourself another admin changes; your password is changed under Account. Nothing was changed."


def listed(request: Request) -> Response:
    """All of them, by name."""
    return _list(request)


def invite(request: Request) -> Response:
    """Add somebody, and show the link by which they choose a password: the same form once more shows it again."""
    form = request.state.form
    role, token = Role.read(form.get("role", "")), form.get("link", "")
    try:
        if role is None:
            raise UserRefused("A role is viewer, operator or admin: nothing was changed.")
        user = _desk(request).admins.invite(form.get("name", ""), role, token, console.asking(request).name)
    except UserRefused as error:
        return _list(request, 400, str(error))
    return _link(request, user, token)


def one(request: Request) -> Response:
    """One of them, and what can be changed."""
    return _one(request)


def role(request: Request) -> Response:
    """Change what somebody may."""
    form = request.state.form
    try:
        wanted = Role.read(form.get("role", ""))
        if wanted is None:
            raise UserRefused("A role is viewer, operator or admin: nothing was changed.")
        by = _another(request)
        _desk(request).admins.give_role(request.path_params["id"], form.get("was", ""), wanted, by)
    except UserRefused as error:
        return _one(request, error)
    return RedirectResponse(f"/admin/users/{request.path_params['id']}", 303)


def link(request: Request) -> Response:
    """Have somebody choose another password, by a link that this shows; the same form once more shows it again."""
    token = request.state.form.get("link", "")
    try:
        user = _desk(request).admins.new_link(request.path_params["id"], token, _another(request))
    except UserRefused as error:
        return _one(request, error)
    return _link(request, user, token)


def sign_out(request: Request) -> Response:
    """End all of somebody's sessions."""
    try:
        _desk(request).admins.sign_out(request.path_params["id"], console.asking(request).name)
    except UserRefused as error:
        return _one(request, error)
    return RedirectResponse(f"/admin/users/{request.path_params['id']}", 303)


def sign_out_issued(request: Request) -> Response:
    """End the sessions of all whom an issuer has signed in."""
    _desk(request).issued.end_all(console.asking(request).name)
    return RedirectResponse("/admin/users", 303)


def remove(request: Request) -> Response:
    """Remove somebody."""
    try:
        _desk(request).admins.remove(request.path_params["id"], _another(request))
    except UserRefused as error:
        return _one(request, error)
    return RedirectResponse("/admin/users", 303)


def _another(request: Request) -> str:
    """The name of the admin, who is not the user that it is about."""
    who = console.asking(request)
    user = next((each for each in _desk(request).users.all() if each.id == request.path_params["id"]), None)
    if who.is_user and user is not None and user.name == who.name:
        raise UserRefused(_ONESELF)
    return who.name


def _desk(request: Request) -> Desk:
    return console.of(request).desk


def _list(request: Request, status: int = 200, trouble: str = "") -> Response:
    asked = console.of(request)
    users = asked.desk.users.all()
    return asked.page(
        request, "users.html", status, users=users, proxy=asked.proxy, issuer=asked.issuer, trouble=trouble
    )


def _one(request: Request, fault: UserRefused | None = None) -> Response:
    try:
        user = _desk(request).admins.one(request.path_params["id"])
    except UserChanged as error:
        return _list(request, 404 if fault is None else 409, str(error))
    status = 200 if fault is None else 409 if isinstance(fault, UserChanged) else 400
    is_me = console.asking(request).is_user and user.name == console.asking(request).name
    return console.of(request).page(
        request, "user.html", status, user=user, is_me=is_me, trouble="" if fault is None else str(fault)
    )


def _link(request: Request, user: User, token: str) -> Response:
    base = str(request.base_url).rstrip("/")
    if request.headers.get("x-forwarded-proto", "").lower() == "https":
        base = "https" + base[base.index(":") :]
    return console.of(request).page(request, "user-link.html", user=user, link=f"{base}/welcome/{user.id}/{token}")
