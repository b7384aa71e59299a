"""Settings by section, read once at startup.

Sources, in ascending precedence: defaults, a TOML file (``--config`` or ``CHAT_CONFIG``), a
directory of secrets (``CHAT_SECRETS_DIR``: files named like the variables), environment variables
``CHAT_<SECTION>_<NAME>``. All unknown settings and invalid values are reported together, and the
process does not start. What no operator would change is a named constant next to the code that
uses it. Start at `settings.py`; `loading.py` reads them.
"""

from chatserver.config.api import Api, Auth, Outbound
from chatserver.config.features import (
    Attachments,
    Companions,
    Notify,
    Privacy,
    Timeline,
    Webhooks,
)
from chatserver.config.gateway import Chats, Gateway, Presence
from chatserver.config.loading import check_secret, load_settings
from chatserver.config.rates import Limits, RateLimit
from chatserver.config.section import Section
from chatserver.config.settings import Settings
from chatserver.config.sources import PREFIX, list_variables
from chatserver.config.storage import Cold, Redis, Warm
from chatserver.config.workers import Archive, Audit, Persist, Telemetry

__all__ = [
    "PREFIX",
    "Api",
    "Archive",
    "Attachments",
    "Audit",
    "Auth",
    "Chats",
    "Cold",
    "Companions",
    "Gateway",
    "Limits",
    "Notify",
    "Outbound",
    "Persist",
    "Presence",
    "Privacy",
    "RateLimit",
    "Redis",
    "Section",
    "Settings",
    "Telemetry",
    "Timeline",
    "Warm",
    "Webhooks",
    "check_secret",
    "list_variables",
    "load_settings",
]
