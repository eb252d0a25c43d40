"""The installed versions of the project, Celery, Python and the handlers' code."""

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
    """Return the versions of the project, Celery and Python; empty for a package that is on the path but not
    installed.
    """
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


#: The variable for code without a distribution, or without a useful version.
VERSION_VARIABLE: Final = "KAFKA_HANDLERS_VERSION"


def find_handlers_version(module: str, environ: Mapping[str, str]) -> str:
    """Return the version of a handler's code: `KAFKA_HANDLERS_VERSION`, else that of its module's distribution.

    Empty if neither is known. A distribution is searched for once per module.
    """
    return environ.get(VERSION_VARIABLE, "").strip() or _version_of(module)


@cache
def _version_of(module: str) -> str:
    file = getattr(sys.modules.get(module), "__file__", None)
    path = Path(file).resolve() if file else None
    try:
        owners = _owners().get(module.partition(".")[0], ())
        candidates = [each for each in distributions() if each.name in owners] or _editable(path)
        owner = candidates[0] if len(candidates) == 1 else next((each for each in candidates if _has(each, path)), None)
        return "" if owner is None else str(owner.version or "")
    except Exception:
        # Foreign metadata may be broken in any way: the version is unknown then.
        return ""


@cache
def _owners() -> Mapping[str, list[str]]:
    """Return the distributions of each package; cached, as reading them is slow."""
    return packages_distributions()


def _editable(path: Path | None) -> list[Distribution]:
    """Return the innermost distribution whose folder contains a file (`pip install -e`)."""
    if path is None:
        return []
    folders = [
        (folder, each) for each in distributions() if (folder := _folder_of(each)) and path.is_relative_to(folder)
    ]
    return [each for _, each in sorted(folders, key=lambda found: len(found[0].parts), reverse=True)[:1]]


def _folder_of(distribution: Distribution) -> Path | None:
    """Return the folder that an editable distribution is installed from (PEP 610)."""
    source = json.loads(distribution.read_text("direct_url.json") or "{}")
    if not source.get("dir_info", {}).get("editable"):
        return None
    return Path(unquote(urlsplit(source["url"]).path)).resolve()


def _has(distribution: Distribution, path: Path | None) -> bool:
    """Return whether a file belongs to this distribution of a package that several distributions share."""
    return path is not None and any(Path(str(each.locate())).resolve() == path for each in distribution.files or ())
