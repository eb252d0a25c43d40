"""The size and the names of the product, measured: `make house` prints the table.

The product is `bridge`, `tasks` and `lossless`.
"""

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from pathlib import Path
from statistics import median
from typing import Final

from tests.source_tree import read_outline

ROOT: Final = Path(__file__).parents[1]
PACKAGES: Final = ("bridge", "tasks", "lossless")

#: Names that files may share: each package has one of its own.
SHARED: Final = frozenset({"__init__", "__main__", "errors"})
#: Words that end like a gerund and are nouns of the field.
NOUNS: Final = frozenset({"onboarding", "ordering", "routing", "setting", "string", "testing", "wiring"})
#: Participles, adjectives and prepositions that were file names once.
NOT_NOUNS: Final = re.compile(
    "about|accused|added|again|ahead|all|along|among|apart|asked|away|behind|beside|between|carried|dead|deep|due|early|"
    "elsewhere|found|free|given|gone|held|kept|known|late|least|left|long|made|more|own|passed|ready|read|ripe|safe|"
    "said|seen|sent|shared|since|slow|standing|taken|together|told|under|unquoted|whole"
)


def is_noun(stem: str) -> bool:
    """Return whether a file name may be the name of a thing: no gerund, participle, adjective or preposition."""
    words = stem.strip("_").split("_")
    return not NOT_NOUNS.fullmatch(stem) and (words[-1] in NOUNS or not words[-1].endswith("ing"))


def find_product_files() -> dict[str, Path]:
    """Return the Python files of the product by their module's name."""
    files = (file for package in PACKAGES for file in sorted((ROOT / package).rglob("*.py")))
    return {".".join(file.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__"): file for file in files}


def find_importers(files: Mapping[str, Path]) -> dict[str, set[str]]:
    """Return the modules of the product that import each module."""
    importers: dict[str, set[str]] = defaultdict(set)
    for module, file in files.items():
        for source, name in read_outline(file).imports:
            whole = f"{source}.{name}"
            importers[whole if whole in files else source].add(module)
    return {module: importers[module] - {module} for module in files}


def find_repeated(names: Iterable[str]) -> dict[str, int]:
    """Return the names that occur more than once, with their number."""
    return {name: count for name, count in Counter(names).items() if count > 1}


def find_classes() -> dict[str, list[str]]:
    """Return the names of the classes of each module of the product."""
    return {
        module: [definition.name for definition in read_outline(file).definitions if definition.is_class]
        for module, file in find_product_files().items()
    }


def measure() -> dict[str, object]:
    """Return the figures of the table, each by its name."""
    files = find_product_files()
    lines = {module: len(file.read_text().splitlines()) for module, file in files.items()}
    modules = [module for module, file in files.items() if file.stem not in ("__init__", "__main__")]
    single = [module for module, of in find_importers(files).items() if len(of) == 1 and module in modules]
    classes = find_classes()
    stems = find_repeated(file.stem for file in files.values() if file.stem not in SHARED)
    repeated = find_repeated(name for names in classes.values() for name in names)
    packages: dict[str, list[str]] = defaultdict(list)
    for module, names in classes.items():
        packages[_package(module)] += names
    return {
        "product files": len(files),
        "median lines of a file": median(lines.values()),
        "product lines (Python)": sum(lines.values()),
        "modules with exactly one importer": len(single),
        "of those under 60 lines": sum(lines[module] < 60 for module in single),
        "files of over 450 lines": sum(count > 450 for count in lines.values()),
        "file names that files share": f"{len(stems)} names, {sum(stems.values())} files",
        "file names that are no nouns": sum(not is_noun(file.stem) for file in files.values()),
        "class names used more than once": len(repeated),
        "of those within one package": sum(len(find_repeated(names)) for names in packages.values()),
        "lines of docs/contributors/internals.md": len(_read("docs/contributors/internals.md").splitlines()),
        "words of README.md": len(_read("README.md").split()),
    }


def _read(name: str) -> str:
    return (ROOT / name).read_text()


def _package(module: str) -> str:
    return ".".join(module.split(".")[:2])


if __name__ == "__main__":
    for name, figure in measure().items():
        print(f"{name:42} {figure}")
