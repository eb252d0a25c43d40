"""Variables of the environment that nothing reads, and that somebody has probably set for us."""

import re
from collections.abc import Iterator, Mapping
from difflib import get_close_matches
from typing import Final

from bridge.settings.properties import meant
from bridge.settings.values import EnvironmentSettings

#: What variables of the desk begin with: there all that are not read are told.
DESK: Final = "DEADLETTERS_"
#: All that are read, but for properties of librdkafka (properties.py).
READ: Final = (
    *EnvironmentSettings.model_fields,
    *("HANDLERS", "CELERY_BROKER_URL", "CELERY_CONFIG_MODULE", "BRIDGE_LOG_LEVEL", "BRIDGE_LOG_FORMAT"),
    *("KAFKA_BOOTSTRAP_SERVERS", "TARGET_KAFKA_BOOTSTRAP_SERVERS"),
)
#: How alike two names must be, of 1: a letter more or less is, and CELERY_BROKER_READ_URL, which is Celery's, is not.
ALIKE: Final = 0.88
#: What Kubernetes sets for a service called `deadletters…`.
_OF_SERVICE: Final = re.compile(r".*_(SERVICE_HOST|SERVICE_PORT(_.*)?|PORT(_\d+_[A-Z]+(_.*)?)?)")
_LINK: Final = "tcp://"


def of_desk(environ: Mapping[str, str]) -> Iterator[str]:
    """Variables of the desk that there are not: with a misspelt one fields that are to be masked would be shown."""
    for name in sorted(environ):
        if environ[name] and name.startswith(DESK) and name not in READ and not _OF_SERVICE.fullmatch(name):
            near = get_close_matches(name, [each for each in READ if each.startswith(DESK)], n=1, cutoff=0.8)
            advice = f"did you mean {near[0]}? Else remove it" if near else "remove it"
            yield f"environment: there is no setting {name}: {advice}; docs/settings.md has the list."


def of_others(environ: Mapping[str, str]) -> Iterator[str]:
    """Others that look like one that is read; what Kubernetes sets for a service of such a name is none.

    >>> [*of_others({"BRIDGE_GRUOP": "shop"})]
    ['environment: nothing reads BRIDGE_GRUOP. Did you mean BRIDGE_GROUP?']
    """
    for name in sorted(environ):
        value = environ[name]
        if not value or value.startswith(_LINK) or name in READ or name.startswith(DESK):
            continue
        if name.startswith("KAFKA_") and meant(name):
            # Told as a property.
            continue
        if near := get_close_matches(name, READ, n=1, cutoff=ALIKE):
            yield f"environment: nothing reads {name}. Did you mean {near[0]}?"
