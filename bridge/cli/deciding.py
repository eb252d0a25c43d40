"""`bridge halt` and `bridge resume`."""

from collections.abc import Callable
from typing import Annotated, Any

import typer

from bridge.cli.answers import FAULTS, NOT_FOUND, console, end_decided, fail, loaded, print_found
from bridge.cli.options import ByOption, NeededWhyOption, WhyOption
from bridge.commands import decision_tables as tables
from bridge.commands.halt import halt as halt_topics
from bridge.commands.halt import resume as resume_topics
from bridge.commands.halt import who
from bridge.errors import NotDecided, UnknownTopic


def halt(
    context: typer.Context,
    topics: Annotated[list[str], typer.Argument(help="Source topics.")],
    why: NeededWhyOption,
    by: ByOption = "",
    as_json: Annotated[bool, typer.Option("--json", help="Print how each topic stands now, as JSON.")] = False,
) -> None:
    """Stop the consumption of topics, for every bridge and worker of the group, until somebody resumes it.

    Queued deliveries wait and spend no attempt; running ones finish. No bridge need run.

    Exits 1 for a topic that no handler names, 2 if neither Kafka nor Redis takes it, 75 if Kafka does not have it yet:
    it counts, but a Redis that is wiped before a bridge has told Kafka loses it. Say it again then.

    Example: bridge halt orders --why "the bank books twice"
    """
    app, chosen, routes = loaded(context.obj)
    _decide(lambda: halt_topics(app, chosen, routes, topics, why, by or who()), as_json)


def resume(
    context: typer.Context,
    topics: Annotated[list[str] | None, typer.Argument(help="Topics that are halted.")] = None,
    every: Annotated[bool, typer.Option("--all", help="Every topic that is halted.")] = False,
    why: WhyOption = "",
    by: ByOption = "",
    as_json: Annotated[bool, typer.Option("--json", help="Print how each topic stands now, as JSON.")] = False,
) -> None:
    """Go on with topics that are halted, from exactly where they stood. One that is not halted stays as it is.

    Exits 1 for a topic that no handler names, 2 if neither Kafka nor Redis takes it, 75 if Kafka does not have it yet:
    it counts, but a Redis that is wiped before a bridge has told Kafka loses it. Say it again then.

    Example: bridge resume orders --why "the bank answers again"
    """
    app, chosen, routes = loaded(context.obj)
    if bool(topics) == every:
        fail("name the topics to resume, or --all.", FAULTS)
    _decide(lambda: resume_topics(app, chosen, routes, None if every else topics, why, by or who()), as_json)


def _decide(act: Callable[[], dict[str, Any]], as_json: bool) -> None:
    """Do it, and say how each topic stands."""
    try:
        found = act()
    except UnknownTopic as error:
        fail(str(error), FAULTS)
    except NotDecided as error:
        fail(str(error), NOT_FOUND)
    print_found(found, as_json, lambda: tables.print_halts(console, found))
    end_decided(*found["topics"].values())
