"""The exit codes of the commands as one table: `--help` and the documentation read it."""

import inspect
from collections.abc import Callable, Mapping
from typing import Any, Final

import typer

from bridge.cli.command_io import AGAIN, BAD, FAULTS, INTERRUPTED, NOT_FOUND, OK, USAGE

_WRONG_USE: Final = "the command, the app or the settings are wrong: nothing was asked"
_NOT_KNOWN: Final = "it is not known: Kafka or Redis does not answer, or there is no ledger"
_PARTLY_KNOWN: Final = f"{_NOT_KNOWN}; or Kafka cannot read a partition: all else was printed"
#: `NOT_FOUND` of a command that has no `USAGE`.
_CANNOT_BEGIN: Final = "the app cannot be imported, or an option is wrong"
_REDIS_ALONE: Final = (
    "Redis alone has it, and loses it if it is wiped now. The command says why Kafka does not: run it again after that "
    "is fixed"
)

_NOT_ASKED: Final = "no database or no Kafka answers, the extra is not installed, or an option does not exist"
_NO_TERMINAL: Final = "no terminal to confirm on (use --yes)"
#: Of the commands of `bridge deadletters` that carry out a plan.
_PLANNED: Final = {
    OK: "it is done, or with `--plan` the plan is made",
    FAULTS: "invalid or unknown filter, id or plan, or not confirmed",
    NOT_FOUND: f"{_NOT_ASKED}, or {_NO_TERMINAL}",
    BAD: "the canary or a person stopped it, or with `--wait` a letter died again",
    AGAIN: "Kafka or Redis stopped answering while the plan ran, another process applies the plan, or it awaits a "
    "second person: it goes on later",
    INTERRUPTED: "Ctrl-C stopped the plan, which can be continued",
}

#: By command, what each of its exit codes means. A command that has `USAGE` ends with it after a wrong option too.
#: The commands of `bridge deadletters` that are not listed have its codes.
EXIT_CODES: Final[Mapping[str, Mapping[int, str]]] = {
    "run": {
        OK: "it was shut down",
        FAULTS: "settings are wrong, or a retry topic would drop what is parked there before it is due",
        NOT_FOUND: "the Celery app or a module of handlers cannot be imported; an option is wrong",
        AGAIN: "Kafka's client failed, and a new one may work: start the bridge again",
    },
    "check": {
        OK: "nothing is wrong",
        FAULTS: "something is wrong, or the app cannot be imported",
        NOT_FOUND: "an option is wrong",
    },
    "audit": {
        OK: "nothing is unaccounted for, and nothing is forgotten",
        FAULTS: "something is missing: offsets unaccounted for or forgotten, records deleted unread, or dead letters",
        NOT_FOUND: _PARTLY_KNOWN,
        USAGE: f"{_WRONG_USE}; or no handler ever named the topic",
    },
    "status": {
        OK: "the status was printed, with or without problems",
        FAULTS: "settings are wrong",
        NOT_FOUND: f"neither Kafka nor Redis answers; {_CANNOT_BEGIN}",
    },
    "halt": {
        OK: "the topics, the handler or the key are halted, and Kafka has the decision",
        FAULTS: "no handler names a topic, it has no such handler, its keys cannot be halted, or settings are wrong: "
        "nothing was decided",
        NOT_FOUND: f"neither Kafka nor Redis took the decision; {_CANNOT_BEGIN}",
        AGAIN: _REDIS_ALONE,
    },
    "resume": {
        OK: "the topics, the handler or the key are not halted, and Kafka has the decision",
        FAULTS: "no handler names a topic, it has no such handler, none was named, or settings are wrong: nothing was "
        "decided",
        NOT_FOUND: f"neither Kafka nor Redis took the decision; {_CANNOT_BEGIN}",
        AGAIN: _REDIS_ALONE,
    },
    "topics": {
        OK: "every topic is as it must be",
        FAULTS: "something is wrong with a topic",
        NOT_FOUND: "it is not known: Kafka does not answer",
        USAGE: _WRONG_USE,
    },
    "find": {
        OK: "the record is there",
        FAULTS: "Kafka has no such record",
        NOT_FOUND: _PARTLY_KNOWN,
        USAGE: f"{_WRONG_USE}; or neither coordinates, a key nor a time were named",
    },
    "discard": {
        OK: "the queued deliveries are discarded, or none was queued",
        FAULTS: "nothing was discarded: the topic, the handler or the settings are wrong, the topic is ordered and not "
        "halted, or the answer was no",
        NOT_FOUND: f"nothing was discarded: Kafka or Redis does not answer, {_NO_TERMINAL}, {_CANNOT_BEGIN}",
    },
    "reset": {
        OK: "the offsets are moved",
        FAULTS: "nothing was moved: a bridge runs, the topic or the offset does not exist, settings are wrong, or the "
        "answer was no",
        NOT_FOUND: f"Kafka or Redis does not answer, {_NO_TERMINAL}, {_CANNOT_BEGIN}",
    },
    "redrive": {
        OK: "the records are sent, or with `--plan` the plan is made",
        FAULTS: "the range cannot be sent so, settings are wrong, or the answer was no",
        NOT_FOUND: f"a server does not answer, the extra is not installed, {_NO_TERMINAL}, {_CANNOT_BEGIN}",
        BAD: "the canary stopped the plan, or with `--wait` a record died again",
        AGAIN: "Kafka or Redis stopped answering, or another process carries out the plan: it continues later",
        INTERRUPTED: "Ctrl-C stopped the plan, which can be continued",
    },
    "erase": {
        OK: "it is erased, or with `--plan` the certificate is printed",
        FAULTS: "nothing was erased: deliveries have not ended, a key is halted, a plan awaits a second person, an "
        "option or the settings are wrong, or the answer was no",
        NOT_FOUND: f"a server or the database does not answer, there is no database, the extra is not installed, "
        f"{_NO_TERMINAL}, {_CANNOT_BEGIN}",
        BAD: "something remains that a later run erases: the certificate says what and when",
    },
    "demo": {
        OK: "with `--once` every record has ended, or without it Ctrl-C ended the demo",
        FAULTS: "with `--once` some records have not ended, or a process of the demo failed",
        NOT_FOUND: "an option is wrong",
    },
    "policy show": {
        OK: "the policies were printed",
        FAULTS: "the handler is unknown, or settings are wrong",
        NOT_FOUND: f"neither Kafka nor Redis answers, {_CANNOT_BEGIN}",
    },
    "policy set": {
        OK: "the policy is changed",
        FAULTS: "the handler, the option or the value is unknown, or settings are wrong: nothing was changed",
        NOT_FOUND: f"neither Kafka nor Redis took it, the changes before it are not known, {_CANNOT_BEGIN}",
        AGAIN: _REDIS_ALONE,
    },
    "policy unset": {
        OK: "the policy is changed, or was not",
        FAULTS: "the handler or the option is unknown, or settings are wrong: nothing was changed",
        NOT_FOUND: f"neither Kafka nor Redis took it, the changes before it are not known, {_CANNOT_BEGIN}",
        AGAIN: _REDIS_ALONE,
    },
    "policy history": {
        OK: "the changes were printed",
        FAULTS: "the handler is unknown, or settings are wrong",
        NOT_FOUND: f"neither Kafka nor Redis answers, {_CANNOT_BEGIN}",
    },
    "deadletters": {
        OK: "done",
        FAULTS: "invalid or unknown filter, id or plan, a plan that is over, or not confirmed",
        NOT_FOUND: f"{_NOT_ASKED}, or {_NO_TERMINAL}",
    },
    "deadletters record": {
        OK: "it was shut down, or with `--once` all is recorded",
        FAULTS: "a setting is wrong, or the database is another group's or version's",
        NOT_FOUND: f"the extra is not installed; {_CANNOT_BEGIN}",
        AGAIN: "it must be started again, or with `--once` Kafka or the database did not answer",
    },
    "deadletters replay": _PLANNED,
    "deadletters edit": {**_PLANNED, FAULTS: f"the handler refuses the value; {_PLANNED[FAULTS]}"},
    "deadletters discard": _PLANNED,
    "deadletters archive": _PLANNED,
    "deadletters check": {
        OK: "no handler would refuse a value",
        FAULTS: "the filter is wrong",
        NOT_FOUND: _NOT_ASKED,
        BAD: "handlers would refuse some values",
    },
    "deadletters shadow": {
        OK: "every letter would pass, or there is none",
        FAULTS: "the filter or the plan is wrong",
        NOT_FOUND: _NOT_ASKED,
        BAD: "letters would fail, or could not be judged",
    },
    "deadletters import": {
        OK: "the letters are in the database",
        FAULTS: "a line was refused, or a file ends too early: all other letters are imported",
        NOT_FOUND: f"a file cannot be read; {_NOT_ASKED}",
    },
    "deadletters plans show": {
        OK: "the plan was printed",
        FAULTS: "there is no such plan",
        NOT_FOUND: _NOT_ASKED,
        BAD: "the plan was stopped, or a letter of it ended badly",
    },
    "deadletters plans apply": _PLANNED,
}


def add_commands(group: typer.Typer, path: str, commands: Mapping[str, Callable[..., Any]]) -> None:
    """Add commands to a group, each with its exit codes in its help.

    Parameters:
        path: the names of the group: "", "deadletters plans".
    """
    for name, command in commands.items():
        group.command(name, help=build_help(f"{path} {name}".strip(), command))(command)


def build_help(name: str, command: Callable[..., Any]) -> str:
    """Return the docstring of a command with its exit codes in front of its example (pure)."""
    text = inspect.getdoc(command) or ""
    if name not in EXIT_CODES:
        return text
    codes = "\n".join(f"    {code}: {meaning}." for code, meaning in EXIT_CODES[name].items())
    description, example, rest = text.partition("Example: ")
    return f"{description.rstrip()}\n\n\b\nExit codes:\n{codes}\n\n{example}{rest}"
