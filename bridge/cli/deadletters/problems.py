"""What of the dead-letter desk `bridge status` tells."""

from bridge.cli.deadletters.opening import EXTRA
from bridge.handlers import Routes
from bridge.settings import Settings


def desk_problems(settings: Settings, routes: Routes) -> list[str]:
    """What of the desk needs a person, a sentence each; nothing where its libraries are not installed."""
    try:
        from bridge.deadletters.questions.problems import problems
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in EXTRA:
            raise
        return []
    return problems(settings, routes)
