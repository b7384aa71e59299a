"""/metrics, /healthz and /readyz, as monitoring requests them."""

from __future__ import annotations

from chatserver.telemetry.probes import STUCK_S, Heartbeat, make_app


def test_probe_of_a_stuck_loop_reports_the_duration() -> None:
    """A thread answers the probe, so it works while the loop is stuck."""

    class Stuck(Heartbeat):
        def age_s(self) -> float:
            return STUCK_S + 2

    statuses: list[str] = []

    def start_response(status: str, _: list[tuple[str, str]]) -> None:
        statuses.append(status)

    (text,) = make_app(str, Stuck())({"PATH_INFO": "/healthz"}, start_response)

    assert statuses == ["503 Service Unavailable"]
    assert text == b"the event loop has been stuck for 12 s\n"
