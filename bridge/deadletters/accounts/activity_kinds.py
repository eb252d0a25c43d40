"""The kinds of entries in the audit log, as people choose them on the page Activity and as roles see them."""

from collections.abc import Sequence
from typing import Final

from bridge.deadletters.db.audit_rows import EntryFilter

#: The kinds of entries about users, tokens and sign-ins.
USER_KIND: Final = "user"
TOKEN_KIND: Final = "token"
SIGN_IN_KIND: Final = "sign-in"
SIGN_OUT_KIND: Final = "sign-out"
FAILED_SIGN_IN_KIND: Final = "failed sign-in"
#: The kinds of which only an admin sees those of others.
ACCOUNT_KINDS: Final = (USER_KIND, TOKEN_KIND, SIGN_IN_KIND, SIGN_OUT_KIND, FAILED_SIGN_IN_KIND)
#: The actor of a sign-in that failed: whoever it was is not known.
NOT_SIGNED_IN: Final = "not signed in"

#: The kinds of acts that can be chosen, by their words.
ACTIVITY_KINDS: Final = {
    "replay": ("replay",),
    "discard": ("discard",),
    "archive": ("archive",),
    "edit, patch": ("edit", "patch"),
    "copy, redrive": ("copy", "redrive"),
    "plan applied, stopped": ("apply", "stop"),
    "plan approved, rejected": ("request", "approve", "reject"),
    "note": ("note",),
    "reopen, resolve": ("reopen", "resolve"),
    "fixed": ("fixed", "not fixed", "regressed"),
    "export, import": ("export", "import"),
    "halt, resume": ("halt", "resume"),
    "policy": ("policy",),
    "sign-ins": (SIGN_IN_KIND, SIGN_OUT_KIND),
    "failed sign-ins": (FAILED_SIGN_IN_KIND,),
    "users, tokens": (USER_KIND, TOKEN_KIND),
    "unmask": ("unmask",),
    "webhooks": ("webhook",),
}


def filter_for_reader(wanted: EntryFilter, reader: str, *, is_admin: bool) -> EntryFilter:
    """Return a filter that leaves out what its reader does not see: who is no admin sees its own sign-ins alone."""
    hidden: Sequence[str] = () if is_admin else ACCOUNT_KINDS
    return wanted._replace(hidden=hidden, reader=reader)
