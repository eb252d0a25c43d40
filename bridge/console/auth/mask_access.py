"""The masks that hold for a principal, and the sessions in which an admin has unmasked values for a while."""

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final, Self

from bridge.console.auth.principal import Principal
from bridge.deadletters.accounts.user_account import Role
from bridge.deadletters.masking.letter_mask import NO_MASKS, LetterMasks
from bridge.settings import EnvironmentSettings
from bridge.settings.masked_fields import read_mask_rules

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
        return self.may_be_lifted and who.is_admin and bool(self.of_who(who))

    def until(self, who: Principal) -> int | None:
        """Return until when a principal sees masked values; `None` if it does not."""
        with self._lock:
            left = self._until.get(who.token, 0) - self.ticks() if who.is_admin and who.token in self._until else 0
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
