"""Models that answer for AI companions, each behind the one interface of `provider`."""
