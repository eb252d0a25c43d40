"""`bridge policy` and its commands."""

from collections.abc import Callable
from typing import Annotated, TypeVar

import typer

from bridge.cli.answers import FAULTS, NOT_FOUND, console, end_decided, fail, loaded, print_found
from bridge.cli.defaulting import Defaulting
from bridge.cli.options import ByOption, said
from bridge.commands import decision_tables as tables
from bridge.commands.halt import who
from bridge.commands.policy import history as history_of
from bridge.commands.policy import policies, set_policy, unset_policy
from bridge.errors import NotDecided, PolicyRefused, UnknownHandler

Answer = TypeVar("Answer")


policy = typer.Typer(cls=Defaulting, no_args_is_help=False)
HandlerArgument = Annotated[str, typer.Argument(help="A handler, by its whole name.")]
PolicyWhyOption = Annotated[str, typer.Option("--why", help="For the history, and for whoever is on call next.")]

NeededPolicyWhyOption = Annotated[
    str, typer.Option("--why", callback=said, help="For the history, and for whoever is on call next.")
]


@policy.callback()
def policy_group() -> None:
    """Show each handler's policy (what becomes of its failures), and change it without its code.

    Example: bridge policy orders.handlers.charge --json
    """


@policy.command("show")
def policy_show(
    context: typer.Context,
    handler: Annotated[str | None, typer.Argument(help="Of this handler alone.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print {handler: {policy, changed, fault}}.")] = False,
) -> None:
    """Show each handler's policy, and what was changed of it: by whom, when and why. `show` may be left out.

    Example: bridge policy --json
    """
    app, chosen, routes = loaded(context.obj)
    found = _of_policies(lambda: policies(app, chosen, routes, handler))
    print_found(found, as_json, lambda: tables.print_policies(console, found))


@policy.command("set")
def policy_set(
    context: typer.Context,
    handler: HandlerArgument,
    options: Annotated[list[str], typer.Argument(help="option=value, as at @handler: max_retries=20.")],
    why: NeededPolicyWhyOption,
    by: ByOption = "",
    as_json: Annotated[bool, typer.Option("--json", help="Print the policy as it is now, as JSON.")] = False,
) -> None:
    """Change a handler's policy for all workers of the group, within seconds and until it is unset.

    Delays are seconds; `none` takes a limit or a list away: retry_delays=none, dead_letter_for=none. A delivery that
    waits for its retry is judged by the policy in force when it fails next.

    Exits 1 for an unknown handler, option or value, 2 if neither Kafka nor Redis takes it, or what
    was set before is not known, 75 if Redis alone has it.

    Example: bridge policy set orders.handlers.charge max_retries=20 retry_backoff_max=3600 --why "the bank is down"
    """
    app, chosen, routes = loaded(context.obj)
    found = _of_policies(lambda: set_policy(app, chosen, routes, handler, options, why, by or who()))
    print_found(found, as_json, lambda: tables.print_policy_decision(console, handler, found))
    end_decided(found)


@policy.command("unset")
def policy_unset(
    context: typer.Context,
    handler: HandlerArgument,
    options: Annotated[list[str] | None, typer.Argument(help="Only these; all without any.")] = None,
    why: PolicyWhyOption = "",
    by: ByOption = "",
    as_json: Annotated[bool, typer.Option("--json", help="Print the policy as it is now, as JSON.")] = False,
) -> None:
    """Go back to the policy that the handler's code says. Options that were not changed stay as they are.

    Exits 1 for an unknown handler or option, 2 if neither Kafka nor Redis takes it, or what was set
    before is not known, 75 if Redis alone has it.

    Example: bridge policy unset orders.handlers.charge max_retries --why "the bank is back"
    """
    app, chosen, routes = loaded(context.obj)
    found = _of_policies(lambda: unset_policy(app, chosen, routes, handler, options or [], why, by or who()))
    print_found(found, as_json, lambda: tables.print_policy_decision(console, handler, found))
    end_decided(found)


@policy.command("history")
def policy_history(
    context: typer.Context,
    handler: HandlerArgument,
    as_json: Annotated[bool, typer.Option("--json", help="Print a list of {at, by, why, set, unset}.")] = False,
) -> None:
    """Tell how a handler's policy was changed, the latest first: when, what, by whom and why.

    Example: bridge policy history orders.handlers.charge
    """
    _, chosen, routes = loaded(context.obj)
    found = _of_policies(lambda: history_of(chosen, routes, handler))
    print_found(found, as_json, lambda: tables.print_policy_history(console, handler, found))


def _of_policies(ask: Callable[[], Answer]) -> Answer:
    try:
        return ask()
    except (UnknownHandler, PolicyRefused) as error:
        fail(str(error), FAULTS)
    except NotDecided as error:
        fail(str(error), NOT_FOUND)
