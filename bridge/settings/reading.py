"""Settings, read from celeryconfig and the environment; what is wrong is said all at once (faults.py)."""

from collections.abc import Mapping
from inspect import ismodule

from celery import Celery
from pydantic import ValidationError

from bridge.errors import SettingsError
from bridge.settings import faults, modules, slips
from bridge.settings.values import EnvironmentSettings, FileSettings, Settings


def load(app: Celery, environ: Mapping[str, str]) -> Settings:
    """Read and check all settings that can be checked without a connection.

    Raises:
        SettingsError: with every fault, a sentence each.
    """
    settings, wrong = read(app, environ)
    if wrong:
        raise SettingsError(wrong)
    return settings


def read(app: Celery, environ: Mapping[str, str]) -> tuple[Settings, list[str]]:
    """Read all settings, with the defaults in place of those that are wrong; and say what is wrong, a sentence each."""
    file, in_file = _file_settings(app)
    environment, in_environment = _environment(environ)
    kafka, ignored, in_kafka = _kafka_properties(environ)
    config_file = modules.config_file(app, environ)
    warnings = filter(None, [modules.foreign_config(config_file, environ)])
    settings = Settings(
        *(file, environment, str(app.conf.broker_url or ""), kafka, tuple(ignored)),
        unread=(*warnings, *slips.of_others(environ), *slips.of_celery(_theirs(app))),
        unread_by_desk=tuple(slips.of_desk(environ)),
        config_file=config_file,
    )
    wrong = [
        *slips.padded({name: environ[name] for name in slips.READ if name in environ}),
        *in_file,
        *in_environment,
        *in_kafka,
        *faults.of_celery(app),
        *faults.of_patterns(file, settings.group),
        *faults.of_ledger(settings),
    ]
    return settings, wrong


def _file_settings(app: Celery) -> tuple[FileSettings, list[str]]:
    given, unread = {}, []
    for name in _own_names(app):
        try:
            given[name] = app.conf[name]
        except KeyError:
            unread.append(f"celeryconfig: {name.upper()} is not read: write {name}.")
    try:
        file = FileSettings.model_validate(given)
    except ValidationError as error:
        return FileSettings(), [*unread, *faults.of_values("celeryconfig", error)]
    return file, [*unread, *faults.of_pressure(file), *faults.of_tiers(file)]


def _own_names(app: Celery) -> list[str]:
    """Ours among the names of an app's settings; in a Django project they are written CELERY_KAFKA_TOPICS."""
    prefix = _prefix(app)
    bare = (str(name).removeprefix(prefix) for name in app.conf if str(name).startswith((prefix, "kafka_")))
    return sorted({name.lower() for name in bare if name.lower().startswith("kafka_")})


def _theirs(app: Celery) -> set[str]:
    """The names in an app's configuration that may be settings of Celery: values, and no functions or modules."""
    prefix = _prefix(app)
    names = {str(name).removeprefix(prefix): app.conf.get(name) for name in app.conf if str(name).startswith(prefix)}
    return {name for name, value in names.items() if not (name.startswith("_") or callable(value) or ismodule(value))}


def _prefix(app: Celery) -> str:
    namespace: str = getattr(app, "namespace", None) or ""
    return f"{namespace.rstrip('_')}_" if namespace else ""


def _environment(environ: Mapping[str, str]) -> tuple[EnvironmentSettings, list[str]]:
    given = {name: environ[name] for name in EnvironmentSettings.model_fields if environ.get(name)}
    # White space around a value is a fault of its own (slips.padded): what is in between is looked at without it.
    given = {name: value.strip() if any(slips.padded({name: value})) else value for name, value in given.items()}
    try:
        found = EnvironmentSettings.model_validate(given)
    except ValidationError as error:
        return EnvironmentSettings(), faults.of_values("environment", error)
    return found, faults.of_environment(found)


def _kafka_properties(environ: Mapping[str, str]) -> tuple[dict[str, str], list[str], list[str]]:
    """librdkafka's properties, the variables that it does not know, and what is wrong with the others."""
    properties, ignored, wrong = {"bootstrap.servers": "localhost:9092"}, [], []
    for variable in sorted(environ):
        if not variable.startswith("KAFKA_") or not environ[variable] or variable in EnvironmentSettings.model_fields:
            continue
        name = variable.removeprefix("KAFKA_").lower().replace("_", ".")
        fault = faults.of_property(variable, name, environ[variable])
        if fault == faults.UNKNOWN:
            ignored.append(variable)
        elif fault:
            wrong.append(fault)
        else:
            wrong.extend(slips.padded({variable: environ[variable]} if variable not in slips.READ else {}))
            properties[name] = environ[variable]
    return properties, ignored, wrong
