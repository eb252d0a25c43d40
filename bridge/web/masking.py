"""Who does not see what of letters now: by the settings, and until when an admin sees all of it."""

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final, Self

from bridge.deadletters.masking.masks import NO_MASKS, Masks
from bridge.settings import EnvironmentSettings
from bridge.settings.masks import rules
from bridge.web.roles import Role, Who

#: Ms for which an admin sees what is masked, from when they said why.
LASTS: Final = 15 * 60_000


@dataclass
class Masking:
    """Unmasking is of one session of this process, and ends with either.

    Parameters:
        seen_from: the role from which on all is seen; `None`: none.
        may_be_lifted: whether an admin may see it for a while.
        clock: ms since the epoch.
    """

    masks: Masks
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
        return cls(Masks(rules(said.DEADLETTERS_MASK)), Role.read(said.DEADLETTERS_MASK_NOT_FOR), lifted, clock)

    def of_role(self, role: Role) -> Masks:
        """What a role does not see: of programs, too, which unmask nothing."""
        return NO_MASKS if self.seen_from is not None and role >= self.seen_from else self.masks

    def of_who(self, who: Who) -> Masks:
        """What somebody does not see now."""
        return NO_MASKS if self.until(who) else self.of_role(who.role)

    def may_lift(self, who: Who) -> bool:
        """Whether somebody may see it for a while, and does not yet."""
        return self.may_be_lifted and who.is_admin and bool(self.of_who(who))

    def until(self, who: Who) -> int | None:
        """Until when somebody sees what is masked; `None`: they do not."""
        with self._lock:
            left = self._until.get(who.token, 0) - self.ticks() if who.is_admin and who.token in self._until else 0
            return self.clock() + left if left > 0 else None

    def lift(self, who: Who) -> None:
        """Show somebody what is masked, for `LASTS`; that they may is checked by who calls."""
        now = self.ticks()
        with self._lock:
            self._until = {token: until for token, until in self._until.items() if until > now}
            self._until[who.token] = now + LASTS

    def put_back(self, who: Who) -> None:
        """Mask it again."""
        with self._lock:
            self._until.pop(who.token, None)
