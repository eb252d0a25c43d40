"""Settings: read from celeryconfig and the environment, checked, every fault reported at once."""

from bridge.settings.addresses import hide_password, is_redis
from bridge.settings.faults import of_sequences as sequence_faults
from bridge.settings.reading import load, read
from bridge.settings.together import Together, together
from bridge.settings.values import DEFAULT_GROUP, OWN_APP, EnvironmentSettings, FileSettings, Settings, TopicSettings

__all__ = [
    "DEFAULT_GROUP",
    "OWN_APP",
    "EnvironmentSettings",
    "FileSettings",
    "Settings",
    "Together",
    "TopicSettings",
    "hide_password",
    "is_redis",
    "load",
    "read",
    "sequence_faults",
    "together",
]
