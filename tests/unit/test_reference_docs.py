"""The reference pages say the defaults, headers and names that the code has."""

import ast
import importlib
import inspect
import re
from pathlib import Path
from typing import Any, Final

import pytest
from prometheus_client.metrics_core import Metric

import tasks
import tasks.testing
from bridge.bridge_metrics import BridgeMetrics
from bridge.deadletters.recorder.dead_letter_metrics import RecorderMetrics
from bridge.formats.record_headers import DEAD_LETTER_HEADERS, RETRY_HEADERS
from bridge.kafka.clients import CONSUMER_DEFAULTS, FIXED, PRODUCER_DEFAULTS
from bridge.settings.setting_defaults import EnvironmentSettings, FileSettings
from tasks import Breaker
from tasks.declaration.handler_options import Options
from tasks.policy.breaker_options import _RANGES as RANGES
from tasks.worker import worker_metrics
from tests.reference_pages import cli_page

ROOT: Final = Path(__file__).parents[2]
DOCS: Final = ROOT / "docs"
PAGES: Final = sorted([*ROOT.glob("*.md"), *DOCS.glob("**/*.md"), *ROOT.glob("benchmarks/*.md")])
#: Defaults that the page tells in words.
IN_WORDS: Final = {
    "KAFKA_HANDLERS_VERSION": "that of the distribution",
    "LEDGER_URL": "the broker, if it is one Redis",
}


def rows(page: str) -> dict[str, list[str]]:
    """Return the cells behind each name in backticks that begins a row of a table."""
    found: dict[str, list[str]] = {}
    for line in (DOCS / page).read_text().splitlines():
        if line.startswith("| `"):
            first, *rest = [cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]]
            for name in re.findall(r"`([^`]+)`", first):
                found.setdefault(name, rest)
    return found


def value(cell: str) -> Any:
    """Return the default that a cell says: `None`, a number or a string behind its backticks."""
    text = re.sub(r" \([^)]*\)$", "", cell).strip().strip("`")
    try:
        return ast.literal_eval(text)
    except (SyntaxError, ValueError):
        return text


SETTINGS: Final = rows("reference/settings.md")


@pytest.mark.parametrize("name", EnvironmentSettings.model_fields)
def test_the_page_says_the_default_of_each_variable(name: str):
    default = EnvironmentSettings.model_fields[name].default
    said = SETTINGS[name][0]
    if name in IN_WORDS:
        assert said.startswith(IN_WORDS[name])
    else:
        assert str(value(said)) == str(default)


@pytest.mark.parametrize("name", FileSettings.model_fields)
def test_the_page_says_the_default_of_each_setting(name: str):
    assert value(SETTINGS[name][0]) == FileSettings.model_fields[name].get_default(call_default_factory=True)


def test_the_page_names_no_setting_that_is_not_there():
    named = {name for name in SETTINGS if re.fullmatch(r"kafka_\w+", name)}
    assert named == {*FileSettings.model_fields}
    prefixes = ("DEADLETTERS_", "WORKER_", "BRIDGE_", "LEDGER_")
    logs = {"BRIDGE_LOG_LEVEL", "BRIDGE_LOG_FORMAT"}
    variables = {name for name in SETTINGS if name.startswith(prefixes)} - logs
    assert variables == {name for name in EnvironmentSettings.model_fields if name.startswith(prefixes)}


def test_the_page_on_handlers_has_each_option_of_ours_and_of_retries():
    names = [*Options.__annotations__]
    ours = names[: names.index("default_retry_delay")]
    page = rows("how-to/write-handlers.md")
    assert [name for name in ours if name not in page] == []


def test_the_page_on_circuit_breakers_has_each_parameter_with_its_default_and_range():
    page = rows("concepts/circuit-breakers.md")
    for name, parameter in list(inspect.signature(Breaker).parameters.items())[1:]:
        default, between = page[name][:2]
        assert value(default) == parameter.default
        assert between == ", ".join(f"{end:.6g}" for end in RANGES.get(name, ()))


@pytest.mark.parametrize("headers", [DEAD_LETTER_HEADERS, RETRY_HEADERS], ids=["dead letter", "retry"])
def test_the_page_has_each_header(headers: frozenset[str]):
    page = rows("reference/headers.md")
    assert sorted(headers - {*page}) == []


def test_the_page_has_no_header_that_is_never_written():
    assert sorted({*rows("reference/headers.md")} - DEAD_LETTER_HEADERS - RETRY_HEADERS) == []


def test_a_header_that_is_only_a_header_is_named_in_one_module():
    """Names such as `handler` and `reason` are JSON keys, too; these are not."""
    named = re.compile(r"""["'](?:origin|retry|replay|attempts)_(?:[a-z_]+)["']""")
    ours = DEAD_LETTER_HEADERS | RETRY_HEADERS
    modules = {
        str(path.relative_to(ROOT))
        for path in sorted((ROOT / "bridge" / "formats").glob("*.py"))
        if any(name[1:-1] in ours for name in named.findall(path.read_text()))
    }
    assert modules == {"bridge/formats/record_headers.py"}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_table_has_a_head_and_rows_of_one_width(page: Path):
    """A blank line in a table, or a bar in a cell, makes the rest of it plain text."""
    wrong = []
    head: list[str] = []
    code = False
    for number, line in enumerate([*page.read_text().splitlines(), ""], 1):
        code ^= line.startswith("```")
        if line.startswith("|") and not code:
            head.append(line)
            cells = [len(re.findall(r"(?<!\\)\|", each)) for each in head]
            if (len(head) == 2 and not re.fullmatch(r"[|: -]+", line)) or cells[-1] != cells[0]:
                wrong.append(number)
        else:
            if len(head) == 1:
                wrong.append(number - 1)
            head = []
    assert wrong == []


def test_the_page_says_each_default_of_librdkafka_that_is_another_here():
    named = {name: cells[0] for name, cells in SETTINGS.items() if "." in name}
    for name, default in {**CONSUMER_DEFAULTS, **PRODUCER_DEFAULTS}.items():
        assert re.match(rf"`?{default}\b", named[name]), name
    page = (DOCS / "reference/settings.md").read_text()
    assert [name for name in FIXED if f"`{name}`" not in page] == []


def read_api() -> dict[str, dict[str, str]]:
    """Return the signatures of the page on the Python API: of each section, by name; empty where none is shown."""
    sections: dict[str, dict[str, str]] = {}
    section: dict[str, str] = {}
    for line in (DOCS / "reference" / "python-api.md").read_text().splitlines():
        if heading := re.match(r"##+ `([\w.]+)`$", line):
            section = sections.setdefault(heading[1], {})
        elif row := re.match(r"\| `(\w+)` \|([^|]*)\|", line):
            shown = row[2].strip()
            section[row[1]] = shown.strip("`") if shown.startswith("`") else ""
    return sections


API: Final = read_api()
#: The public names of a section: all that `tasks` exports, all of a message, of other modules what the page promises.
PUBLIC: Final = {
    "tasks": {*tasks.__all__},
    "Message": {name for name in dir(tasks.Message) if name[0] != "_"} - {"outbox"},
    "Messages": {"blamed", "fail", "later", "settle_with"},
    "HandlerTask": {"check_value", "decode", "retry"},
    "tasks.testing": {*tasks.testing.__all__},
    "tasks.logs": {"WithDelivery"},
    "bridge.deadletters.model.failure_group": {"find_failure_group"},
    "bridge.formats.user_database": {
        *("table", "outbox_table", "TABLE", "OUTBOX_TABLE", "CREATE_TABLE", "CREATE_OUTBOX_TABLE"),
    },
    "bridge.errors": {"BridgeError", "AlreadySettled", "CannotSettle", "EmbeddedServerFailed"},
    "bridge.embedded": {"EmbeddedKafka", "EmbeddedRedis"},
}


def find_owner(section: str) -> Any:
    return getattr(tasks, section) if section in tasks.__all__ else importlib.import_module(section)


def write_signature(name: str, function: Any) -> str:
    """Return a signature as the page writes it: names and defaults, without annotations and `self`."""
    written: list[str] = []
    for parameter in inspect.signature(function).parameters.values():
        if parameter.name == "self":
            continue
        if parameter.kind is parameter.KEYWORD_ONLY and not any(each.startswith("*") for each in written):
            written.append("*")
        bare = parameter.replace(annotation=parameter.empty)
        written.append(str(bare).replace(" = ", "="))
    return f"{name}({', '.join(written)})"


@pytest.mark.parametrize("section", PUBLIC)
def test_the_page_on_the_api_has_each_public_name_and_no_other(section: str):
    assert sorted(API[section]) == sorted(PUBLIC[section])
    assert [name for name in API[section] if not hasattr(find_owner(section), name)] == []


def test_the_page_on_the_api_has_no_other_section():
    assert {*API} == {*PUBLIC}


@pytest.mark.parametrize(("section", "name"), [(section, name) for section in API for name in API[section]])
def test_the_page_on_the_api_shows_the_signature(section: str, name: str):
    shown, public = API[section][name], getattr(find_owner(section), name)
    # An error that takes a message has no signature of its own.
    own = not (isinstance(public, type) and issubclass(public, Exception)) or "__init__" in vars(public)
    if shown and own:
        assert shown == write_signature(name, public)
    elif not own:
        assert re.fullmatch(rf"({name}\(why\))?", shown)
    else:
        assert not callable(public) or name in {"app", "Message", "Messages", "HandlerTask", "Options"}


def labels_on_page(name: str) -> tuple[str, ...]:
    """Return the labels that the page says of a metric, by the name that Prometheus shows."""
    return tuple(label.strip() for label in rows("reference/metrics.md")[name][0].split(",") if label)


REGISTRIES: Final = (BridgeMetrics().registry, RecorderMetrics().registry)
METRICS: Final[list[Any]] = [
    *(metric for registry in REGISTRIES for metric in registry._collector_to_names),
    *worker_metrics._made(),
    worker_metrics._count_unseen(Path("no such folder")),
]


@pytest.mark.parametrize("metric", METRICS, ids=lambda metric: getattr(metric, "_name", None) or metric.name)
def test_the_page_has_each_metric_with_its_labels(metric: Any):
    name, kind = (metric.name, metric.type) if isinstance(metric, Metric) else (metric._name, metric._type)
    assert labels_on_page(f"{name}_total" if kind == "counter" else name) == tuple(metric._labelnames)


def test_the_page_of_the_commands_is_written_from_the_commands():
    page = (DOCS / "reference" / "cli.md").read_text()
    assert page == cli_page(), "run `make reference`"
