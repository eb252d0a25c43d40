"""What of the dead-letter desk `bridge status` and `bridge check` tell."""

import os
from collections.abc import Mapping

from bridge.cli.deadletters.opening import EXTRA
from bridge.commands.check import Finding
from bridge.errors import how_to_install
from bridge.handlers import Routes
from bridge.settings import Settings
from bridge.upkeep.problem import Problem


def desk_problems(settings: Settings, routes: Routes) -> list[Problem]:
    """What of the desk needs a person, which is nothing where its libraries are not installed."""
    try:
        from bridge.deadletters.questions.problems import problems
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in EXTRA:
            raise
        return []
    return problems(settings, routes)


def desk_findings(environ: Mapping[str, str] = os.environ) -> list[Finding]:
    """Whether the desk's database answers; nothing where none is named."""
    if not (url := environ.get("DEADLETTERS_DATABASE_URL", "")):
        return []
    try:
        from bridge.deadletters.questions.reachable import reached
    except ModuleNotFoundError as error:
        if (library := (error.name or "").partition(".")[0]) not in EXTRA:
            raise
        needs = f"DEADLETTERS_DATABASE_URL is set, and the desk needs {library}"
        return [Finding("warning", f"{needs}; {how_to_install('deadletters')}.")]
    found = reached(url)
    return [Finding(found.level, found.text)]
