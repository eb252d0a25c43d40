"""`bridge deadletters replay`: as they are, patched, or as copies elsewhere."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from bridge.cli.answers import FAULTS, console, fail, print_found
from bridge.cli.deadletters.absent import refuse_absent
from bridge.cli.deadletters.asking import filtered
from bridge.cli.deadletters.carrying import being_planned, carry_out, print_plan
from bridge.cli.deadletters.confirming import YesOption, confirmed, need_somebody, print_counts
from bridge.cli.deadletters.opening import opened
from bridge.cli.deadletters.plan_options import CanaryOption, PlanJsonOption, PlanOnlyOption, TrailOption, WaitOption
from bridge.cli.deadletters.progress import errors
from bridge.cli.options import ByOption
from bridge.commands.halt import who
from bridge.commands.printing import say
from bridge.deadletters.letters.filters import Filter
from bridge.deadletters.plan.plan import Options, Plan, What

if TYPE_CHECKING:
    from bridge.deadletters.desk import Desk

#: Differences that are shown before it is asked whether to send what a patch has made.
SHOWN = 3


@filtered()
def replay(
    context: typer.Context,
    chosen: Filter,
    rate: Annotated[float | None, typer.Option(min=0.001, help="Letters a second at most.")] = None,
    canary: CanaryOption = False,
    all_handlers: Annotated[bool, typer.Option("--all-handlers", help="Also to others at which it has died.")] = False,
    patch: Annotated[str | None, typer.Option("--patch", help="JSON Patch (RFC 6902), or a file of one.")] = None,
    to_topic: Annotated[str | None, typer.Option("--to-topic", help="A copy, to this topic.")] = None,
    to_kafka: Annotated[str | None, typer.Option("--to-kafka", help="With --to-topic: addresses, or a file.")] = None,
    force: Annotated[bool, typer.Option("--force", help="Also what is not valid; into a topic of ours.")] = False,
    wait: WaitOption = False,
    plan_only: PlanOnlyOption = False,
    yes: YesOption = False,
    why: TrailOption = "",
    by: ByOption = "",
    as_json: PlanJsonOption = False,
) -> None:
    """Send dead letters that are open back, each to the handler that failed and to no other.

    Which ones is frozen in a plan first, and its counts are shown; it can be interrupted, and gone on with. With
    --canary the next wave goes only if the last ended well, and the rest stays untouched if one did not.
    Letters of all waves but the last have one attempt: what fails is dead again at once.

    With --patch each goes back with what the patch makes of its value, if its handler takes that; what is left out is
    said with why. With --to-topic copies go there instead, and nothing changes here; another Kafka is named by
    --to-kafka, and its user and password stand in TARGET_KAFKA_… or in the file.

    Exits 2 if nobody can be asked and --yes is not said, 3 if the canary stopped, or with --wait if any died again,
    75 if Kafka or Redis stopped answering or another process carries the plan, 130 after Ctrl-C.

    Example: bridge deadletters replay --handler orders.handlers.charge --since 2h --canary --wait
    """
    who_by = by or who()
    if not plan_only:
        need_somebody(yes)
    with opened(context) as desk:
        refuse_absent(desk, chosen)
        options = Options(rate, canary, all_handlers)
        with being_planned():
            if to_topic is not None:
                plan = _copies(desk, chosen, to_topic, to_kafka, options, who_by, why, force)
            elif patch is not None:
                plan = _patched(desk, chosen, patch, options, who_by, why, force)
            else:
                plan = desk.plans.make(What.REPLAY, chosen, options, who_by, why)
        if patch is not None and not yes:
            print_differences(desk, plan)
        if plan_only:
            print_planned(plan, as_json)
            return
        if not confirmed(yes, plan.what, plan.counts):
            say(errors, f"nothing was sent. The plan is kept: bridge deadletters plans apply {plan.id}")
            raise typer.Exit(FAULTS)
        carry_out(desk, plan, who_by, wait, as_json)


def print_planned(plan: Plan, as_json: bool) -> None:
    """What a plan is about that is not done yet."""

    def tell() -> None:
        print_counts(console, plan.counts)
        print_plan(console, plan)

    found = {"plan": plan.id, "state": str(plan.state), "counts": plan.counts.to_data()}
    print_found(found, as_json, tell)


def print_differences(desk: "Desk", plan: Plan) -> None:
    """How the first of a plan's letters change."""
    for each in desk.mending.differences(plan.id, SHOWN):
        say(errors, f"letter {each.letter_id}:")
        for line in each.text.splitlines():
            say(errors, f"  {line}")


def _patched(desk: "Desk", chosen: Filter, patch: str, options: Options, by: str, why: str, force: bool) -> Plan:
    from bridge.deadletters.mending.patching import Patch

    text = patch if patch.lstrip().startswith("[") else _of_file(patch)
    return desk.mending.patch(chosen, Patch.read(text), options, by, why, force=force)


def _copies(
    desk: "Desk", chosen: Filter, topic: str, kafka: str | None, options: Options, by: str, why: str, force: bool
) -> Plan:
    from bridge.deadletters.copying.target import Target

    to = None if kafka is None else Target.read(kafka)
    return desk.copies.plan(chosen, topic, to, options, by, why, force=force)


def _of_file(path: str) -> str:
    try:
        return Path(path).read_text()
    except (OSError, UnicodeDecodeError) as error:
        fail(f"{path!r} cannot be read as a patch: {error}.", FAULTS)
