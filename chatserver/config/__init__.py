"""Settings by section, read once at startup.

Sources, in ascending precedence: defaults, a TOML file (``--config`` or ``CHAT_CONFIG``), a
directory of secrets (``CHAT_SECRETS_DIR``: one file per variable, named like the variable),
environment variables ``CHAT_<SECTION>_<NAME>``. If settings are unknown or invalid, the process
reports all of them and does not start. To read the code, start with `settings.py`; `loading.py`
loads the settings.
"""

from chatserver.config.api import Api
from chatserver.config.archive import Archive
from chatserver.config.audit import Audit
from chatserver.config.auth import Auth
from chatserver.config.chats import Chats
from chatserver.config.cold import Cold
from chatserver.config.encryption import Encryption
from chatserver.config.gateway import Gateway
from chatserver.config.loading import ReadSettings, check_secret, load_settings, read_settings
from chatserver.config.outbound import Outbound
from chatserver.config.persist import Persist
from chatserver.config.presence import Presence
from chatserver.config.rate_limits import Limits, RateLimit
from chatserver.config.redis import Redis
from chatserver.config.section import Section
from chatserver.config.settings import Settings, list_sections
from chatserver.config.sources import PREFIX, list_variables
from chatserver.config.telemetry import Telemetry
from chatserver.config.warm import Warm

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
