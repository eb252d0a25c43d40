"""The commands halt, resume and policy, which decide for all bridges and workers of the group."""

from collections.abc import Callable, Mapping
from typing import Annotated, Any, Final, TypeVar

import typer

from bridge.cli.command_io import FAULTS, NOT_FOUND, console, end_decision, fail, load_app, print_result
from bridge.cli.command_options import ByOption, DefaultCommandGroup, NeededWhyOption, WhyOption, require_why
from bridge.cli.exit_codes import add_commands
from bridge.errors import HaltRefused, NotDecided, PolicyRefused, UnknownHandler, UnknownTopic
from bridge.inspection import report_tables as tables
from bridge.operator_actions.handler_halt import halt_handlers, make_scopes, resume_handlers
from bridge.operator_actions.handler_policy import read_policies, set_policy, unset_policy
from bridge.operator_actions.handler_policy import read_policy_history as history_of
from bridge.operator_actions.topic_halt import halt_topics, resume_topics

HaltedHandlerOption = Annotated[
    str | None, typer.Option("--handler", help="Only this handler; the other handlers of the topics go on.")
]
HaltedKeyOption = Annotated[
    str | None, typer.Option("--key", help="Only records of that handler with this key: text, 0x… or base64:….")
]


def halt(
    context: typer.Context,
    topics: Annotated[list[str], typer.Argument(help="Source topics.")],
    why: NeededWhyOption,
    handler: HaltedHandlerOption = None,
    key: HaltedKeyOption = None,
    by: ByOption = "",
    as_json: Annotated[bool, typer.Option("--json", help="Print the state of each topic or handler as JSON.")] = False,
) -> None:
    """Stop topics, or one handler or key of them, for every bridge and worker of the group, until somebody resumes it.

    Queued deliveries wait and spend no attempt; running ones finish. No bridge need run.

    Example: bridge halt orders --handler orders.handlers.charge --key 4711 --why "the bank books it twice"
    """
    _check_scope(handler, key)
    app, chosen, routes = load_app(context.obj)
    if handler:
        _decide_halt(lambda: halt_handlers(app, chosen, routes, make_scopes(topics, handler, key), why, by), as_json)
    else:
        _decide_halt(lambda: halt_topics(app, chosen, routes, topics, why, by), as_json)


def resume(
    context: typer.Context,
    topics: Annotated[list[str] | None, typer.Argument(help="Topics that are halted.")] = None,
    every: Annotated[bool, typer.Option("--all", help="Every topic, handler and key that is halted.")] = False,
    handler: HaltedHandlerOption = None,
    key: HaltedKeyOption = None,
    why: WhyOption = "",
    by: ByOption = "",
    as_json: Annotated[bool, typer.Option("--json", help="Print the state of each topic or handler as JSON.")] = False,
) -> None:
    """Resume topics, or a handler or key that was halted with these arguments, exactly where they stopped.

    Resuming something that is not halted is no error.

    Example: bridge resume orders --why "the bank answers again"
    """
    _check_scope(handler, key)
    app, chosen, routes = load_app(context.obj)
    if bool(topics) == every or (every and handler):
        fail("name the topics to resume, or add --all.", FAULTS)

    def resume_every() -> dict[str, Any]:
        resumed = resume_topics(app, chosen, routes, None, why, by)
        return resumed | {"handlers": resume_handlers(app, chosen, routes, None, why, by)["handlers"]}

    if every:
        _decide_halt(resume_every, as_json)
    elif handler:
        _decide_halt(
            lambda: resume_handlers(app, chosen, routes, make_scopes(topics or (), handler, key), why, by), as_json
        )
    else:
        _decide_halt(lambda: resume_topics(app, chosen, routes, topics, why, by), as_json)


def _check_scope(handler: str | None, key: str | None) -> None:
    if handler == "":
        # A variable of a script may be empty: that is not to halt or resume the whole topic.
        fail(
            "--handler is empty: nothing was decided. Name a handler, or leave --handler out for whole topics.", FAULTS
        )
    if key == "":
        fail(
            "--key is empty: nothing was decided. Name a key (the empty one: --key text:), or leave --key out for the "
            "whole handler.",
            FAULTS,
        )
    if key is not None and not handler:
        fail("--key is one key of a handler: name the handler too, with --handler.", FAULTS)


def _decide_halt(act: Callable[[], dict[str, Any]], as_json: bool) -> None:
    """Make a decision, and print the state of each topic, handler or key."""
    try:
        result = act()
    except (UnknownTopic, UnknownHandler, HaltRefused) as error:
        fail(str(error), FAULTS)
    except NotDecided as error:
        fail(str(error), NOT_FOUND)
    print_result(result, as_json, lambda: tables.print_halts(console, result))
    end_decision(*result["topics"].values(), *result.get("handlers", ()))


Answer = TypeVar("Answer")


policy = typer.Typer(cls=DefaultCommandGroup, no_args_is_help=False)
HandlerArgument = Annotated[str, typer.Argument(help="The full name of a handler, or a limit: limit:bank.")]
PolicyWhyOption = Annotated[str, typer.Option("--why", help="The reason, for the history and the person on call.")]

NeededPolicyWhyOption = Annotated[
    str, typer.Option("--why", callback=require_why, help="The reason, for the history and the person on call.")
]


@policy.callback()
def policy_group() -> None:
    """Show each handler's policy (its retries and failures), and change it without a deployment.

    Example: bridge policy orders.handlers.charge --json
    """


def policy_show(
    context: typer.Context,
    handler: Annotated[str | None, typer.Argument(help="Only this handler.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print {handler: {policy, changed, fault}}.")] = False,
) -> None:
    """Show each handler's policy, and its changes: by whom, when and why. `show` may be omitted.

    Example: bridge policy --json
    """
    app, chosen, routes = load_app(context.obj)
    result = _ask_policies(lambda: read_policies(app, chosen, routes, handler))
    print_result(result, as_json, lambda: tables.print_policies(console, result))


def policy_set(
    context: typer.Context,
    handler: HandlerArgument,
    options: Annotated[list[str], typer.Argument(help="option=value, as in @handler: max_retries=20.")],
    why: NeededPolicyWhyOption,
    by: ByOption = "",
    as_json: Annotated[bool, typer.Option("--json", help="Print the policy in force as JSON.")] = False,
) -> None:
    """Change a handler's policy for all workers of the group, within seconds and until it is unset.

    Delays are seconds; `none` removes a limit or a list: retry_delays=none, dead_letter_for=none. A delivery that waits
    for its retry is judged by the policy in force when it fails next.

    Example: bridge policy set orders.handlers.charge max_retries=20 retry_backoff_max=3600 --why "the bank is down"
    """
    app, chosen, routes = load_app(context.obj)
    result = _ask_policies(lambda: set_policy(app, chosen, routes, handler, options, why, by))
    print_result(result, as_json, lambda: tables.print_policy_decision(console, handler, result))
    end_decision(result)


def policy_unset(
    context: typer.Context,
    handler: HandlerArgument,
    options: Annotated[list[str] | None, typer.Argument(help="Only these options; none: all.")] = None,
    why: PolicyWhyOption = "",
    by: ByOption = "",
    as_json: Annotated[bool, typer.Option("--json", help="Print the policy in force as JSON.")] = False,
) -> None:
    """Go back to the policy of the handler's code. Options that were not changed stay as they are.

    Example: bridge policy unset orders.handlers.charge max_retries --why "the bank is back"
    """
    app, chosen, routes = load_app(context.obj)
    result = _ask_policies(lambda: unset_policy(app, chosen, routes, handler, options or [], why, by))
    print_result(result, as_json, lambda: tables.print_policy_decision(console, handler, result))
    end_decision(result)


def policy_history(
    context: typer.Context,
    handler: HandlerArgument,
    as_json: Annotated[bool, typer.Option("--json", help="Print a list of {at, by, why, set, unset}.")] = False,
) -> None:
    """Show the changes of a handler's policy, the latest first: when, what, by whom and why.

    Example: bridge policy history orders.handlers.charge
    """
    _, chosen, routes = load_app(context.obj)
    result = _ask_policies(lambda: history_of(chosen, routes, handler))
    print_result(result, as_json, lambda: tables.print_policy_history(console, handler, result))


POLICY_COMMANDS: Final[Mapping[str, Callable[..., None]]] = {
    "show": policy_show,
    "set": policy_set,
    "unset": policy_unset,
    "history": policy_history,
}
add_commands(policy, "policy", POLICY_COMMANDS)


def _ask_policies(ask: Callable[[], Answer]) -> Answer:
    try:
        return ask()
    except (UnknownHandler, PolicyRefused) as error:
        fail(str(error), FAULTS)
    except NotDecided as error:
        fail(str(error), NOT_FOUND)
