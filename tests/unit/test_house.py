"""The rules of the house that a machine can see."""

import ast
import re
import shlex
import tomllib
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from typing import Final

from tests.conftest import REDIS, SERVERS
from tests.house import SHARED, find_classes, find_product_files, find_repeated, is_noun
from tests.source_tree import parse_source, read_outline

ROOT: Final = Path(__file__).parents[2]
FILES: Final = {
    str(file.relative_to(ROOT)): file
    for folder in ("benchmarks", "bridge", "examples", "lossless", "tasks", "tests")
    for file in sorted((ROOT / folder).rglob("*.py"))
}

#: Where a package says every error that it raises on purpose. What ends a small program of its own lies beside it.
ERRORS: Final = {"bridge": "bridge/errors.py", "tasks": "tasks/errors.py"}

#: Headings that others have for what is a "Parameters:" here.
HEADINGS: Final = re.compile(r"(?:Args|Arguments|Params|Return|Raise|Throws):")
PARAMETERS: Final = re.compile(r"^Parameters:\n((?:    .*\n?|\n)+)", re.MULTILINE)
OTHERS: Final = re.compile(rf"^\s*(Keyword )?{HEADINGS.pattern}\s*$", re.MULTILINE)

#: How the names of errors end.
ERROR_ENDINGS: Final = ("Error", "Exception", "Unavailable", "Failed")


def docstrings(file: Path) -> Iterator[str]:
    documented = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    for node in ast.walk(parse_source(file)):
        if isinstance(node, documented) and (text := ast.get_docstring(node)):
            yield text


def test_a_docstring_has_parameters_returns_and_raises():
    # Parsing takes time: it tells only whether what was found in a file is in a docstring.
    suspects = {name: file for name, file in FILES.items() if HEADINGS.search(file.read_text())}
    others = {name: text for name, file in suspects.items() for text in docstrings(file) if OTHERS.search(text)}
    assert others == {}


def test_every_parameter_that_a_docstring_explains_is_one():
    absent = {
        f"{module}.{definition.name}: {', '.join(sorted(unknown))}"
        for module, file in find_product_files().items()
        for definition in read_outline(file).definitions
        if definition.parameters is not None
        if (unknown := _find_explained(definition.docstring) - definition.parameters)
    }
    assert absent == set()


def _find_explained(docstring: str) -> set[str]:
    section = PARAMETERS.search(docstring)
    heads = re.findall(r"^    ([\w, ]+):", section[1], re.MULTILINE) if section else []
    return {name for head in heads for name in head.split(", ")}


def test_every_error_of_a_package_stands_in_its_errors():
    elsewhere = {
        f"{name}: {definition.name}"
        for name, file in FILES.items()
        if (home := ERRORS.get(name.split("/")[0])) and name != home
        for definition in read_outline(file).definitions
        if any(base.endswith(ERROR_ENDINGS) for base in definition.bases)
    }
    assert elsewhere == set()


def test_every_error_says_what_happened():
    for home in ERRORS.values():
        errors = [definition for definition in read_outline(ROOT / home).definitions if definition.is_class]
        assert errors
        assert [error.name for error in errors if not error.docstring.endswith(".")] == []


def test_every_file_of_the_product_is_named_by_a_noun_that_no_other_file_has():
    stems = [file.stem for file in find_product_files().values()]
    assert [stem for stem in stems if not is_noun(stem)] == []
    assert find_repeated(stem for stem in stems if stem not in SHARED) == {}


def test_no_two_classes_of_the_product_have_one_name():
    assert find_repeated(name for names in find_classes().values() for name in names) == {}


def test_no_fixture_but_the_servers_own_has_the_name_of_a_server():
    # The tests of such a fixture would be marked as those that need the server, and leave `make test`.
    names = "|".join(sorted(SERVERS | REDIS))
    shadowing = re.compile(rf"^def ({names})\(|fixture\(.*name=\"({names})\"", re.MULTILINE)
    servers = {
        "tests/conftest.py",
        "tests/servers/redis_fixtures.py",
        "tests/browser/conftest.py",
        "tests/browser/chromium.py",
    }
    tests = {name: file for name, file in FILES.items() if name.startswith("tests/") and name not in servers}
    assert {name for name, file in tests.items() if shadowing.search(file.read_text())} == set()


def test_every_test_is_in_a_file_that_is_collected():
    helpers = {name: file for name, file in FILES.items() if re.match(r"tests/(?!sites/)(.*/)?(?!test_)[^/]+$", name)}
    tests = re.compile(r"^(async )?def test_|^class Test", re.MULTILINE)
    assert helpers
    assert {name for name, file in helpers.items() if tests.search(file.read_text())} == set()


def test_every_test_is_selected_by_one_of_the_suites_whatever_its_marks():
    suite = "$(BIN)/python -m pytest"
    commands = (ROOT / "Makefile").read_text().replace("\\\n", " ").splitlines()
    commands = [line.split(suite, 1)[1] for line in commands if suite in line and "SCREENSHOTS" not in line]
    options = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["pytest"]["ini_options"]["addopts"]
    suites = [_find_selection(f"{options} {command}") for command in commands]
    assert len(suites) == 6, suites
    marks = ("chaos", "compose", "hypothesis", "redis", "servers", "slow")
    every = [dict(zip(marks, flags, strict=True)) for flags in product((False, True), repeat=len(marks))]
    assert [flags for flags in every if not any(eval(suite, {}, flags) for suite in suites)] == []
    # `make compose-test` looks into this folder alone.
    composed = re.compile(r"pytest\.mark\.compose\b")
    files = {name: file for name, file in FILES.items() if name.startswith("tests/")}
    marked = {name for name, file in files.items() if composed.search(file.read_text())}
    assert {name for name in marked if not name.startswith("tests/compose/")} == set()


def _find_selection(command: str) -> str:
    words = shlex.split(command)
    return [words[place + 1] for place, word in enumerate(words) if word == "-m"][-1]
