"""How lines of a log look: as text, or as JSON with a field for each thing that is known."""

import logging
from typing import Any, Final, Literal

Format = Literal["text", "json"]

#: What each line has, under the name that it has in JSON.
_FIELDS: Final = {"asctime": "time", "levelname": "level", "name": "logger", "message": "message", "process": "pid"}


def json_formatter() -> logging.Formatter:
    """A formatter that writes a JSON object a line: what it always has, and what `extra` and filters have added."""
    # Here, so that who logs text need not have it.
    from pythonjsonlogger.json import JsonFormatter

    made: logging.Formatter = JsonFormatter(
        " ".join(f"%({name})s" for name in _FIELDS),
        rename_fields={name: field for name, field in _FIELDS.items() if name != field},
        datefmt="%Y-%m-%dT%H:%M:%S%z",
        json_default=_text,
    )
    return made


def begin(level: str, form: Format) -> None:
    """Log to standard error from this level on, in this form."""
    logging.basicConfig(level=level.upper(), format="[%(asctime)s: %(levelname)s/bridge] %(message)s")
    if form == "json":
        for each in logging.getLogger().handlers:
            each.setFormatter(json_formatter())


def _text(value: Any) -> str:
    """What is no JSON is named and not shown: a record's value may be in it."""
    return f"<{type(value).__name__}>"
