"""Which versions run here: of the project, Celery and Python, and of the handlers' code."""

import json
import platform
import sys
from collections.abc import Mapping
from functools import cache
from importlib.metadata import Distribution, PackageNotFoundError, distributions, packages_distributions, version
from pathlib import Path
from typing import Final
from urllib.parse import unquote, urlsplit

#: The distribution that this project installs as.
DISTRIBUTION: Final = "celery-kafka-bridge"


@cache
def read_versions() -> dict[str, str]:
    """The project's version, Celery's and Python's; empty where a package is not installed but on the path."""
    return {
        DISTRIBUTION: _package_version(DISTRIBUTION),
        "celery": _package_version("celery"),
        "python": platform.python_version(),
    }


def _package_version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return ""


#: The variable that says it, for what is no distribution or has no version worth telling.
VERSION_VARIABLE: Final = "KAFKA_HANDLERS_VERSION"


def find_handlers_version(module: str, environ: Mapping[str, str]) -> str:
    """The version of a handler's code: `KAFKA_HANDLERS_VERSION`, else that of the distribution of its module.

    Empty where neither is known. A distribution is looked up once for each module.
    """
    return environ.get(VERSION_VARIABLE, "").strip() or _version_of(module)


@cache
def _version_of(module: str) -> str:
    file = getattr(sys.modules.get(module), "__file__", None)
    path = Path(file).resolve() if file else None
    try:
        owners = _owners().get(module.partition(".")[0], ())
        found = [each for each in distributions() if each.name in owners] or _editable(path)
        owner = found[0] if len(found) == 1 else next((each for each in found if _has(each, path)), None)
        return "" if owner is None else str(owner.version or "")
    except Exception:
        # Metadata of others, which may be broken in any way: without it nothing is known.
        return ""


@cache
def _owners() -> Mapping[str, list[str]]:
    """By package the distributions that have it; read once, as it takes a while."""
    return packages_distributions()


def _editable(path: Path | None) -> list[Distribution]:
    """The distribution that is installed from the folder in which a file lies (`pip install -e`), the innermost."""
    if path is None:
        return []
    folders = [
        (folder, each) for each in distributions() if (folder := _folder_of(each)) and path.is_relative_to(folder)
    ]
    return [each for _, each in sorted(folders, key=lambda found: len(found[0].parts), reverse=True)[:1]]


def _folder_of(distribution: Distribution) -> Path | None:
    """From where one is installed that is editable (PEP 610)."""
    said = json.loads(distribution.read_text("direct_url.json") or "{}")
    if not said.get("dir_info", {}).get("editable"):
        return None
    return Path(unquote(urlsplit(said["url"]).path)).resolve()


def _has(distribution: Distribution, path: Path | None) -> bool:
    """Of a package that several distributions share: whether a file is of this one."""
    return path is not None and any(Path(str(each.locate())).resolve() == path for each in distribution.files or ())
