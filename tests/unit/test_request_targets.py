"""Request targets in absolute form."""

from __future__ import annotations

import pytest

from chatserver.request_targets import to_origin_form


@pytest.mark.parametrize(
    ("target", "path"),
    [
        ("/healthz?a=http://b", "/healthz?a=http://b"),
        ("http://chat.example/v1/me?x=1", "/v1/me?x=1"),
        ("HTTPS://chat.example:8443", "/"),
        ("http://chat.example?x=1", "/?x=1"),
        ("*", "*"),
    ],
)
def test_absolute_request_target_is_reduced_to_its_path(target: str, path: str) -> None:
    assert to_origin_form(target) == path
