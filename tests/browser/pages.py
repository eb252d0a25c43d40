"""Every page of the console as the night has it, by its route: a page that is new must enter here."""

from typing import Final
from urllib.parse import quote

from tests.browser.incident import CHARGE, PAY_BACK

#: Of each route that shows a page its addresses, one for each way in which it looks; in braces
#: what tests.browser.incident.Night has.
ADDRESSES: Final[dict[str, tuple[str, ...]]] = {
    "/": ("/", "/?charts=15m.7d.shared"),
    "/topics/{topic}": (
        "/topics/shop.orders",
        "/topics/shop.orders?decisions=1",
        "/topics/shop.orders?blocking=1",
        "/topics/shop.orders?charts=15m.table",
    ),
    "/topics/{topic}/records/{partition:int}/{offset:int}": ("/topics/shop.orders/records/0/99",),
    "/topics/{topic}/records/{partition:int}/{offset:int}/good": ("/topics/shop.orders/records/0/99/good",),
    "/topics/{topic}/halt": ("/topics/shop.orders/halt",),
    "/topics/{topic}/resume": ("/topics/shop.orders/resume",),
    "/handlers/{name}": (f"/handlers/{CHARGE}", f"/handlers/{CHARGE}?charts=7d.took-24h.table"),
    "/handlers/{name}/policy": (f"/handlers/{CHARGE}/policy", f"/handlers/{CHARGE}/policy?option=retry_delays"),
    "/find": ("/find", "/find?q=shop.orders-0-0", "/find?q=cust-90412", "/find?q=nothing-of-that-name"),
    "/activity": ("/activity", "/activity?range=yesterday", "/activity?range=all&who=ann"),
    "/audit": ("/audit",),
    "/groups": ("/groups", "/groups?show=all&sort=name"),
    "/groups/fixed": ("/groups/fixed?group={group}&group=1",),
    "/groups/{id:int}": ("/groups/{group}",),
    "/groups/{id:int}/common": ("/groups/{group}/common",),
    "/groups/{id:int}/fixed": ("/groups/{group}/fixed",),
    "/letters": (
        "/letters?rows=25",
        f"/letters?handler={CHARGE}&status=open&rows=25",
        "/letters?status=resolved&rows=25",
        "/letters?text=nothing+says+this",
        "/letters?since=nonsense",
    ),
    "/letters/{id:int}": (
        "/letters/{total}?elsewhere=1",
        "/letters/{again}",
        "/letters/{hostile}",
        "/letters/{bytes_}",
        "/letters/{bytes_}?value=hex",
        "/letters/{resolved}",
    ),
    "/letters/{id:int}/good": ("/letters/{total}/good",),
    "/letters/{id:int}/edit": ("/letters/{total}/edit", "/letters/{bytes_}/edit"),
    "/plans": ("/plans",),
    "/plans/patch": ("/plans/patch?group={group}",),
    "/plans/{id:int}/differences": ("/plans/{patched}/differences", "/plans/{done}/differences"),
    "/plans/{id:int}": (
        "/plans/{previewed}",
        "/plans/{discarding}",
        "/plans/{stopped}",
        "/plans/{applying}",
        "/plans/{done}",
        "/plans/{patched}",
        "/plans/{copied}",
        "/plans/{again_sent}",
    ),
    "/sign-in": ("/sign-in", "/sign-in?then=%2Fletters"),
    "/sign-in/{token}": ("/sign-in/no-link",),
    "/account": ("/account",),
    "/admin/users": ("/admin/users",),
    "/admin/users/{id:int}": ("/admin/users/1", "/admin/users/2", "/admin/users/3"),
    "/admin/tokens": ("/admin/tokens",),
    "/welcome/{id:int}/{token}": ("/welcome/1/no-link",),
    "/admin/webhooks": ("/admin/webhooks",),
}
#: What is no page: a file, a part of a page, a stream, a probe.
NO_PAGES: Final = frozenset(
    {
        # Where nothing is masked, as here, it refuses.
        "/admin/unmask",
        "/topics/{topic}/decisions",
        "/topics/{topic}/blocking",
        "/topics/{topic}/records/{partition:int}/{offset:int}/content",
        "/letters/{id:int}/value",
        "/letters/{id:int}/elsewhere",
        "/events",
        # Without an issuer, as here, there are none.
        "/sign-in/oidc",
        "/sign-in/oidc/back",
        "/healthz",
    }
)
#: What is said where there is no page, or none for who asks.
REFUSED: Final = ("/nowhere", f"/letters?handler={quote(PAY_BACK)}&status=nonsense")
