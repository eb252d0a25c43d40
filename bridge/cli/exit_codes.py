"""The exit codes of the commands as one table: `--help` and the documentation read it."""

from collections.abc import Mapping
from typing import Final

from bridge.cli.command_io import AGAIN, BAD, FAULTS, INTERRUPTED, NOT_FOUND, OK, USAGE

_WRONG_USE: Final = "the command, the app or the settings are wrong: nothing was asked"

#: By command, what each of its exit codes means. A command that has `USAGE` ends with it after a wrong option too.
EXIT_CODES: Final[Mapping[str, Mapping[int, str]]] = {
    "run": {
        OK: "it was shut down",
        FAULTS: "settings are wrong, or a retry topic would drop what is parked there before it is due",
        NOT_FOUND: "the Celery app or a module of handlers cannot be imported; an option is wrong",
        AGAIN: "Kafka's client cannot go on and a new one can: start it again",
    },
    "check": {
        OK: "nothing is wrong",
        FAULTS: "something is wrong, or the app cannot be imported",
        NOT_FOUND: "an option is wrong",
    },
    "audit": {
        OK: "nothing is unaccounted for, and nothing is forgotten",
        FAULTS: "offsets are unaccounted for or forgotten",
        NOT_FOUND: "it is not known: Kafka or Redis does not answer, or there is no ledger",
        USAGE: f"{_WRONG_USE}; or no handler ever named the topic",
    },
    "status": {
        OK: "it could tell anything",
        FAULTS: "settings are wrong",
        NOT_FOUND: "neither Kafka nor Redis answers; the app cannot be imported, or an option is wrong",
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
        NOT_FOUND: "it is not known: Kafka or Redis does not answer, or there is no ledger",
        USAGE: f"{_WRONG_USE}; or neither coordinates nor a key were named",
    },
    "discard": {
        OK: "what was queued is discarded, or nothing was queued",
        FAULTS: "nothing was discarded: the topic, the handler or the settings are wrong, the topic is ordered and not "
        "halted, or the answer was no",
        NOT_FOUND: "nothing was discarded: Kafka or Redis does not answer, nobody can confirm, the app cannot be "
        "imported, or an option is wrong",
    },
    "deadletters": {
        OK: "done",
        FAULTS: "what was asked for is wrong or not there (a filter, an id, a plan that is over), or the answer was no",
        NOT_FOUND: "it cannot be asked: no database, no Kafka, the extra is not installed, nobody can confirm; or an "
        "option does not exist",
        BAD: "`replay`, `plans apply`: the canary or a person stopped it, or with `--wait` something ended badly; "
        "`plans show`: of that plan; `check`: handlers refuse some values",
        AGAIN: "Kafka or Redis stopped answering in the midst of it, or another process carries the plan: it is gone "
        "on with later",
        INTERRUPTED: "Ctrl-C stopped the plan, which can be gone on with",
    },
}


def build_help(name: str, text: str) -> str:
    """The help of a command with its exit codes in front of its example; without a row in the table as it is (pure)."""
    if name not in EXIT_CODES:
        return text
    codes = "\n".join(f"    {code}: {meaning}." for code, meaning in EXIT_CODES[name].items())
    said, example, rest = text.partition("Example: ")
    return f"{said.rstrip()}\n\n\b\nExit codes:\n{codes}\n\n{example}{rest}"
