"""One request to the API, read and validated; and what is answered to it."""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, NamedTuple

from bridge.deadletters.desk import Desk
from bridge.deadletters.masking.lists import Lists
from bridge.deadletters.masking.masks import Masks
from bridge.errors import RequestRefused
from bridge.web.console import Console
from bridge.web.roles import Who


@dataclass(frozen=True)
class Asked:
    """A request.

    Attributes:
        desk: the console's, which notes what it does as this request's.
        path: the parts of the address.
        query, body: of the shapes that the operation names.
        seen: what `If-Match` says, without its quotes; `None`: nothing, "*": however it stands.
    """

    console: Console
    desk: Desk
    who: Who
    path: Mapping[str, Any]
    query: Any
    body: Any
    seen: str | None

    @property
    def masks(self) -> Masks:
        """What who asks does not see: a program unmasks nothing."""
        return self.console.masking.of_role(self.who.role)

    @property
    def lists(self) -> Lists:
        """Lists as who asks sees them."""
        return self.desk.lists(self.masks)

    def must_have_seen(self, etag: str, by: str = "", at: str | None = None, did: str = "") -> None:
        """Refuse, unless what is decided on is as it was seen.

        Parameters:
            etag: as it stands now.
            by, at, did: who changed it last.

        Raises:
            RequestRefused: nothing was seen, or something else.
        """
        if self.seen is None:
            raise RequestRefused(
                "not-seen", f"Send If-Match with the ETag that you have decided on (now: {quoted(etag)})."
            )
        if self.seen not in ("*", etag):
            last = f"{by} did the last thing with it: {did}." if by else "It is not as you have seen it."
            raise RequestRefused(
                "changed",
                f"{last} Look at it again, and decide anew, under another Idempotency-Key. Nothing was changed.",
                etag=quoted(etag),
                by=by or None,
                at=at,
                did=did or None,
            )


class Answer(NamedTuple):
    """What is answered.

    Attributes:
        body: a shape, bytes, or a file's parts, which are read while they are sent.
        status: `None`: the operation's own.
    """

    body: Any
    status: int | None = None
    headers: Mapping[str, str] = MappingProxyType({})


def quoted(etag: str) -> str:
    """As a header has it."""
    return f'"{etag}"'
