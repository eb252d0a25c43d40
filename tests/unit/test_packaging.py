"""What `pip install .` installs: all of the project's packages, and no name that a user's own package may have.

The package `lossless` is a distribution of its own, too. Until that is published the project brings the package along,
so what both say of it must be the same.
"""

import re
import sys
import tomllib
from pathlib import Path
from typing import Any, Final

from tests.unit.test_imports import FILES, names_in

ROOT: Final = Path(__file__).parents[2]
TOP: Final = ("bridge", "lossless", "tasks")
PROJECT: Final = tomllib.loads((ROOT / "pyproject.toml").read_text())
LOSSLESS: Final = tomllib.loads((ROOT / "lossless" / "pyproject.toml").read_text())
#: What makes a distribution of the folder `lossless`, and is none of the package's.
OF_A_DISTRIBUTION: Final = {ROOT / "lossless" / name for name in ("LICENSE", "README.md", "pyproject.toml")}
#: A package that another one brings along by its own dependencies.
BROUGHT_BY: Final = {"amqp": "kombu", "billiard": "celery"}


def test_every_package_is_installed_and_the_examples_are_no_top_level_package():
    options = PROJECT["tool"]["setuptools"]
    ours = {name for top in TOP for name in _packages(top)}
    examples = {f"bridge.demo.{name}" for name in _packages("examples")}
    assert sorted(options["packages"]) == sorted(ours | examples)
    assert options["package-dir"] == {"bridge.demo.examples": "examples"}


def test_lua_and_type_markers_are_installed_with_their_packages():
    data = PROJECT["tool"]["setuptools"]["package-data"]
    for top in TOP:
        installed = {path for pattern in data[top] for path in (ROOT / top).glob(pattern)}
        beside = {path for path in (ROOT / top).rglob("*") if path.is_file() and path.suffix not in (".py", ".pyc")}
        assert beside - OF_A_DISTRIBUTION == installed


def test_the_distribution_of_lossless_is_a_member_of_the_workspace_and_has_the_files_that_the_project_installs():
    project, alone = PROJECT["tool"]["setuptools"], LOSSLESS["tool"]["setuptools"]
    assert PROJECT["tool"]["uv"]["workspace"]["members"] == ["lossless"]
    assert sorted(alone["packages"]) == sorted(_packages("lossless"))
    assert alone["package-data"]["lossless"] == project["package-data"]["lossless"]
    assert (ROOT / "lossless" / "LICENSE").read_bytes() == (ROOT / "LICENSE").read_bytes()


def test_both_distributions_agree_on_versions_and_on_what_lossless_depends_on():
    project, alone = PROJECT["project"], LOSSLESS["project"]
    same = ("version", "requires-python", "license")
    assert {name: alone[name] for name in same} == {name: project[name] for name in same}
    assert _python_versions(alone) == _python_versions(project)
    assert set(alone["dependencies"]) <= set(project["dependencies"])


def test_lossless_depends_on_what_it_imports_and_on_nothing_else():
    imported = {
        name.partition(".")[0]
        for module, file in FILES.items()
        if module.partition(".")[0] == "lossless"
        for name, _ in names_in(file)
    }
    foreign = {BROUGHT_BY.get(name, name) for name in imported - sys.stdlib_module_names - {"lossless"}}
    assert {line.partition("[")[0].partition(">")[0] for line in LOSSLESS["project"]["dependencies"]} == foreign


def _packages(top: str) -> set[str]:
    return {".".join(file.parent.relative_to(ROOT).parts) for file in (ROOT / top).rglob("__init__.py")}


def _python_versions(project: dict[str, Any]) -> set[str]:
    return {line for line in project["classifiers"] if line.startswith("Programming Language")}


def test_the_image_and_the_chart_have_the_version_and_the_words_of_the_distribution():
    dockerfile = (ROOT / "Dockerfile").read_text()
    labels = dict(re.findall(r'org\.opencontainers\.image\.(\w+)="([^"]+)"', dockerfile))
    project = PROJECT["project"]
    chart = dict(
        re.findall(
            r"^(version|appVersion): \W?([\w.]+)",
            (ROOT / "deploy/helm/celery-kafka-bridge/Chart.yaml").read_text(),
            re.MULTILINE,
        )
    )
    assert chart == {"version": project["version"], "appVersion": project["version"]}
    assert labels == {
        "title": project["name"],
        "description": project["description"],
        "licenses": project["license"],
        "version": project["version"],
    }


def test_a_release_is_built_from_the_tag_that_is_called_like_its_version():
    workflow = (ROOT / ".github" / "workflows" / "release.yml").read_text()
    assert 'tags: ["v*"]' in workflow
    # The chart pulls the image by its appVersion.
    assert "version=${GITHUB_REF_NAME#v}" in workflow
    assert re.findall(r"^ +(?:- )?uses: (?!\S+@[0-9a-f]{40} # v)(.*)$", workflow, re.MULTILINE) == []
    assert "make dist" in workflow
    assert "id-token: write" in workflow
