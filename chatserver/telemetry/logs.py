"""Structured logs: one JSON object per line, or short lines for a developer's terminal.

Use ``log = structlog.get_logger()`` anywhere and ``log.info("what happened", user=…, chat=…)``: the
event is a fixed phrase, what varies goes into fields.

Guarantees, for our own lines and for those of libraries alike:
- No message text, token or password gets out: fields of such names are replaced, and whatever
  looks like a token is too, wherever it stands. Libraries log warnings only, as their debug lines
  hold frames and request bodies.
- No line can be forged: control and direction characters are escaped in both formats.
- Writing never raises: a line that cannot be written is counted and dropped.
"""

from __future__ import annotations

import logging
import re
import sys
import time
from collections.abc import MutableMapping
from typing import Any, Literal, TextIO

import structlog
from structlog.typing import EventDict, Processor

from chatserver.telemetry.metrics import LOG_LINES_DROPPED
from chatserver.telemetry.printable import escaped

REMOVED = "[removed]"
VALUE_CHARS_MAX = 2_000
OUR_LOGGERS = ("chatserver", "workers")

_PRIVATE = frozenset(
    {"authorization", "body", "cookie", "message_body", "password", "secret", "text", "token"}
)
_TOKEN = re.compile(r"eyJ[\w-]{8,}\.[\w-]+(?:\.[\w-]*)?")


def configure_logs(
    format: Literal["json", "console"],  # noqa: A002  the setting's own name
    level: str,
    *,
    process: str,
    stream: TextIO | None = None,
) -> None:
    """Send the logs of this process to `stream` (stderr), each line naming `process`."""
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
            _Named(process),
            structlog.processors.JSONRenderer(),  # ASCII only: no character can do harm
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
    def handleError(self, record: logging.LogRecord) -> None:  # noqa: N802  logging's own name
        LOG_LINES_DROPPED.inc()


class _Named:
    def __init__(self, process: str) -> None:
        self._process = process

    def __call__(self, logger: object, method: str, event: EventDict) -> EventDict:
        return {"process": self._process, **event}


def remove_private(logger: object, method: str, event: EventDict) -> EventDict:
    """Replace private fields and whatever looks like a token, and bound every value."""
    return _cleaned(event)


def _cleaned(fields: MutableMapping[str, Any]) -> dict[str, Any]:
    return {
        name: (
            REMOVED
            if name.lower() in _PRIVATE
            else value
            if name.startswith("_")  # structlog's own
            else _clean(value)
        )
        for name, value in fields.items()
    }


def _clean(value: object) -> object:
    if isinstance(value, dict):
        return _cleaned(value)
    if isinstance(value, list | tuple | set | frozenset):
        return [_clean(item) for item in value]
    if value is None or isinstance(value, bool | int | float):
        return value
    text = _TOKEN.sub(REMOVED, str(value))
    # A traceback's end says what failed, its beginning only where the program starts.
    return text if len(text) <= VALUE_CHARS_MAX else "…" + text[-VALUE_CHARS_MAX:]


def render_for_terminal(logger: object, method: str, event: EventDict) -> str:
    """Render a line for people: time, level, event and fields, then the traceback if any."""
    trace = event.pop("exception", None)
    event.pop("logger", None)
    level = event.pop("level", method)
    what = event.pop("event", "")
    fields = "".join(f" {name}={_shown(value)}" for name, value in event.items())
    line = f"{time.strftime('%H:%M:%S')} {level:<7} {what}{fields}"
    line = line.replace("\n", "\\n").replace("\t", "\\t")
    if trace:
        line += f"\n{trace}"
    return escaped(line)


def _shown(value: object) -> str:
    text = ",".join(map(str, value)) if isinstance(value, list) else str(value)
    return repr(text) if not text or any(char in text for char in " \n\t\"'=") else text
