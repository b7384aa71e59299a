"""Settings by section, read once at startup.

Sources, in ascending precedence: defaults, a TOML file (``--config`` or ``CHAT_CONFIG``), a
directory of secrets (``CHAT_SECRETS_DIR``: one file per variable, named like the variable),
environment variables ``CHAT_<SECTION>_<NAME>``. If settings are unknown or invalid, the process
reports all of them and does not start. To read the code, start with `settings.py`; `loading.py`
loads the settings.
"""

from chatserver.config.api import Api, Auth, Outbound
from chatserver.config.gateway import Chats, Gateway, Presence
from chatserver.config.loading import ReadSettings, check_secret, load_settings, read_settings
from chatserver.config.rates import Limits, RateLimit
from chatserver.config.section import Section
from chatserver.config.settings import Settings, list_sections
from chatserver.config.sources import PREFIX, list_variables
from chatserver.config.storage import Cold, Encryption, Redis, Warm
from chatserver.config.workers import Archive, Audit, Persist, Telemetry

__all__ = [
    "PREFIX",
    "Api",
    "Archive",
    "Audit",
    "Auth",
    "Chats",
    "Cold",
    "Encryption",
    "Gateway",
    "Limits",
    "Outbound",
    "Persist",
    "Presence",
    "RateLimit",
    "ReadSettings",
    "Redis",
    "Section",
    "Settings",
    "Telemetry",
    "Warm",
    "check_secret",
    "list_sections",
    "list_variables",
    "load_settings",
    "read_settings",
]
