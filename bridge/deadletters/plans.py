"""The desk's plans: made, approved, applied, stopped, waited for."""

from collections.abc import Callable
from dataclasses import dataclass

from bridge.deadletters.filters import Filter
from bridge.deadletters.plan import Options, Plan, What
from bridge.deadletters.store.database import Database
from bridge.handlers import Routes
from bridge.settings import Settings

#: Is told how a plan stands, about once a second.
Heard = Callable[[Plan], None]


def nobody(plan: Plan) -> None:
    """Hears of a plan, and does nothing."""


@dataclass(frozen=True)
class Plans:
    """What was asked for in bulk. Every method raises DeskUnavailable where the database does not answer."""

    settings: Settings
    routes: Routes
    database: Database

    def make(self, what: What, filter: Filter, options: Options, by: str, why: str = "") -> Plan:
        """Freeze which letters are meant, and count what is to be known before it is approved; nothing is done yet.

        Parameters:
            what: replay (of the letters that are open), discard or archive.
            why: needed to discard.

        Raises:
            PlanRefused: it can't be made.
        """
        raise NotImplementedError

    def one(self, id_: int) -> Plan:
        """A plan as it stands.

        Raises:
            NoSuchPlan: there is none of that number.
        """
        raise NotImplementedError

    def latest(self, count: int = 50) -> list[Plan]:
        """The latest plans, the newest first."""
        raise NotImplementedError

    def apply(self, id_: int, by: str, heard: Heard = nobody) -> Plan:
        """Do a plan, or go on with one that was stopped or left; returns when all was sent, or it stopped.

        Raises:
            NoSuchPlan, PlanRefused: there is none; or it is over, or another process does it.
            KafkaUnavailable, LedgerUnavailable: it is gone on with by `bridge deadletters record`, or by this again.
        """
        raise NotImplementedError

    def approve(self, id_: int, by: str) -> Plan:
        """Have a plan done by `bridge deadletters record`, in the background."""
        raise NotImplementedError

    def stop(self, id_: int, by: str, why: str) -> Plan:
        """Stop a plan within a batch, or a second; what it had not come to stays as it is."""
        raise NotImplementedError

    def wait(self, id_: int, heard: Heard = nobody) -> Plan:
        """Wait until the end of all that a plan has sent is known (`Plan.is_over`)."""
        raise NotImplementedError
