"""The discovery of the Celery app that `-A` names and of the handlers' modules, with errors that name file and line."""

import os
import re
import sys
from collections.abc import Mapping
from difflib import get_close_matches
from importlib.machinery import PathFinder
from importlib.util import find_spec
from pathlib import Path
from pkgutil import iter_modules
from traceback import extract_tb
from typing import Any, Final

import celery
from celery import Celery
from celery.app.utils import find_app

from bridge.errors import AppNotFound
from bridge.settings.setting_defaults import OWN_APP

#: Folders of files that are not the user's: Python's own, Celery's, and this project's.
_LIBRARIES: Final = tuple(
    str(folder) + os.sep
    for folder in (
        Path(os.__file__).parent,
        Path(celery.__file__).parent,
        *(Path(__file__).parents[2] / name for name in ("bridge", "tasks")),
    )
)


def find_celery_app(name: str) -> Celery:
    """Return the app that `-A` names, as Celery's own commands find it; its handlers are not imported yet.

    Raises:
        AppNotFound: it cannot be imported.
    """
    try:
        app = find_app(name)
        _refuse_shadow(name)
        _refuse_hidden_packages()
    except AppNotFound:
        raise
    except Exception as error:
        raise AppNotFound(_not_found(name, error)) from error
    return app


def import_handlers(app: Celery) -> list[str]:
    """Import the handlers' modules, as Celery's own commands do; return their faults, a sentence each."""
    faults = import_handler_modules(app)
    if not faults:
        # Again with Celery's own function, which also does more (autodiscover_tasks).
        try:
            app.loader.import_default_modules()
        except (Exception, SystemExit) as error:
            faults.append(f"the modules of handlers cannot be imported: {describe_import_error(error)}.")
    app.finalize()
    return faults


def import_handler_modules(app: Celery) -> list[str]:
    """Import the modules that the settings name; return their faults, a sentence each."""
    faults = []
    for module in app.loader.default_modules:
        try:
            app.loader.import_task_module(module)
        except (Exception, SystemExit) as error:  # a user's module may raise anything
            faults.append(f"the module {module!r} cannot be imported: {describe_import_error(error)}.")
            if isinstance(error, ModuleNotFoundError) and f"{module}.".startswith(f"{error.name}."):
                faults[-1] += (
                    " HANDLERS names it, or `imports` or `include` of the Celery app: correct the name, or start in "
                    "the folder that has it."
                )
    return faults


def describe_import_error(error: BaseException) -> str:
    """Return an import error with file and line: the user's own, if the traceback has one."""
    if isinstance(error, SyntaxError):
        return f"{type(error).__name__}: {error.msg} ({error.filename}, line {error.lineno})"
    frames = [frame for frame in extract_tb(error.__traceback__) if not frame.filename.startswith("<")]
    theirs = [frame for frame in frames if not frame.filename.startswith(_LIBRARIES)]
    own = [frame for frame in theirs if "site-packages" not in frame.filename]
    place = next(reversed(own or theirs), None)
    where = f" ({place.filename}, line {place.lineno})" if place else ""
    return f"{type(error).__name__}: {str(error).rstrip('.')}{where}"


def find_config_file(app: Celery, environ: Mapping[str, str]) -> str:
    """Return the path of the celeryconfig that this project's own app reads; empty with another app or without one."""
    name = environ.get("CELERY_CONFIG_MODULE") or "celeryconfig"
    if app.main != OWN_APP:
        return ""
    try:
        spec = find_spec(name)
    except (ImportError, ValueError):
        # Celery's own error names the module.
        return ""
    return str(spec.origin) if spec is not None and spec.origin else ""


def warn_of_foreign_config(path: str, environ: Mapping[str, str]) -> str:
    """Return a warning if a celeryconfig was found that nobody named and that is not in the working directory."""
    if not path or environ.get("CELERY_CONFIG_MODULE") or Path(path).resolve().is_relative_to(Path.cwd().resolve()):
        return ""
    return (
        f"celeryconfig is read from {path}, which is on the import path and not in {Path.cwd()}: it may be another "
        "project's. Start in the folder that has yours, or name the module in CELERY_CONFIG_MODULE."
    )


def explain_no_handler(app: Celery, environ: Mapping[str, str]) -> str:
    """Return why no handler was found and what to do, with the imported modules."""
    source = "HANDLERS" if environ.get("HANDLERS") else "`imports`"
    modules = list(app.conf.imports or ())
    if modules:
        why = f"{source} names {', '.join(map(_shown, modules))}, and no @handler is in it"
    else:
        why = f"name the modules that hold them in `imports` or in HANDLERS{_no_config(app, environ)}"
    return f"there is no handler: {why}{_declared_elsewhere(app)}."


def _no_config(app: Celery, environ: Mapping[str, str]) -> str:
    """Return a hint that celeryconfig is missing, with the folder that was searched: it may be the wrong one."""
    if app.main != OWN_APP or environ.get("CELERY_CONFIG_MODULE") or find_spec("celeryconfig"):
        return ""
    return f"; no celeryconfig.py is in {os.getcwd()}: start in the folder that has yours"


def _declared_elsewhere(app: Celery) -> str:
    """Return a hint if handlers were declared on another app: `tasks.use(app)` is missing, or called too late."""
    # Looked up, not imported: this module must not depend on the package `tasks`.
    other = getattr(sys.modules.get("tasks"), "app", None)
    tasks: Mapping[str, Any] = {} if other is None or other is app else other.tasks
    names = ", ".join(name for name, task in tasks.items() if getattr(task, "source_topics", ()))
    if other is None or not names:
        return ""
    return (
        f"; {names} was declared on the app {other.main!r}: call tasks.use(app) where {app.main!r} is made, before the "
        "modules of handlers are imported"
    )


def _shown(name: str) -> str:
    """Return a module's name with its file, or a package's with its modules: those are not imported with it."""
    module = sys.modules.get(name)
    place = getattr(module, "__file__", None) or ", ".join(getattr(module, "__path__", ())) or "not imported"
    inside = [f"{name}.{found.name}" for found in iter_modules(getattr(module, "__path__", ()))]
    more = f"; the package holds {', '.join(inside)}: name those" if inside else ""
    return f"{name!r} ({place}{more})"


def _refuse_shadow(name: str) -> None:
    """Raise if a file of the user's hides our package `tasks`: nothing else reports it."""
    if name.partition(".")[0] != "tasks":
        return
    # Only an imported module is checked; the import error explains one that failed.
    module = sys.modules.get("tasks")
    if module is not None and not hasattr(module, "HandlerTask"):
        place = getattr(module, "__file__", None) or "a folder without __init__.py"
        raise AppNotFound(
            f"`tasks` is {place}, which hides this project's package of that name: rename it "
            "(handlers may live in any other module; name it in HANDLERS or `imports`)."
        )


def _refuse_hidden_packages() -> None:
    """Raise if a folder hides our packages from `python -m bridge`; the command `bridge` has them imported already."""
    for package in ("bridge", "lossless", "tasks"):
        spec = PathFinder.find_spec(package, [os.getcwd()])
        places = [spec.origin] if spec and spec.origin else [*(spec.submodule_search_locations or ())] if spec else []
        loaded = getattr(sys.modules.get(package), "__file__", None)
        if loaded is None or not places:
            continue
        # A folder without __init__.py hides nothing: Python prefers a package that has one.
        if spec is not None and spec.origin and not Path(spec.origin).samefile(loaded):
            raise AppNotFound(
                f"{spec.origin} hides this project's package `{package}` from `python -m bridge` and "
                f"`celery -A tasks worker`, which are started in this folder: rename it."
            )


def _not_found(name: str, error: Exception) -> str:
    try:
        _refuse_shadow(name)
    except AppNotFound as shadow:
        return str(shadow)
    module = re.split("[.:]", name)[0]
    if isinstance(error, ModuleNotFoundError) and str(error.name).partition(".")[0] == module:
        near = get_close_matches(str(error.name), sorted({"tasks", *_modules_here()}), 1)
        return (
            f"The Celery app {name!r} could not be loaded: there is no module {error.name!r} in {os.getcwd()} or "
            f"elsewhere on the import path{f'; did you mean {near[0]!r}?' if near else '.'} Name the app's module with "
            "-A, and start where it can be imported."
        )
    hint = _shadow_hint(error) or "fix that, and start again."
    return f"The Celery app {name!r} could not be loaded: {describe_import_error(error)}: {hint}"


def _modules_here() -> set[str]:
    """Return the names of the modules and packages in the working directory."""
    here = Path.cwd()
    return {path.stem for path in here.glob("*.py")} | {path.parent.name for path in here.glob("*/__init__.py")}


def _shadow_hint(error: Exception) -> str | None:
    """Return a hint if the user's `tasks.py` imports from `tasks`, which Python reports as a circular import."""
    path = getattr(error, "path", None)
    if isinstance(error, ImportError) and error.name == "tasks" and path:
        return f"{path} hides this project's package `tasks`: rename that file."
    return None
