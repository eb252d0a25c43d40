"""Settings that nothing reads and that were probably meant for the bridge, and values with white space around them."""

import re
from collections.abc import Iterable, Iterator, Mapping
from difflib import get_close_matches
from typing import Final

from celery.app.defaults import _OLD_SETTING_KEYS, SETTING_KEYS  # type: ignore[attr-defined]

from bridge.settings.librdkafka_properties import guess_variable
from bridge.settings.setting_defaults import EnvironmentSettings, FileSettings

#: What variables of the desk begin with: there all that are not read are told.
DESK_PREFIX: Final = "DEADLETTERS_"
#: All that are read, but for properties of librdkafka (properties.py).
READ_VARIABLES: Final = (
    *EnvironmentSettings.model_fields,
    *("HANDLERS", "CELERY_BROKER_URL", "CELERY_CONFIG_MODULE", "BRIDGE_LOG_LEVEL", "BRIDGE_LOG_FORMAT"),
    *("KAFKA_BOOTSTRAP_SERVERS", "TARGET_KAFKA_BOOTSTRAP_SERVERS"),
)
#: How alike two names must be, of 1: a letter more or less is, and CELERY_BROKER_READ_URL, which is Celery's, is not.
ALIKE: Final = 0.88
#: Settings of celeryconfig that are read: Celery's, under both of its spellings, and ours.
_IN_FILE: Final = frozenset({*SETTING_KEYS, *map(str.lower, _OLD_SETTING_KEYS), *FileSettings.model_fields})
#: Lists with commas: white space around their items means nothing.
_LISTS: Final = ("HANDLERS", "DEADLETTERS_CONSOLE_HOSTS", "DEADLETTERS_WEBHOOK_NETWORKS", "DEADLETTERS_TRUSTED_PROXY")
#: What Kubernetes sets for a service called `deadletters…`.
_OF_SERVICE: Final = re.compile(r".*_(SERVICE_HOST|SERVICE_PORT(_.*)?|PORT(_\d+_[A-Z]+(_.*)?)?)")
_LINK: Final = "tcp://"
_SECRET: Final = re.compile("PASSWORD|SECRET|TOKEN")


def find_unknown_desk_variables(environ: Mapping[str, str]) -> Iterator[str]:
    """Variables of the desk that there are not: with a misspelt one fields that are to be masked would be shown."""
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
    """Others that look like one that is read; what Kubernetes sets for a service of such a name is none.

    >>> [*of_others({"BRIDGE_GRUOP": "shop"})]
    ['environment: nothing reads BRIDGE_GRUOP. Did you mean BRIDGE_GROUP?']
    """
    for name in sorted(environ):
        value = environ[name]
        if not value or value.startswith(_LINK) or name in READ_VARIABLES or name.startswith(DESK_PREFIX):
            continue
        if name.startswith("KAFKA_") and guess_variable(name):
            # Told as a property.
            continue
        if near := get_close_matches(name, READ_VARIABLES, n=1, cutoff=ALIKE):
            yield f"environment: nothing reads {name}. Did you mean {near[0]}?"


def find_misspelt_settings(names: Iterable[str]) -> Iterator[str]:
    """Settings of celeryconfig that Celery does not know and that look like one that it knows, a sentence each.

    >>> [*of_celery(["worker_prefech_multiplier", "my_own_setting"])]
    ['celeryconfig: nothing reads worker_prefech_multiplier. Did you mean worker_prefetch_multiplier?']
    """
    for name in sorted(names):
        # Ours that there are not are faults.
        known = name.lower() in _IN_FILE or name.lower().startswith("kafka_")
        if not known and (near := get_close_matches(name.lower(), _IN_FILE, n=1, cutoff=ALIKE)):
            yield f"celeryconfig: nothing reads {name}. Did you mean {near[0]}?"


def find_padded_values(environ: Mapping[str, str]) -> Iterator[str]:
    """Of these variables those whose value begins or ends with white space, as a file with Windows line ends leaves it.

    >>> [*padded({"LEDGER_URL": "redis://localhost/0\\r"})]
    ["LEDGER_URL ends with '\\\\r': remove it (a file with Windows line ends, or a copied space)."]
    """
    for name in sorted(environ):
        value = environ[name]
        if name in _LISTS or name.endswith("_PEM") or value.strip() in ("", value):
            continue
        place, space = "begins", value[: len(value) - len(value.lstrip())]
        if value.rstrip() != value:
            place, space = "ends", value[len(value.rstrip()) :]
        # Of a secret a space may be a part; a line end is none.
        if _SECRET.search(name) and not {"\r", "\n"} & set(space):
            continue
        yield f"{name} {place} with {space!r}: remove it (a file with Windows line ends, or a copied space)."
