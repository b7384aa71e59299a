"""Session limits: requests and frames in flight, and frames held in order."""

from __future__ import annotations

SENDS_IN_FLIGHT_MAX = 64  # maximum unacknowledged sends per session
REQUESTS_IN_FLIGHT_MAX = 32
HELD_FRAMES_MAX = 64
HELD_TIMEOUT_S = 5.0  # a request held longer than this is refused
