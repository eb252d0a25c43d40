"""The settings, read from celeryconfig and the environment, and validated with every fault at once."""

from bridge.settings.address_values import hide_password, hide_passwords_in, is_redis
from bridge.settings.setting_defaults import (
    DEFAULT_GROUP,
    DEFAULT_WINDOW,
    OWN_APP,
    EnvironmentSettings,
    FileSettings,
    RedisAccess,
    Settings,
    TopicSettings,
)
from bridge.settings.settings_loader import SettingsAndRoutes, load, read, read_credentials, read_with_handlers
from bridge.settings.settings_validation import find_sequence_faults as sequence_faults

__all__ = [
    "DEFAULT_GROUP",
    "DEFAULT_WINDOW",
    "OWN_APP",
    "EnvironmentSettings",
    "FileSettings",
    "RedisAccess",
    "Settings",
    "SettingsAndRoutes",
    "TopicSettings",
    "hide_password",
    "hide_passwords_in",
    "is_redis",
    "load",
    "read",
    "read_credentials",
    "read_with_handlers",
    "sequence_faults",
]
