"""Telemetry: structured logs, metrics, traces and probes. None of them contains message text.

Start with `logs`, `metrics` and `tracing`; `process_stats` feeds the admin page.
"""
