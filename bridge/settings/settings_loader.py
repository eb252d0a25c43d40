"""The loader of settings from celeryconfig and the environment, alone or with the handlers, with all faults at once."""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from inspect import ismodule
from typing import Any, Final, NamedTuple

from celery import Celery
from pydantic import ValidationError

from bridge.errors import SettingsError
from bridge.handler_routes import Routes, find_routes
from bridge.kafka.clients import OAUTH_CB
from bridge.settings import app_discovery, settings_validation, unknown_variables
from bridge.settings.app_discovery import explain_no_handler
from bridge.settings.imported_function import import_function
from bridge.settings.oauth_token import load_token_source
from bridge.settings.setting_defaults import OWN_APP, EnvironmentSettings, FileSettings, RedisAccess, Settings
from bridge.telemetry.otel_sdk import explain_no_export
from lossless.transport.redis_credentials import FunctionCredentials

#: The variable that names the function of Redis's credentials.
CREDENTIALS: Final = "REDIS_CREDENTIALS"


def load(app: Celery, environ: Mapping[str, str]) -> Settings:
    """Return all settings, with every check that needs no connection.

    Raises:
        SettingsError: with all faults, a sentence each.
    """
    settings, wrong = read(app, environ)
    if wrong:
        raise SettingsError(wrong)
    return settings


def read(app: Celery, environ: Mapping[str, str]) -> tuple[Settings, list[str]]:
    """Return all settings, with defaults for invalid ones, and the faults, a sentence each."""
    file, in_file = _file_settings(app)
    environment, in_environment = _environment(environ)
    kafka, ignored, in_kafka = _kafka_properties(environ)
    in_login = _add_token_source(kafka, environment.KAFKA_OAUTH_CB)
    config_file = app_discovery.find_config_file(app, environ)
    warnings = filter(None, [app_discovery.warn_of_foreign_config(config_file, environ)])
    settings = Settings(
        *(file, environment, str(app.conf.broker_url or ""), kafka, tuple(ignored)),
        unread=(
            *warnings,
            *unknown_variables.find_misspelt_variables(environ),
            *unknown_variables.find_misspelt_settings(_theirs(app, environ)),
            *unknown_variables.find_unprefixed_settings(map(str, app.conf), _prefix(app)),
            *explain_no_export(environ),
        ),
        unread_by_desk=tuple(unknown_variables.find_unknown_desk_variables(environ)),
        config_file=config_file,
        redis=RedisAccess(
            {name: value for name, value in app.conf.broker_transport_options.items() if name in _OF_SENTINELS},
            app.conf.broker_use_ssl,
            read_credentials(environ),
        ),
    )
    wrong = [
        *unknown_variables.find_padded_values(
            {name: environ[name] for name in unknown_variables.READ_VARIABLES if name in environ}
        ),
        *in_file,
        *in_environment,
        *_find_credential_faults(settings),
        *in_kafka,
        *in_login,
        *settings_validation.find_celery_faults(app),
        *settings_validation.find_pattern_faults(file, settings.group),
        *settings_validation.find_redis_faults(settings),
        *settings_validation.find_ledger_faults(settings),
    ]
    # Only this project's own app reads a celeryconfig.
    source = "celeryconfig:" if app.main == OWN_APP else f"app {app.main!r}:"
    return (
        replace(settings, unread=tuple(text.replace("celeryconfig:", source, 1) for text in settings.unread)),
        [text.replace("celeryconfig:", source, 1) for text in wrong],
    )


#: The transport options that say how to ask Sentinels.
_OF_SENTINELS: Final = ("master_name", "sentinel_kwargs", "min_other_sentinels")


def read_credentials(environ: Mapping[str, str]) -> FunctionCredentials | None:
    """Return Redis's credentials by the function that REDIS_CREDENTIALS names; `None` if it is not set.

    The function is imported at the first connection: its module may use the app that is being made.
    """
    name = environ.get(CREDENTIALS, "")
    return FunctionCredentials(lambda: import_function(CREDENTIALS, name), CREDENTIALS) if name else None


def _find_credential_faults(settings: Settings) -> list[str]:
    if not settings.environment.REDIS_CREDENTIALS:
        return []
    try:
        import_function(CREDENTIALS, settings.environment.REDIS_CREDENTIALS)
    except SettingsError as error:
        return list(error.faults)
    return settings_validation.find_unused_credentials(settings)


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
        return FileSettings(), [*unread, *settings_validation.find_value_faults("celeryconfig", error)]
    return file, [*unread, *settings_validation.find_pressure_faults(file), *settings_validation.find_tier_faults(file)]


def _own_names(app: Celery) -> list[str]:
    """Return the names of our settings in an app's configuration; a Django project writes CELERY_KAFKA_TOPICS."""
    prefix = _prefix(app)
    bare = (str(name).removeprefix(prefix) for name in app.conf if str(name).startswith((prefix, "kafka_")))
    return sorted({name.lower() for name in bare if name.lower().startswith("kafka_")})


def _theirs(app: Celery, environ: Mapping[str, str]) -> set[str]:
    """Return the names in an app's configuration that may be settings of Celery: no functions or modules.

    A variable that was read into celeryconfig under its own name is in force as it is.
    """
    prefix = _prefix(app)
    names = {str(name).removeprefix(prefix): app.conf.get(name) for name in app.conf if str(name).startswith(prefix)}
    return {
        name
        for name, value in names.items()
        if not (name.startswith("_") or callable(value) or ismodule(value))
        and (name.upper() not in unknown_variables.READ_VARIABLES or str(value or "") != environ.get(name.upper(), ""))
    }


def _prefix(app: Celery) -> str:
    namespace: str = getattr(app, "namespace", None) or ""
    return f"{namespace.rstrip('_')}_" if namespace else ""


def _environment(environ: Mapping[str, str]) -> tuple[EnvironmentSettings, list[str]]:
    given = {name: environ[name] for name in EnvironmentSettings.model_fields if environ.get(name)}
    # White space around a value is a fault of its own (`find_padded_values`): the value is checked without it.
    given = {
        name: value.strip() if any(unknown_variables.find_padded_values({name: value})) else value
        for name, value in given.items()
    }
    try:
        found = EnvironmentSettings.model_validate(given)
    except ValidationError as error:
        return EnvironmentSettings(), settings_validation.find_value_faults("environment", error)
    return found, settings_validation.find_environment_faults(found)


def _add_token_source(kafka: dict[str, Any], name: str) -> list[str]:
    """Add the source of tokens that KAFKA_OAUTH_CB names; return the faults of the login."""
    if faults := settings_validation.find_login_faults(kafka, name):
        return faults
    try:
        if name:
            kafka[OAUTH_CB] = load_token_source("KAFKA_OAUTH_CB", name)
    except SettingsError as error:
        return [*error.faults]
    return []


def _kafka_properties(environ: Mapping[str, str]) -> tuple[dict[str, Any], list[str], list[str]]:
    """Return librdkafka's properties, the unknown variables, and the faults of the others."""
    properties: dict[str, Any] = {"bootstrap.servers": "localhost:9092"}
    ignored, wrong = [], []
    for variable in sorted(environ):
        if not variable.startswith("KAFKA_") or not environ[variable] or variable in EnvironmentSettings.model_fields:
            continue
        name = variable.removeprefix("KAFKA_").lower().replace("_", ".")
        fault = settings_validation.find_property_fault(variable, name, environ[variable])
        if fault == settings_validation.UNKNOWN_PROPERTY:
            ignored.append(variable)
        elif fault:
            wrong.append(fault)
        else:
            wrong.extend(
                unknown_variables.find_padded_values(
                    {variable: environ[variable]} if variable not in unknown_variables.READ_VARIABLES else {}
                )
            )
            properties[name] = environ[variable]
    return properties, ignored, [*wrong, *settings_validation.find_protocol_faults(properties)]


class SettingsAndRoutes(NamedTuple):
    """The settings and handlers that are known without a connection.

    Attributes:
        settings: with defaults for invalid ones.
        routes: the handlers.
        faults: all faults, a sentence each.
    """

    settings: Settings
    routes: Routes
    faults: list[str]


def read_with_handlers(app: Celery, environ: Mapping[str, str], broken: Iterable[str] = ()) -> SettingsAndRoutes:
    """Return the settings, and the handlers of the imported modules.

    Parameters:
        broken: the faults of importing them.
    """
    chosen, wrong = read(app, environ)
    routes, lost = find_routes(app)
    faults = [*broken, *wrong, *lost, *settings_validation.find_unique_faults(chosen, routes)]
    faults += settings_validation.find_limit_faults(chosen, routes)
    faults += settings_validation.find_registry_faults(chosen, routes)
    faults += settings_validation.find_queue_type_faults(app.conf.task_default_queue_type)
    if not routes.topics and not faults:
        faults.append(explain_no_handler(app, environ))
    return SettingsAndRoutes(chosen, routes, faults)
