"""What is not there, and why: what a filter names, refused before anything is done; and what nobody records."""

from typing import TYPE_CHECKING

from bridge.cli.answers import FAULTS, fail
from bridge.cli.deadletters.progress import errors
from bridge.commands.printing import say
from bridge.deadletters.letters.filters import Filter
from bridge.deadletters.questions.recorders import recorders

if TYPE_CHECKING:
    from bridge.deadletters.desk import Desk


def tell_absent(desk: "Desk", chosen: Filter) -> None:
    """On stderr, as what was asked for is answered."""
    for sentence in desk.absent.of(chosen):
        say(errors, sentence, "yellow")


def tell_unrecorded(desk: "Desk") -> None:
    """On stderr, that what the database has is not all, where no recorder lives: it looks well then."""
    if sentence := recorders(desk.settings).said():
        say(errors, sentence, "yellow")


def refuse_absent(desk: "Desk", chosen: Filter) -> None:
    """End a command that would change letters, where it names something that is not there: nothing is planned."""
    if found := desk.absent.of(chosen):
        fail("\n".join([*found, "Nothing was planned."]), FAULTS)
