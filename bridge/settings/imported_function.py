"""The import of a user's function that a setting names as `module:function`."""

import re
from collections.abc import Callable
from difflib import get_close_matches
from importlib import import_module
from typing import Any, Final

from bridge.errors import SettingsError
from bridge.settings.app_discovery import describe_import_error

_NAME: Final = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)*:[^\W\d]\w*(\.[^\W\d]\w*)*")


def import_function(setting: str, name: str) -> Callable[..., Any]:
    """Return the function that a setting names.

    Parameters:
        setting: the setting's name, for errors.
        name: `module:function`, or `package.module:Class.method`.

    Raises:
        SettingsError: there is no such function, with a sentence that says why.
    """
    if not _NAME.fullmatch(name):
        raise SettingsError([f"{setting} must be module:function, as in shop.logins:token; it is {name!r}."])
    module, _, path = name.partition(":")
    try:
        found: Any = import_module(module)
    except (Exception, SystemExit) as error:  # a user's module may raise anything
        fault = f"{setting}: the module {module!r} cannot be imported: {describe_import_error(error)}."
        if isinstance(error, ModuleNotFoundError) and f"{module}.".startswith(f"{error.name}."):
            fault += " Correct the name, or start in the folder that has it."
        raise SettingsError([fault]) from error
    for part in path.split("."):
        owner, found = found, getattr(found, part, None)
        if found is None:
            near = get_close_matches(part, dir(owner), n=1)
            hint = f": did you mean {near[0]}?" if near else ": correct the name."
            raise SettingsError([f"{setting}: the module {module!r} has no {path}{hint}"])
    if not callable(found):
        raise SettingsError([f"{setting}: {name} is no function, but {type(found).__name__}."])
    function: Callable[..., Any] = found
    return function
