"""The authorization of a request: its principal, the roles that suffice, and the values that it sees masked.

permissions.py has the role that each action needs. http_security.py refuses forged forms.
"""

import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import Final, NamedTuple, Self

from bridge.console.auth import permissions as may
from bridge.deadletters.accounts.account_session import BY_LINK
from bridge.deadletters.accounts.user_account import Role
from bridge.deadletters.dead_letter_service import DeadLetterService
from bridge.deadletters.masking.letter_mask import NO_MASKS, LetterMasks
from bridge.deadletters.model.bulk_plan import BulkPlan, PlanKind
from bridge.deadletters.model.letter_scope import EVERYTHING, LetterScope
from bridge.deadletters.replay.plan_progress import PlanProgress
from bridge.errors import OutsideScope, PlanRefused, UnknownHandler, UnknownTopic
from bridge.settings import EnvironmentSettings
from bridge.settings.masked_fields import read_mask_rules


class Principal(NamedTuple):
    """The user or program that sends a request.

    Attributes:
        name: as the audit log has it.
        token: the form token of its session; "" if nobody is signed in.
        issuer: the OpenID Connect issuer that signed it in; "": none.
        mark: identifies its forms after its session has ended (bridge.console.form_drafts).
        scope: the letters that it may see.
        signs_out: whether it has a session here; not if a proxy signs it in.
    """

    name: str
    role: Role
    token: str = ""
    signs_out: bool = True
    mark: str = ""
    issuer: str = ""
    scope: LetterScope = EVERYTHING

    @property
    def is_admin(self) -> bool:
        """Return whether it is an admin who sees everything, and so manages accounts."""
        return self.role >= Role.ADMIN and not self.scope

    @property
    def is_user(self) -> bool:
        """Return whether it has a password here: not if a proxy, an issuer or the one-time link signed it in."""
        return self.signs_out and not self.issuer and self.name not in ("", BY_LINK)

    @property
    def shown(self) -> str:
        """Return the name that the top bar shows."""
        return "No users yet: this machine alone" if self.name == BY_LINK and self.signs_out else self.name

    def __repr__(self) -> str:
        """Return the principal without its token and mark."""
        return f"Principal(name={self.name!r}, role={self.role}, scope={self.scope})"


#: The principal of a request without a sign-in.
ANONYMOUS: Final = Principal("", Role.NOBODY)


def find_role_refusal(who: Principal, needed: Role) -> str | None:
    """Return why a principal may not do what needs a role; `None` if it may."""
    if who.role >= needed:
        return None
    return f"This needs the role {needed}; {who.name} has the role {who.role}."


class ScopeRule(Enum):
    """The answer of an address to a principal with a scope. An address that declares none is closed to it."""

    CLOSED = auto()
    """It is about all letters, or about the console itself."""
    NARROWED = auto()
    """It answers from the store and the status, which are narrowed to the scope."""
    TOPIC = auto()
    """It is about the topic in the address, which must be in the scope."""
    HANDLER = auto()
    """It is about the handler in the address, of which a topic must be in the scope."""
    WHOLE_HANDLER = auto()
    """The same, and all topics of the handler must be in the scope."""


def check_scope(rule: ScopeRule, who: Principal, desk: DeadLetterService, path: Mapping[str, str]) -> None:
    """Check that an address is open to the scope of a principal.

    Parameters:
        desk: the whole store.
        path: the parts of the address.

    Raises:
        UnknownTopic, UnknownHandler: the topic or handler is outside the scope, or there is none.
        OutsideScope: the address is closed to principals with a scope.
    """
    if not who.scope or rule is ScopeRule.NARROWED:
        return
    group = desk.settings.group
    if rule is ScopeRule.CLOSED:
        raise OutsideScope(
            f"{who.name} sees some topics and consumer groups alone ({who.scope}), and this is about all of them: an "
            "account without a scope can do it. Nothing was changed."
        )
    if rule is ScopeRule.TOPIC:
        if not who.scope.covers(path["topic"], group):
            raise UnknownTopic(f"No handler here names the topic {path['topic']!r}, and it is not halted.")
        return
    handler = desk.routes.handlers.get(path["name"])
    covered = [] if handler is None else [who.scope.covers(topic, group) for topic in handler.topics]
    if not any(covered):
        raise UnknownHandler(f"No handler here is called {path['name']!r}.")
    if rule is ScopeRule.WHOLE_HANDLER and not all(covered):
        raise OutsideScope(
            f"The handler {path['name']} also handles topics outside your scope, and this is about all of them: an "
            "account without a scope can do it. Nothing was changed."
        )


def check_discard(plan: BulkPlan, who: Principal, form: Mapping[str, str]) -> None:
    """Check that a principal may discard so many letters, and has typed their number.

    Raises:
        PlanRefused: the role does not suffice, or the decision or the number is missing.
    """
    count = plan.counts.letters
    if plan.what is not PlanKind.DISCARD:
        return
    if exceeds_discard_limit(plan, who):
        raise PlanRefused(
            f"To discard {count:,} letters takes an admin: you are {who.role}, who may discard "
            f"{may.MAX_OPERATOR_DISCARDS:,} by one plan. Nothing was discarded."
        )
    if not form.get("why", "").strip():
        raise PlanRefused("To discard letters a reason is needed: it stays in the audit log. Nothing was discarded.")
    if form.get("count", "").strip().replace(",", "") != str(count):
        raise PlanRefused(f"Type {count} to discard these letters. Nothing was discarded.")


def check_resumption(found: PlanProgress, who: Principal) -> None:
    """Check that a principal may resume a stopped plan that was applied before."""
    plan = found.plan
    if not was_applied(found):
        raise PlanRefused(f"Plan {plan.id} was thrown away before it was approved: make a new plan.")
    check_discard_role(plan, who)


def check_discard_role(plan: BulkPlan, who: Principal) -> None:
    """Check that a principal may discard as many letters as a plan has, if it discards."""
    if exceeds_discard_limit(plan, who):
        raise PlanRefused(f"To discard {plan.counts.letters:,} letters takes an admin: you are {who.role}.")


def was_applied(found: PlanProgress) -> bool:
    """Return whether the audit log has a decision to apply the plan."""
    return any(act.what == "apply" for act in found.trail)


def exceeds_discard_limit(plan: BulkPlan, who: Principal) -> bool:
    """Return whether a plan discards more letters than the principal may."""
    is_large = plan.what is PlanKind.DISCARD and plan.counts.letters > may.MAX_OPERATOR_DISCARDS
    return is_large and who.role < may.DISCARD_MORE


#: The ms for which an admin sees masked values after giving a reason.
UNMASK_MS: Final = 15 * 60_000


@dataclass
class MaskAccess:
    """The rules for masked values, and the sessions of this process in which an admin has unmasked them.

    Parameters:
        seen_from: the lowest role that sees everything; `None`: no role.
        may_be_lifted: whether an admin may unmask values for a while.
        clock: ms since the epoch.
    """

    masks: LetterMasks
    seen_from: Role | None
    may_be_lifted: bool
    clock: Callable[[], int] = field(repr=False)
    ticks: Callable[[], int] = field(default=lambda: time.monotonic_ns() // 1_000_000, repr=False)
    _until: dict[str, int] = field(default_factory=dict, init=False, repr=False)
    _lock: threading.Lock = field(default_factory=threading.Lock, init=False, repr=False)

    @classmethod
    def from_environment(cls, said: EnvironmentSettings, clock: Callable[[], int]) -> Self:
        """Return the access that the settings describe."""
        lifted = said.DEADLETTERS_UNMASK == "yes"
        return cls(
            LetterMasks(read_mask_rules(said.DEADLETTERS_MASK)), Role.read(said.DEADLETTERS_MASK_NOT_FOR), lifted, clock
        )

    def of_role(self, role: Role) -> LetterMasks:
        """Return the masks for a role, of people and of programs; programs cannot unmask."""
        return NO_MASKS if self.seen_from is not None and role >= self.seen_from else self.masks

    def of_who(self, who: Principal) -> LetterMasks:
        """Return the masks that hold for a principal now."""
        return NO_MASKS if self.until(who) else self.of_role(who.role)

    def may_lift(self, who: Principal) -> bool:
        """Return whether a principal may unmask values for a while, and has not done so."""
        return self.may_be_lifted and who.role >= may.UNMASK and bool(self.of_who(who))

    def until(self, who: Principal) -> int | None:
        """Return until when a principal sees masked values; `None` if it does not."""
        with self._lock:
            left = (
                self._until.get(who.token, 0) - self.ticks()
                if who.role >= may.UNMASK and who.token in self._until
                else 0
            )
            return self.clock() + left if left > 0 else None

    def lift(self, who: Principal) -> None:
        """Unmask values for a principal; the caller has checked the permission."""
        now = self.ticks()
        with self._lock:
            self._until = {token: until for token, until in self._until.items() if until > now}
            self._until[who.token] = now + UNMASK_MS

    def put_back(self, who: Principal) -> None:
        """Mask the values again."""
        with self._lock:
            self._until.pop(who.token, None)
