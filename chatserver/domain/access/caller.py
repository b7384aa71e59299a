"""The user whose request the current task processes.

A context variable: tasks inherit it. Set it only inside the request's own task. The callbacks of
all connections share one context, so a value set there would apply to every later request.
"""

from __future__ import annotations

import contextvars
from typing import Final

CALLER: Final[contextvars.ContextVar[str]] = contextvars.ContextVar("caller", default="")
