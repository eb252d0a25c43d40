"""The permissions: for each action, the lowest role that may do it. Pages and API operations read them from here.

authorization.py compares them with the role of a request's principal. A login gets its role elsewhere: in oidc_token.py
from a claim, in trusted_proxy.py from a header, in bridge/deadletters/accounts/user_account.py from the account.
"""

from typing import Final

from bridge.deadletters.accounts.user_account import Role

#: Signing in, accepting an invitation, and the health of the console.
SIGN_IN: Final = Role.NOBODY

#: Groups, letters with their values, plans, the status and the audit log.
VIEW: Final = Role.VIEWER
EXPORT: Final = Role.VIEWER
COUNT_TOPICS: Final = Role.VIEWER
CHANGE_OWN_ACCOUNT: Final = Role.VIEWER

HALT_TOPIC: Final = Role.OPERATOR
RESUME_TOPIC: Final = Role.OPERATOR
CHANGE_POLICY: Final = Role.OPERATOR
MARK_GROUP_FIXED: Final = Role.OPERATOR
WRITE_NOTE: Final = Role.OPERATOR
REOPEN_LETTER: Final = Role.OPERATOR
RESOLVE_LETTER: Final = Role.OPERATOR
EDIT_LETTER: Final = Role.OPERATOR
MAKE_PLAN: Final = Role.OPERATOR
APPLY_PLAN: Final = Role.OPERATOR
STOP_PLAN: Final = Role.OPERATOR
#: The most letters that one plan of an operator may discard.
MAX_OPERATOR_DISCARDS: Final = 1_000

DISCARD_MORE: Final = Role.ADMIN
UNMASK: Final = Role.ADMIN
MANAGE_USERS: Final = Role.ADMIN
MANAGE_TOKENS: Final = Role.ADMIN
MANAGE_WEBHOOKS: Final = Role.ADMIN
