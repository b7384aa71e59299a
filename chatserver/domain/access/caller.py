"""The user whose request the current task processes.

A context variable, which tasks inherit. Set it only inside the request's own task: connection
callbacks share one context, so a value set in a callback would apply to every later request.
"""

from __future__ import annotations

import contextvars
from typing import Final

CALLER: Final[contextvars.ContextVar[str]] = contextvars.ContextVar("caller", default="")
