"""The principal of a request: its role, the masked values that it sees, and its limit for discards."""

import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple, Self

from bridge.deadletters.accounts.account_session import BY_LINK
from bridge.deadletters.accounts.user_account import Role
from bridge.deadletters.masking.letter_mask import NO_MASKS, LetterMasks
from bridge.deadletters.model.bulk_plan import BulkPlan, PlanKind
from bridge.deadletters.replay.plan_progress import PlanProgress
from bridge.errors import PlanRefused
from bridge.settings import EnvironmentSettings
from bridge.settings.mask_rules import read_mask_rules

__all__ = ["ANONYMOUS", "Principal", "Role"]


class Principal(NamedTuple):
    """Somebody who asks for a page.

    Attributes:
        name: for the trail.
        token: which a form must bring along; "" where nobody is signed in.
        issuer: of OpenID Connect, by whose word they are signed in; "": by nobody's.
        mark: by which a form is known as theirs when their session is over (bridge.console.form_drafts).
        signs_out: whether they have a session here: not, where a proxy says who they are.
    """

    name: str
    role: Role
    token: str = ""
    signs_out: bool = True
    mark: str = ""
    issuer: str = ""

    @property
    def is_admin(self) -> bool:
        """Whether they may all."""
        return self.role >= Role.ADMIN

    @property
    def is_user(self) -> bool:
        """Whether they have a password here: not, whom a proxy or an issuer names, or who came by the one-time link."""
        return self.signs_out and not self.issuer and self.name not in ("", BY_LINK)

    @property
    def shown(self) -> str:
        """What stands in the bar on top."""
        return "No users yet: this machine alone" if self.name == BY_LINK and self.signs_out else self.name

    def __repr__(self) -> str:
        """Without the token and the mark."""
        return f"Who(name={self.name!r}, role={self.role})"


ANONYMOUS = Principal("", Role.NOBODY)


#: Ms for which an admin sees what is masked, from when they said why.
UNMASK_MS: Final = 15 * 60_000


@dataclass
class MaskAccess:
    """Unmasking is of one session of this process, and ends with either.

    Parameters:
        seen_from: the role from which on all is seen; `None`: none.
        may_be_lifted: whether an admin may see it for a while.
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
    def of(cls, said: EnvironmentSettings, clock: Callable[[], int]) -> Self:
        """As the settings say."""
        lifted = said.DEADLETTERS_UNMASK == "yes"
        return cls(
            LetterMasks(read_mask_rules(said.DEADLETTERS_MASK)), Role.read(said.DEADLETTERS_MASK_NOT_FOR), lifted, clock
        )

    def of_role(self, role: Role) -> LetterMasks:
        """What a role does not see: of programs, too, which unmask nothing."""
        return NO_MASKS if self.seen_from is not None and role >= self.seen_from else self.masks

    def of_who(self, who: Principal) -> LetterMasks:
        """What somebody does not see now."""
        return NO_MASKS if self.until(who) else self.of_role(who.role)

    def may_lift(self, who: Principal) -> bool:
        """Whether somebody may see it for a while, and does not yet."""
        return self.may_be_lifted and who.is_admin and bool(self.of_who(who))

    def until(self, who: Principal) -> int | None:
        """Until when somebody sees what is masked; `None`: they do not."""
        with self._lock:
            left = self._until.get(who.token, 0) - self.ticks() if who.is_admin and who.token in self._until else 0
            return self.clock() + left if left > 0 else None

    def lift(self, who: Principal) -> None:
        """Show somebody what is masked, for `LASTS`; that they may is checked by who calls."""
        now = self.ticks()
        with self._lock:
            self._until = {token: until for token, until in self._until.items() if until > now}
            self._until[who.token] = now + UNMASK_MS

    def put_back(self, who: Principal) -> None:
        """Mask it again."""
        with self._lock:
            self._until.pop(who.token, None)


#: Letters that an operator may discard by one plan; more is an admin's.
MAX_OPERATOR_DISCARDS: Final = 1_000


def check_discard(plan: BulkPlan, who: Principal, form: Mapping[str, str]) -> None:
    """What is asked of who discards: the role for so many, and their number, typed.

    Raises:
        PlanRefused: something is missing.
    """
    count = plan.counts.letters
    if plan.what is not PlanKind.DISCARD:
        return
    if count > MAX_OPERATOR_DISCARDS and who.role < Role.ADMIN:
        raise PlanRefused(
            f"To discard {count:,} letters takes an admin: you are {who.role}, who may discard "
            f"{MAX_OPERATOR_DISCARDS:,} by one plan. Nothing was discarded."
        )
    if not form.get("why", "").strip():
        raise PlanRefused("To discard letters a reason is needed: it stays in the audit log. Nothing was discarded.")
    if form.get("count", "").strip().replace(",", "") != str(count):
        raise PlanRefused(f"Type {count} to discard these letters. Nothing was discarded.")


def check_resumption(found: PlanProgress, who: Principal) -> None:
    """What is asked of who goes on with a plan that was stopped: that somebody had decided on it, and the role."""
    plan = found.plan
    if not was_applied(found):
        raise PlanRefused(
            f"Plan {plan.id} was thrown away before anybody had decided how it is done: choose its letters anew."
        )
    if exceeds_discard_limit(plan, who):
        raise PlanRefused(f"To discard {plan.counts.letters:,} letters takes an admin: you are {who.role}.")


def was_applied(found: PlanProgress) -> bool:
    """Whether somebody has decided on it ever, by the audit log."""
    return any(act.what == "apply" for act in found.trail)


def exceeds_discard_limit(plan: BulkPlan, who: Principal) -> bool:
    """Whether it discards more letters than who asks may."""
    return plan.what is PlanKind.DISCARD and plan.counts.letters > MAX_OPERATOR_DISCARDS and who.role < Role.ADMIN
