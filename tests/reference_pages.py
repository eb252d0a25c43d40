"""Write what the documentation and `deploy/` have of the code: the page of the commands, the tables of the reasons of a
pause, the alert rules and the dashboards.

`python -m tests.reference_pages`, or `make reference`.
"""

import enum
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, Final

import typer.main

from bridge.cli.exit_codes import EXIT_CODES
from bridge.cli.root_command import cli
from bridge.formats.pause_reasons import PauseReason
from bridge.problems.alert_rule_writer import write_alert_rules
from bridge.problems.problem_table import PROBLEM_TABLE
from tests.dashboards import dashboard_files

DOCS: Final = Path(__file__).parents[1] / "docs"
DEPLOY: Final = DOCS.parent / "deploy"

HEAD: Final = """# Commands

For operators and scripts: every command of `bridge`, with its arguments, options and exit codes.

`make reference` writes this page from the commands. `bridge COMMAND --help` says the same. `python -m bridge` is the
same program. [Exit codes](exit-codes.md) has the codes of all commands side by side.
"""


def cli_page() -> str:
    """Return the page that has each command."""
    root = typer.main.get_command(cli)
    commands = [*_commands(root, "bridge")]
    filters = {option.opts[0]: option for _, command in commands for option in command.params if _is_filter(option)}
    parts = [HEAD, *(_section(name, command) for name, command in commands)]
    parts.append(
        "## which dead letters\n\nA letter must fit every option; of a repeated option, one value; `--header` all.\n\n"
    )
    return "\n".join(parts) + "\n".join(_table(filters.values())) + "\n"


def _commands(command: Any, name: str) -> Iterator[tuple[str, Any]]:
    yield name, command
    for each, below in getattr(command, "commands", {}).items():
        yield from _commands(below, f"{name} {each}")


def _is_filter(parameter: Any) -> bool:
    return (getattr(parameter, "rich_help_panel", None) or "").startswith("Which dead letters")


def _section(name: str, command: Any) -> str:
    """Return the section of one command: its help, its parameters and its exit codes."""
    text, _, example = re.sub(r"\n\n\x08?\n?Exit codes:\n.*?\n\n", "\n\n", command.help, flags=re.DOTALL).partition(
        "Example: "
    )
    paragraphs = [" ".join(each.split()) for each in text.split("\n\n") if each.strip("\x08\n ")]
    lines = [f"## {name}", "", *(line for each in paragraphs for line in (_escaped(each), ""))]
    own = [each for each in command.params if not _is_filter(each)]
    if own:
        lines += [*_table(own), ""]
    if len(own) < len(command.params):
        lines += ["It takes the options that say [which dead letters](#which-dead-letters), too.", ""]
    if codes := EXIT_CODES.get(name.removeprefix("bridge ")):
        lines += ["| exit code | means |", "| --- | --- |"]
        lines += [f"| {code} | {meaning} |" for code, meaning in codes.items()] + [""]
    if example:
        lines += ["```sh", " ".join(example.split()), "```", ""]
    return "\n".join(lines)


def _table(parameters: Iterable[Any]) -> Iterator[str]:
    yield "| argument or option | default | means |"
    yield "| --- | --- | --- |"
    for each in parameters:
        argument = each.param_type_name == "argument"
        names = [each.name.upper()] if argument else [*each.opts, *each.secondary_opts]
        said = ", ".join(f"`{name}`" for name in names)
        if each.multiple or each.nargs == -1:
            said += ", several"
        yield f"| {said} | {_default(each)} | {_escaped(' '.join((each.help or '').split()))}{_choices(each)} |"


def _default(parameter: Any) -> str:
    if parameter.required:
        return "required"
    value = parameter.default
    if isinstance(parameter.show_default, str):
        return parameter.show_default
    if value in (None, False, "", ()) or callable(value):
        return ""
    return f"`{value.value if isinstance(value, enum.Enum) else value}`"


def _choices(parameter: Any) -> str:
    """Return the values that a parameter takes, if they are few and fixed."""
    found = parameter.type_descriptor.annotation
    kinds = [each for each in (found, *getattr(found, "__args__", ())) if isinstance(each, enum.EnumMeta)]
    return "".join(" One of " + ", ".join(f"`{value}`" for value in _values(kind)) + "." for kind in kinds)


def _values(kind: enum.EnumMeta) -> list[str]:
    members: dict[str, Any] = {**kind.__members__}
    return [str(member.value) for member in members.values()]


def _escaped(text: str) -> str:
    return text.replace("|", "\\|")


def pause_tables() -> dict[Path, str]:
    """Return by page the table that it has of the reasons of a pause."""
    meanings = ["| `reason` | means | ends |", "| --- | --- | --- |"]
    advice = ["| reason | do |", "| --- | --- |"]
    for reason in PauseReason:
        named = f" <{reason.names}>" if reason.names else ""
        meanings.append(f"| `{reason}{named}` | {reason.means} | {reason.ends} |")
        advice.append(f"| `{reason}{' …' if reason.names else ''}` | {_linked(reason.advice)} |")
    pages = {"reference/metrics.md": meanings, "runbooks/problems.md": advice}
    return {DOCS / page: "\n".join(lines) + "\n" for page, lines in pages.items()}


def _linked(advice: str) -> str:
    """Return advice with a link for each problem in brackets, and settings as code."""
    identifiers = "|".join(row.identifier for row in PROBLEM_TABLE)
    return re.sub(r"\bkafka_\w+", r"`\g<0>`", re.sub(rf"\(({identifiers})\)", r"([\1](#\1))", advice))


def write_pages() -> None:
    """Write the page of the commands, and the tables into theirs."""
    (DOCS / "reference" / "cli.md").write_text(cli_page())
    for page, table in pause_tables().items():
        head, _, _ = table.partition("\n")
        before, found, after = page.read_text().partition(head + "\n")
        if not found:
            raise SystemExit(f"{page} has no table that begins with {head!r}: nothing was written there.")
        page.write_text(before + table + re.sub(r"\A(\|.*\n)*", "", after))


def deployment_files() -> dict[Path, str]:
    """Return the files of `deploy/` that are written from the table of problems and the metrics, with their text."""
    rules = write_alert_rules()
    # A chart reads no file outside of its folder.
    charted = DEPLOY / "helm" / "celery-kafka-bridge" / "files" / "alerts.yml"
    return {DEPLOY / "alerts.yml": rules, charted: rules, **dashboard_files()}


if __name__ == "__main__":
    write_pages()
    for file, text in deployment_files().items():
        file.parent.mkdir(exist_ok=True)
        file.write_text(text)
