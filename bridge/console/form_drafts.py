"""Drafts of forms that were sent after a session had ended, kept while their author signs in again."""

import hmac
import secrets
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from starlette.datastructures import QueryParams

#: Ms for which a form is kept.
DRAFT_MS: Final = 1_800_000
#: Characters of one form, as it is sent; of a larger one nothing is kept.
MAX_DRAFT_CHARACTERS: Final = 1_300_000
#: Forms that are kept at a time; of more the oldest goes.
MAX_DRAFTS: Final = 20


class FormDraft(NamedTuple):
    """One that was not taken.

    Attributes:
        name: of who filled it in.
        path: of the page that it stands on.
        until: ms of the clock.
    """

    name: str
    path: str
    fields: QueryParams = QueryParams()
    until: int = 0

    def __repr__(self) -> str:
        """Without what was typed."""
        return f"Form(name={self.name!r}, path={self.path!r})"


@dataclass
class FormDrafts:
    """In the memory of one process: what is typed is written nowhere.

    Parameters:
        clock: ms that no one sets.
    """

    clock: Callable[[], int] = lambda: time.monotonic_ns() // 1_000_000
    _key: bytes = field(default_factory=lambda: secrets.token_bytes(32), repr=False)
    _forms: dict[str, FormDraft] = field(default_factory=dict, repr=False)
    _lock: threading.Lock = field(default_factory=threading.Lock, repr=False)

    def mark(self, name: str) -> str:
        """What a form brings along, so that whose it was is known when their session is not any more."""
        return self._sign(name) + name.encode().hex()

    def whose(self, mark: str) -> str | None:
        """Whose form it is; `None`: no page of this process was made with this mark."""
        try:
            name = bytes.fromhex(mark[64:]).decode()
        except ValueError:
            return None
        return name if hmac.compare_digest(mark[:64].encode(), self._sign(name).encode()) else None

    def keep(self, form: FormDraft) -> str:
        """Keep a form, by whose mark its name is known: what it is found by; "": it is too large."""
        if sum(len(name) + len(value) for name, value in form.fields.multi_items()) > MAX_DRAFT_CHARACTERS:
            return ""
        id_ = secrets.token_urlsafe(16)
        with self._lock:
            self._forget()
            self._forms[id_] = form._replace(until=self.clock() + DRAFT_MS)
            while len(self._forms) > MAX_DRAFTS:
                del self._forms[next(iter(self._forms))]
        return id_

    def found(self, id_: str, name: str, path: str) -> QueryParams | None:
        """What was typed, for the page of its form and for who has typed it."""
        with self._lock:
            self._forget()
            form = self._forms.get(id_)
        return form.fields if form and (form.name, form.path) == (name, path) else None

    def _forget(self) -> None:
        now = self.clock()
        self._forms = {id_: form for id_, form in self._forms.items() if form.until > now}

    def _sign(self, name: str) -> str:
        return hmac.digest(self._key, name.encode(), "sha256").hex()
