"""The user whose request a task is answering.

A context variable: tasks inherit it. Set it in a task of the request only. The callbacks of all
connections share one context, so a value that is set there would be that of every later request.
"""

from __future__ import annotations

import contextvars
from typing import Final

CALLER: Final[contextvars.ContextVar[str]] = contextvars.ContextVar("caller", default="")
