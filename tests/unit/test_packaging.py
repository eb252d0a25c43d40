"""What `pip install .` installs: all of the project's packages, and no name that a user's own package may have."""

import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[2]
TOP = ("bridge", "lossless", "tasks")


def test_every_package_is_installed_and_the_examples_are_no_top_level_package():
    options = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]
    ours = {name for top in TOP for name in _packages(top)}
    examples = {f"bridge.demo.{name}" for name in _packages("examples")}
    assert sorted(options["packages"]) == sorted(ours | examples)
    assert options["package-dir"] == {"bridge.demo.examples": "examples"}


def test_lua_and_type_markers_are_installed_with_their_packages():
    data = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]["package-data"]
    for top in TOP:
        installed = {path for pattern in data[top] for path in (ROOT / top).glob(pattern)}
        beside = {path for path in (ROOT / top).rglob("*") if path.is_file() and path.suffix not in (".py", ".pyc")}
        assert beside == installed


def _packages(top: str) -> set[str]:
    return {".".join(file.parent.relative_to(ROOT).parts) for file in (ROOT / top).rglob("__init__.py")}
