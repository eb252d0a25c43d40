"""Drafts of forms that were sent after a session had ended, kept while their author signs in again."""

import hmac
import secrets
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from starlette.datastructures import QueryParams

#: The time for which a form is kept, in ms.
DRAFT_MS: Final = 1_800_000
#: The most characters of a form that is kept.
MAX_DRAFT_CHARACTERS: Final = 1_300_000
#: The most forms that are kept; the oldest is dropped first.
MAX_DRAFTS: Final = 20


class FormDraft(NamedTuple):
    """A form that was not accepted because its session had ended.

    Attributes:
        name: the user who filled it in.
        path: the page of the form.
        until: when it expires, ms of the clock.
    """

    name: str
    path: str
    fields: QueryParams = QueryParams()
    until: int = 0

    def __repr__(self) -> str:
        """Return the draft without the values that were typed."""
        return f"Form(name={self.name!r}, path={self.path!r})"


@dataclass
class FormDrafts:
    """The form drafts of one process, in memory only: typed values are written nowhere.

    Parameters:
        clock: ms of a monotonic clock.
    """

    clock: Callable[[], int] = lambda: time.monotonic_ns() // 1_000_000
    _key: bytes = field(default_factory=lambda: secrets.token_bytes(32), repr=False)
    _forms: dict[str, FormDraft] = field(default_factory=dict, repr=False)
    _lock: threading.Lock = field(default_factory=threading.Lock, repr=False)

    def mark(self, name: str) -> str:
        """Return a signed mark for a form, by which its author is known after their session has ended."""
        return self._sign(name) + name.encode().hex()

    def whose(self, mark: str) -> str | None:
        """Return the author of a form; `None` if no page of this process was made with this mark."""
        try:
            name = bytes.fromhex(mark[64:]).decode()
        except ValueError:
            return None
        return name if hmac.compare_digest(mark[:64].encode(), self._sign(name).encode()) else None

    def keep(self, form: FormDraft) -> str:
        """Keep a form whose author is known by its mark, and return its id; "" if it is too large."""
        if sum(len(name) + len(value) for name, value in form.fields.multi_items()) > MAX_DRAFT_CHARACTERS:
            return ""
        id_ = secrets.token_urlsafe(16)
        with self._lock:
            self._forget()
            self._forms[id_] = form._replace(until=self.clock() + DRAFT_MS)
            while len(self._forms) > MAX_DRAFTS:
                del self._forms[next(iter(self._forms))]
        return id_

    def find_draft(self, id_: str, name: str, path: str) -> QueryParams | None:
        """Return the typed values, for the page and the author of the form only."""
        with self._lock:
            self._forget()
            form = self._forms.get(id_)
        return form.fields if form and (form.name, form.path) == (name, path) else None

    def _forget(self) -> None:
        now = self.clock()
        self._forms = {id_: form for id_, form in self._forms.items() if form.until > now}

    def _sign(self, name: str) -> str:
        return hmac.digest(self._key, name.encode(), "sha256").hex()
