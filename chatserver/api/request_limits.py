"""Limits of concurrent HTTP requests, in total and per user; see `chatserver.api.authorization`."""

from __future__ import annotations

REQUESTS_MAX = 512  # maximum concurrent requests per process, from all users together
REQUESTS_OF_USER_MAX = 8
WAITING_OF_USER_MAX = 64
