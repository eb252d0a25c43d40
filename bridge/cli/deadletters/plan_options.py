"""Options of the commands that make plans."""

from typing import Annotated

import typer

CanaryOption = Annotated[bool, typer.Option("--canary", help="In waves: 1, 5, 20, 100, the rest.")]
WaitOption = Annotated[bool, typer.Option("--wait", help="Until it is known how each has ended.")]
PlanOnlyOption = Annotated[bool, typer.Option("--plan", help="Make the plan, and send nothing yet.")]
TrailOption = Annotated[str, typer.Option("--why", help="The reason, for the audit log.")]
PlanJsonOption = Annotated[bool, typer.Option("--json", help="Print {plan, state, counts, outcomes}.")]
