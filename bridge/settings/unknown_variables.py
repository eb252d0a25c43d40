"""The misspelt settings that nothing reads, and values with white space around them."""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from difflib import get_close_matches
from typing import Final

from celery.app.defaults import _OLD_SETTING_KEYS, SETTING_KEYS  # type: ignore[attr-defined]

from bridge.settings.librdkafka_properties import PROPERTY_NAMES, guess_variable
from bridge.settings.setting_defaults import EnvironmentSettings, FileSettings, TopicSettings

#: The prefix of the dead-letter store's variables: every unknown one is reported.
DESK_PREFIX: Final = "DEADLETTERS_"
#: The prefix of the schema registry's variables: other clients read more of them, so every unknown one is reported.
REGISTRY_PREFIX: Final = "SCHEMA_REGISTRY_"
#: All variables that are read, but for librdkafka's properties (librdkafka_properties.py).
READ_VARIABLES: Final = (
    *EnvironmentSettings.model_fields,
    *("HANDLERS", "CELERY_BROKER_URL", "CELERY_CONFIG_MODULE", "BRIDGE_LOG_LEVEL", "BRIDGE_LOG_FORMAT"),
    *("KAFKA_BOOTSTRAP_SERVERS", "TARGET_KAFKA_BOOTSTRAP_SERVERS"),
)
#: How similar two names must be, of 1: one letter may differ; Celery's own CELERY_BROKER_READ_URL is not similar.
ALIKE: Final = 0.88
#: The settings of celeryconfig that are read: Celery's, in both spellings, and ours.
_IN_FILE: Final = frozenset({*SETTING_KEYS, *map(str.lower, _OLD_SETTING_KEYS), *FileSettings.model_fields})
#: The variables by the names that they would have in celeryconfig, which does not set them.
_IN_ENVIRONMENT: Final = {name.lower(): name for name in READ_VARIABLES}
#: Lists with commas, in which white space means nothing.
_LISTS: Final = ("HANDLERS", "DEADLETTERS_CONSOLE_HOSTS", "DEADLETTERS_WEBHOOK_NETWORKS", "DEADLETTERS_TRUSTED_PROXY")
#: Variables that Kubernetes sets for a service called `deadletters…` or `schema-registry…`.
_OF_SERVICE: Final = re.compile(r".*_(SERVICE_HOST|SERVICE_PORT(_.*)?|PORT(_\d+_[A-Z]+(_.*)?)?)")
_LINK: Final = "tcp://"
_SECRET: Final = re.compile("PASSWORD|SECRET|TOKEN")


def find_unknown_desk_variables(environ: Mapping[str, str]) -> Iterator[str]:
    """Yield a fault for each unknown DEADLETTERS_ variable: a misspelt one could show fields that must be masked."""
    for name in sorted(environ):
        if (
            environ[name]
            and name.startswith(DESK_PREFIX)
            and name not in READ_VARIABLES
            and not _OF_SERVICE.fullmatch(name)
        ):
            near = get_close_matches(
                name, [each for each in READ_VARIABLES if each.startswith(DESK_PREFIX)], n=1, cutoff=0.8
            )
            advice = f"did you mean {near[0]}? Else remove it" if near else "remove it"
            yield f"environment: there is no setting {name}: {advice}; docs/reference/settings.md has the list."


def find_misspelt_variables(environ: Mapping[str, str]) -> Iterator[str]:
    """Yield a warning for each other variable that resembles a known one, and each unknown one of a schema registry,
    but for those of Kubernetes services.

    >>> [*find_misspelt_variables({"BRIDGE_GRUOP": "shop"})]
    ['environment: nothing reads BRIDGE_GRUOP. Did you mean BRIDGE_GROUP?']
    """
    for name in sorted(environ):
        value = environ[name]
        if not value or value.startswith(_LINK) or name in READ_VARIABLES or name.startswith(DESK_PREFIX):
            continue
        if name.startswith("KAFKA_") and guess_variable(name):
            # It is reported as a property.
            continue
        if near := get_close_matches(name, READ_VARIABLES, cutoff=ALIKE):
            # One that was cut short (…_USER) resembles another of its length (…_URL) more.
            right = next((known for known in near if known.startswith(name)), near[0])
            yield f"environment: nothing reads {name}. Did you mean {right}?"
        elif name.startswith(REGISTRY_PREFIX) and not _OF_SERVICE.fullmatch(name):
            yield f"environment: nothing reads {name}: docs/reference/settings.md has the list."


def find_misspelt_settings(names: Iterable[str]) -> Iterator[str]:
    """Yield a warning for each unknown setting of celeryconfig that resembles a known one or is a variable.

    >>> [*find_misspelt_settings(["worker_prefech_multiplier", "my_own_setting"])]
    ['celeryconfig: nothing reads worker_prefech_multiplier. Did you mean worker_prefetch_multiplier?']
    >>> [*find_misspelt_settings(["bridge_group"])]
    ['celeryconfig: nothing reads bridge_group. Did you mean the environment variable BRIDGE_GROUP?']
    """
    for name in sorted(names):
        # Unknown ones of ours are faults.
        known = name.lower() in _IN_FILE or name.lower().startswith("kafka_")
        if not known and (right := _guess_setting(name.lower(), ALIKE)):
            yield f"celeryconfig: nothing reads {name}. Did you mean {right}?"


def _guess_setting(name: str, alike: float) -> str:
    """Return the setting or variable that an unknown setting of celeryconfig was probably meant to be; else ""."""
    for right in get_close_matches(name, [*_IN_ENVIRONMENT, *_IN_FILE], n=1, cutoff=alike):
        return f"the environment variable {_IN_ENVIRONMENT[right]}" if right in _IN_ENVIRONMENT else right
    return ""


def guess_own_setting(path: Sequence[str]) -> str:
    """Return what an unknown `kafka_` setting, or option of a topic, was probably meant to be; else "".

    >>> guess_own_setting(["kafka_topic"]), guess_own_setting(["kafka_topics", "orders", "comit"])
    ('kafka_topics', 'commit')
    >>> guess_own_setting(["kafka_sasl_username"])
    'the environment variable KAFKA_SASL_USERNAME'
    """
    name = path[-1]
    if len(path) > 1:
        return next(iter(get_close_matches(name, TopicSettings.model_fields, n=1)), "")
    if name.removeprefix("kafka_").replace("_", ".") in PROPERTY_NAMES:
        return f"the environment variable {name.upper()}"
    return _guess_setting(name, 0.8)


def find_unprefixed_settings(names: Iterable[str], prefix: str) -> Iterator[str]:
    """Yield a warning for each of our settings that lacks the prefix of the app's namespace, as in Django's settings.

    >>> [*find_unprefixed_settings(["KAFKA_TOPICS", "CELERY_KAFKA_WINDOW"], "CELERY_")]
    ['settings: nothing reads KAFKA_TOPICS. Did you mean CELERY_KAFKA_TOPICS?']
    """
    for name in sorted(names):
        if prefix and not name.startswith(prefix) and name.isupper() and name.lower() in FileSettings.model_fields:
            yield f"settings: nothing reads {name}. Did you mean {prefix}{name}?"


def find_padded_values(environ: Mapping[str, str]) -> Iterator[str]:
    """Yield a fault for each value with white space around it, as a file with Windows line ends leaves it.

    >>> [*find_padded_values({"LEDGER_URL": "redis://localhost/0\\r"})]
    ["LEDGER_URL ends with '\\\\r': remove it (a file with Windows line ends, or a copied space)."]
    """
    for name in sorted(environ):
        value = environ[name]
        if name in _LISTS or name.endswith("_PEM") or value.strip() in ("", value):
            continue
        place, space = "begins", value[: len(value) - len(value.lstrip())]
        if value.rstrip() != value:
            place, space = "ends", value[len(value.rstrip()) :]
        # A space may be part of a secret; a line end is not.
        if _SECRET.search(name) and not {"\r", "\n"} & set(space):
            continue
        yield f"{name} {place} with {space!r}: remove it (a file with Windows line ends, or a copied space)."
