"""Structured logs: one JSON object per line, or short lines for a developer's terminal.

Usage: ``log = structlog.get_logger()``, then ``log.info("noun.past_participle", user=…, chat=…)``.
The event name is constant; variable data goes into fields.

Guarantees, for lines from this project and from libraries:
- No message text, token or password is logged: fields with such names are replaced, and so is any
  text that looks like a token. Libraries log only warnings and errors.
- No line can be forged: control characters, and characters that change the text direction, are
  escaped in both formats.
- Writing never raises: a line that cannot be written is counted and dropped.
"""

from __future__ import annotations

import functools
import logging
import re
import sys
import time
from collections.abc import MutableMapping
from typing import Any, Literal, TextIO

import structlog
from structlog.typing import EventDict, Processor

from chatserver.telemetry.metrics import LOG_LINES_DROPPED
from chatserver.telemetry.printable_text import escape_unprintable

REMOVED = "[removed]"
VALUE_CHARS_MAX = 2_000
REPEAT_S = 30.0  # `RepeatLimit`: minimum time between two lines of a kind
OUR_LOGGERS = ("chatserver", "workers")

_PRIVATE = frozenset(
    {"authorization", "body", "cookie", "message_body", "password", "secret", "text", "token"}
)
_TOKEN = re.compile(r"eyJ[\w-]{8,}\.[\w-]+(?:\.[\w-]*)?")


def configure_logs(
    format: Literal["json", "console"],  # noqa: A002  name of the setting
    level: str,
    *,
    process: str,
    stream: TextIO | None = None,
) -> None:
    """Configure logging to `stream` (default: stderr); each line contains `process`."""
    shared: list[Processor] = [
        structlog.contextvars.merge_contextvars,
        structlog.stdlib.add_log_level,
        structlog.stdlib.add_logger_name,
        structlog.stdlib.ExtraAdder(),
        structlog.processors.format_exc_info,
        remove_private,
    ]
    structlog.configure(
        processors=[
            structlog.stdlib.filter_by_level,
            *shared,
            structlog.stdlib.ProcessorFormatter.wrap_for_formatter,
        ],
        logger_factory=structlog.stdlib.LoggerFactory(),
        wrapper_class=structlog.stdlib.BoundLogger,
        cache_logger_on_first_use=False,
    )
    ending: list[Processor] = [structlog.stdlib.ProcessorFormatter.remove_processors_meta]
    if format == "json":
        ending += [
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            functools.partial(_add_process, process),
            structlog.processors.JSONRenderer(),  # escapes all characters except printable ASCII
        ]
    else:
        ending.append(render_for_terminal)
    handler = _Handler(stream or sys.stderr)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(foreign_pre_chain=shared, processors=ending)
    )
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(logging.WARNING)
    for name in OUR_LOGGERS:
        logging.getLogger(name).setLevel(level.upper())


class _Handler(logging.StreamHandler[TextIO]):
    def handleError(self, record: logging.LogRecord) -> None:  # noqa: N802  name defined by `logging`
        LOG_LINES_DROPPED.inc()


def _add_process(process: str, logger: object, method: str, event: EventDict) -> EventDict:
    return {"process": process, **event}


def remove_private(logger: object, method: str, event: EventDict) -> EventDict:
    """Replace private fields and anything that looks like a token, and truncate long values."""
    return _clean_fields(event)


def _clean_fields(fields: MutableMapping[str, Any]) -> dict[str, Any]:
    return {
        name: (
            REMOVED
            if name.lower() in _PRIVATE
            else value
            if name.startswith("_")  # internal to structlog
            else _clean_value(value)
        )
        for name, value in fields.items()
    }


def _clean_value(value: object) -> object:
    if isinstance(value, dict):
        return _clean_fields(value)
    if isinstance(value, list | tuple | set | frozenset):
        return [_clean_value(item) for item in value]
    if value is None or isinstance(value, bool | int | float):
        return value
    text = _TOKEN.sub(REMOVED, str(value))
    # Keep the end: the last lines of a traceback have the error.
    return text if len(text) <= VALUE_CHARS_MAX else "…" + text[-VALUE_CHARS_MAX:]


def render_for_terminal(logger: object, method: str, event: EventDict) -> str:
    """Render a line for a terminal: time, level, event and fields, then the traceback if any."""
    trace = event.pop("exception", None)
    event.pop("logger", None)
    level = event.pop("level", method)
    event_name = event.pop("event", "")
    fields = "".join(f" {name}={_format_value(value)}" for name, value in event.items())
    line = f"{time.strftime('%H:%M:%S')} {level:<7} {event_name}{fields}"
    line = line.replace("\n", "\\n").replace("\t", "\\t")
    if trace:
        line += f"\n{trace}"
    return escape_unprintable(line)


def _format_value(value: object) -> str:
    text = ",".join(map(str, value)) if isinstance(value, list) else str(value)
    return repr(text) if not text or any(char in text for char in " \n\t\"'=") else text


class RepeatLimit:
    """Limits a warning that every request could repeat to one per kind and `REPEAT_S`.

    Use it with few kinds: they are never forgotten.
    """

    def __init__(self) -> None:
        self._logged_at: dict[str, float] = {}

    def is_due(self, kind: str) -> bool:
        """Return whether to log now, and if so, start the pause."""
        now = time.monotonic()
        if now - self._logged_at.get(kind, float("-inf")) < REPEAT_S:
            return False
        self._logged_at[kind] = now
        return True
