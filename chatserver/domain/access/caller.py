"""The user whose request the current task processes.

`CALLER` is a context variable, which tasks inherit. Set it only in the request's own task:
connection callbacks share one context, so a value set there would apply to every later request.
"""

from __future__ import annotations

import contextvars
from typing import Final

CALLER: Final[contextvars.ContextVar[str]] = contextvars.ContextVar("caller", default="")
