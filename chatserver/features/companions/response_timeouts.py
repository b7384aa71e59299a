"""Timeouts of an AI response."""

from __future__ import annotations

from typing import Final

FIRST_DELTA_S: Final = 30.0  # maximum wait for the first delta
BETWEEN_S: Final = 20.0  # longest pause between two deltas
RESPONSE_TIMEOUT_S: Final = 180.0  # time limit for the whole response, including retries
